"""A real server under load, under bad input, and at its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
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


def test_queue_takes_as_many_as_it_says(start_server: Any, tmp_path: Path) -> None:
    """Six at once on one place with a line of two: three are refused, whatever their schemas have to wait for."""

    async def ask(url: str) -> list[int]:
        async with httpx.AsyncClient(timeout=60) as client:
            bodies = [slow_body(4) | {"max_tokens": 200} for _ in range(6)]
            return [r.status_code for r in await asyncio.gather(*(client.post(url, json=b) for b in bodies))]

    with start_server(tmp_path, "--max-running", "1", "--max-queued", "2") as server:
        assert [200, 200, 200, 429, 429, 429] == sorted(asyncio.run(ask(f"{server.url}/v1/completions")))


def test_second_signal(start_server: Any, tmp_path: Path) -> None:
    """What runs and what is compiled is answered with 503 at once, and the process does not wait for the grace."""
    answers: list[httpx.Response] = []

    def ask(url: str, content: dict[str, Any]) -> None:
        with contextlib.suppress(httpx.TransportError):  # a busy machine may not find the time to answer
            answers.append(httpx.post(url, json=content, timeout=60))

    bodies = [slow_body(64), slow_body(1) | {"response_format": {"type": "regex", "regex": "(a|b)*a(a|b){18}(c|d)*"}}]
    with start_server(tmp_path, "--grace", "300") as server:
        url = f"{server.url}/v1/completions"
        asking = [Thread(target=ask, args=(url, body)) for body in bodies]
        for thread in asking:
            thread.start()
        time.sleep(1.5)
        for _ in range(2):
            server.process.send_signal(signal.SIGINT)
            time.sleep(0.3)
        assert 0 == server.process.wait(30)
        for thread in asking:
            thread.join()
        log = server.log.read_text("utf-8")
    assert "shutting_down" in [answer.json().get("error", {}).get("code") for answer in answers]
    assert "stopped at once, by a second signal" in log
    assert "Traceback" not in log


def test_log(start_server: Any, tmp_path: Path) -> None:
    """The address comes before the first access line, each line has its request's id, and the end is told."""
    with start_server(tmp_path) as server:
        request_id = httpx.get(f"{server.url}/health").headers["x-request-id"]
        server.process.send_signal(signal.SIGTERM)
        assert 0 == server.process.wait(30)
        lines = server.log.read_text("utf-8").splitlines()
    assert f"listening on {server.url}/v1, loading katagami-char, katagami-bpe" in lines[0]
    assert any(f"{request_id} GET /health 200 in " in line for line in lines)
    assert lines[-1].endswith("INFO katagami stopped")


@pytest.mark.parametrize("expect", [b"", b"expect: 100-continue\r\n"])
def test_long_body_is_refused_before_it_is_sent(server: Any, expect: bytes) -> None:
    """A client that says how long its body will be gets 413 without sending any of it."""
    host, port = server.url.removeprefix("http://").split(":")
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(head + expect + b"content-length: 99999999\r\n\r\n")
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
