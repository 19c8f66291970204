"""A real server under load, under bad input, and at its end."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest


def article_schema(number: int) -> dict[str, Any]:
    """One of eight schemas that no other's document satisfies: its number is in the id."""
    properties = {
        "id": {"const": 1000 + number},
        "title": {"type": "string", "maxLength": 8 + number},
        "tags": {"type": "array", "items": {"enum": ["network", "css"]}, "minItems": number % 3, "maxItems": 3},
    }
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def body(number: int) -> dict[str, Any]:
    """A request for schema `number`."""
    form = {"type": "json_schema", "json_schema": {"name": "article", "schema": article_schema(number)}}
    return {"model": "katagami-char", "prompt": "", "max_tokens": 300, "response_format": form}


def test_crowd(server: Any) -> None:
    """64 requests at once with 8 schemas: all valid, and each answer belongs to its own request."""

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
            return await asyncio.gather(*(client.post("/v1/completions", json=body(i % 8)) for i in range(64)))

    answers = [response.json() for response in asyncio.run(ask())]
    choices = [answer["choices"][0] for answer in answers]
    assert [True] * 64 == [choice["structured"]["valid"] for choice in choices]
    assert [1000 + i % 8 for i in range(64)] == [json.loads(choice["text"])["id"] for choice in choices]
    assert 8 == len({answer["structured"]["schema_hash"] for answer in answers})


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"[" * 100_000, 400, "invalid_json"),
        (b'{"model": "nosuch", "prompt": ""}', 404, "model_not_found"),
        (b'{"model": "katagami-char", "prompt": {}}', 400, "invalid_type"),
        (b"0" * (9 * 2**20), 413, "request_too_large"),
        (json.dumps({"model": "katagami-char", "prompt": [10**6]}).encode(), 400, "invalid_value"),
    ],
)
def test_bad_bodies(server: Any, content: bytes, status: int, code: str) -> None:
    """Bad bodies are told in the contract's shape, and the server goes on."""
    headers = {"content-type": "application/json"}
    response = httpx.post(f"{server.url}/v1/completions", content=content, headers=headers)
    assert (status, code) == (response.status_code, response.json()["error"]["code"])
    assert 200 == httpx.post(f"{server.url}/v1/completions", json=body(0), timeout=60).status_code


def test_schemas_that_strain_the_stack(server: Any) -> None:
    """Deeply nested schemas and constants are refused or served, never a failure of the server."""
    deep: Any = {"type": "integer"}
    nested: Any = 1
    for _ in range(70):
        deep, nested = {"type": "object", "properties": {"a": deep}}, [nested]
    for schema in (deep, {"const": nested}, {"properties": {"a": {"$ref": "#/properties/a"}}}, {"$ref": "#"}):
        form = {"type": "json_schema", "json_schema": {"name": "deep", "schema": schema}}
        response = httpx.post(f"{server.url}/v1/completions", json=body(0) | {"response_format": form}, timeout=60)
        assert response.status_code in (200, 400), response.text


def slow_body(n: int) -> dict[str, Any]:
    """A request of n choices that takes long."""
    form = {"type": "regex", "regex": "[a-z]{20000}"}
    return {"model": "katagami-char", "prompt": "", "n": n, "max_tokens": 100_000, "response_format": form}


def test_client_gone(start_server: Any, tmp_path: Path) -> None:
    """A client that gives up frees its place, so that a server with one place serves the next."""
    with start_server(tmp_path, "--max-running", "1") as server:
        url = f"{server.url}/v1/completions"
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(url, json=slow_body(16), timeout=1.0)
        assert 200 == httpx.post(url, json=body(0), timeout=20).status_code


def test_queue_full(start_server: Any, tmp_path: Path) -> None:
    """Where as many wait as may, the next is told when to come back."""

    async def ask(url: str) -> httpx.Response:
        async with httpx.AsyncClient(timeout=60) as client:
            waiting = [asyncio.ensure_future(client.post(url, json=slow_body(8))) for _ in range(3)]
            done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            return done.pop().result()

    with start_server(tmp_path, "--max-running", "1", "--max-queued", "1") as server:
        response = asyncio.run(ask(f"{server.url}/v1/completions"))
    assert (429, "queue_full") == (response.status_code, response.json()["error"]["code"])
    assert 1000 <= int(response.headers["retry-after-ms"])


def test_end_of_the_server(start_server: Any, tmp_path: Path) -> None:
    """At SIGTERM new work gets 503, what runs is answered, and the process ends with status 0."""
    answers: list[httpx.Response] = []
    with start_server(tmp_path, "--grace", "2") as server:
        url = f"{server.url}/v1/completions"
        asking = Thread(target=lambda: answers.append(httpx.post(url, json=slow_body(64), timeout=60)))
        asking.start()
        time.sleep(1.0)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        for response in (httpx.get(f"{server.url}/ready"), httpx.post(url, json=body(0))):
            assert (503, "shutting_down") == (response.status_code, response.json()["error"]["code"])
        asking.join()
        assert 0 == server.process.wait(30)
    assert (503, "shutting_down") == (answers[0].status_code, answers[0].json()["error"]["code"])
