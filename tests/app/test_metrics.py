"""The figures for Prometheus: all of the list are there, and each counts what it says."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from engine import UnknownModelError
from schemas_cache import CompileTimeoutError, Finding, StoredSchema

FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "integer"}}}
BODY = {"model": "tiny", "prompt": "abc", "response_format": FORMAT}


def figures(client: TestClient) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All samples, by name and labels."""
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def figure(client: TestClient, name: str, **labels: str) -> float:
    """One sample; 0 where it is not there yet."""
    return figures(client).get((f"katagami_{name}", tuple(sorted(labels.items()))), 0)


def test_requests(client: TestClient) -> None:
    """By route, method and status; what a client makes up is one label."""
    client.post("/v1/completions", json=BODY)
    client.post("/v1/completions", json={})
    for number in range(3):
        client.request(f"MADEUP{number}", f"/made/up/{number}")
    assert 1 == figure(client, "requests_total", route="/v1/completions", method="POST", status="200")
    assert 1 == figure(client, "requests_total", route="/v1/completions", method="POST", status="400")
    assert 3 == figure(client, "requests_total", route="unmatched", method="other", status="404")


def test_generation(client: TestClient, engine: Any, make_choice: Any) -> None:
    """Tokens, seconds, the schema's tier and closed documents, by model."""
    engine.answer = lambda index: make_choice(index, closed_early=True)
    client.post("/v1/completions", json=BODY | {"n": 2})
    client.post("/v1/completions", json={"model": "org/tiny", "prompt": "abc"})
    assert 3 == figure(client, "prompt_tokens_total", model="tiny")
    assert 14 == figure(client, "completion_tokens_total", model="tiny")
    assert 2 == figure(client, "closed_early_total", model="tiny")
    assert 1 == figure(client, "schema_lookups_total", tier="miss")
    for name in ("queue", "compile", "first_token", "total"):
        assert 1 == figure(client, f"{name}_seconds_count", model="tiny")
    assert 0 == figure(client, "compile_seconds_count", model="org/tiny")
    assert 1 == figure(client, "total_seconds_count", model="org/tiny")
    assert pytest.approx(0.0125) == figure(client, "compile_seconds_sum", model="tiny")
    assert pytest.approx(0.0125 + 0.003) == figure(client, "first_token_seconds_sum", model="tiny")


def test_compile_failures(client: TestClient, engine: Any) -> None:
    """By reason; what has nothing to do with a schema is none."""
    engine.error = CompileTimeoutError([Finding("#", "", "not compiled within 1 s")])
    client.post("/v1/completions", json=BODY)
    engine.error = UnknownModelError("x", ())
    client.post("/v1/completions", json=BODY)
    assert 1 == figure(client, "compile_failures_total", reason="schema_compile_timeout")
    failures = [value for (name, _), value in figures(client).items() if name == "katagami_compile_failures_total"]
    assert [1] == failures


def test_engine(client: TestClient) -> None:
    """The engine's own figures are read at the moment."""
    expected = {"queued": 6, "running": 7, "submitted_total": 5, "completed_total": 3, "failed_total": 1}
    expected |= {"cancelled_total": 2, "refused_total": 4}
    assert expected == {name: figure(client, name) for name in expected}
    steps = {"steps": 8, "forced_tokens": 9, "interventions": 10}
    assert steps == {name: figure(client, f"{name}_total", model="tiny") for name in steps}
    seconds = {"forward": 1.5, "mask": 0.25, "sample": 0.125, "advance": 0.0625}
    assert seconds == {stage: figure(client, "step_seconds_total", model="tiny", stage=stage) for stage in seconds}


def test_cache(client: TestClient, engine: Any) -> None:
    """How many schemas there are and what they take, by the nearest tier that has them."""
    facts = ("f" * 8, "json_schema", "", 1, 1, 1, 0.0, 0.0, "key")
    engine.cache.stored = [
        StoredSchema("a" * 64, *facts, size, tier) for size, tier in ((100, "memory"), (20, "disk"), (3, "disk"))
    ]
    for tier, entries, size in (("memory", 1, 100), ("disk", 2, 23)):
        assert entries == figure(client, "schema_cache_entries", tier=tier)
        assert size == figure(client, "schema_cache_bytes", tier=tier)


def test_head(client: TestClient) -> None:
    """A scraper may ask whether it is there."""
    assert (200, b"") == (client.head("/metrics").status_code, client.head("/metrics").content)
