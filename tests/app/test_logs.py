"""What the log tells of an exchange, and what it never does."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient

from app.logs import FIELDS, JsonLines
from app.main import create_app
from app.settings import Settings
from engine import Engine, EngineFailedError

FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"const": "a schema that nobody sees"}}}
BODY = {"model": "tiny", "prompt": "a prompt that nobody sees", "response_format": FORMAT}


def json_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """All that was logged by the server, in the JSON form."""
    form = JsonLines()
    return [json.loads(form.format(record)) for record in caplog.records if record.name == "katagami"]


def exchange_line(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """The one line of an exchange."""
    (line,) = (line for line in json_lines(caplog) if line.get("event") == "exchange")
    return line


def test_exchange(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    """All facts of a completion, in one object."""
    with caplog.at_level(logging.INFO):
        response = client.post("/v1/completions", json=BODY)
    line = exchange_line(caplog)
    assert 0 < line.pop("duration_ms") < 10_000
    assert line.pop("time").endswith("Z")
    expected = {
        "level": "info",
        "logger": "katagami",
        "event": "exchange",
        "request_id": response.headers["x-request-id"],
        "key": None,
        "client": "testclient",
        "method": "POST",
        "path": "/v1/completions",
        "route": "/v1/completions",
        "status": 200,
        "model": "tiny",
        "schema_hash": "ab" * 32,
        "cache": "miss",
        "prompt_tokens": len("a prompt that nobody sees"),
        "completion_tokens": 7,
        "error": None,
    }
    assert expected == line


def test_no_prompts(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    """Neither form has anything of what the client sent, at any level."""
    with caplog.at_level(logging.DEBUG):
        client.post("/v1/completions", json=BODY)
        client.post("/v1/completions", json=BODY | {"temperature": "nobody sees"})
    assert "nobody sees" not in caplog.text
    assert "nobody sees" not in str(json_lines(caplog))


def test_prompts_on_request(engine: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where the server was told so, the body is there, in both forms and on one line."""
    app = create_app(Settings(home=tmp_path, log_prompts=True), cast("Engine", engine))
    with TestClient(app) as client, caplog.at_level(logging.INFO):
        while not app.state.gate.loaded_at:
            time.sleep(0.001)
        client.post(
            "/v1/completions",
            content='{"model": "tiny",\n"prompt": "seen"}',
            headers={"content-type": "application/json"},
        )
    assert '{"model": "tiny",\n"prompt": "seen"}' == exchange_line(caplog)["body"]
    (text,) = (record.getMessage() for record in caplog.records if hasattr(record, FIELDS))
    assert "\n" not in text
    assert "seen" in text


@pytest.mark.parametrize(
    ("method", "path", "route", "status", "error"),
    [
        ("GET", "/v1/models/org/tiny", "/v1/models/{model_id:path}", 200, None),
        ("GET", "/v1/models/nosuch", "/v1/models/{model_id:path}", 404, "model_not_found"),
        ("GET", "/v1/completions", "/v1/completions", 405, "method_not_allowed"),
        ("GET", "/nosuch/5f3a", "unmatched", 404, "unknown_url"),
    ],
)
def test_routes(
    client: TestClient, caplog: pytest.LogCaptureFixture, method: str, path: str, route: str, status: int, error: str
) -> None:
    """The route is a template, whatever the path holds; an error is told by its code."""
    with caplog.at_level(logging.INFO):
        client.request(method, path)
    line = exchange_line(caplog)
    assert (route, status, error) == (line["route"], line["status"], line["error"])


def test_failure(client: TestClient, engine: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A failure is two lines with one id: the cause, and the exchange."""
    engine.error = EngineFailedError("the model gave no numbers")
    with caplog.at_level(logging.INFO):
        request_id = client.post("/v1/completions", json=BODY).headers["x-request-id"]
    cause = next(line for line in json_lines(caplog) if line["level"] == "error")
    assert f"{request_id} POST /v1/completions failed: EngineFailedError: the model gave no numbers" == cause["message"]
    assert (500, "engine_error") == tuple(exchange_line(caplog)[key] for key in ("status", "error"))


def test_bug(client: TestClient, engine: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A bug's traceback is part of its object."""
    engine.error = KeyError("a bug")
    with caplog.at_level(logging.INFO):
        assert 500 == client.post("/v1/completions", json=BODY).status_code
    assert any("KeyError: 'a bug'" in line.get("exception", "") for line in json_lines(caplog))


def test_request_id_of_a_proxy(client: TestClient) -> None:
    """A sane one is kept and comes back under both names; any other is replaced."""
    for given, kept in (("edge-7f.3_a:1", True), ("x" * 129, False), ("two words", False), ("", False)):
        headers = client.get("/health", headers={"x-request-id": given}).headers
        assert headers["x-request-id"] == headers["request-id"]
        assert kept is (given == headers["x-request-id"])
