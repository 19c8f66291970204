"""A crowd beyond the queue, memory over many requests, clients that dawdle: all are served, and nobody is harmed."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import openai
import psutil
import pytest

CLIENTS, QUEUE, RUNNING = 100, 32, 4
MODEL = "katagami-char"
LIMITS = httpx.Limits(max_connections=None)
LIMIT_S = 120.0
LEAK_BYTES = 4 << 20  # of 400 requests: a leak of 10 KB each would be seen
SCHEMA = {"type": "string", "maxLength": 10}
LONG: dict[str, Any] = {"response_format": {"type": "regex", "regex": "[a-z]{100}"}}
SHORT: dict[str, Any] = {
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
}
BODY: dict[str, Any] = {"model": MODEL, "prompt": "", "max_tokens": 120}


@pytest.fixture(scope="module")
def crowded(start_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server with a short line."""
    flags = ("--model", MODEL, "--max-queued", str(QUEUE), "--max-running", str(RUNNING), "--client-timeout", "5")
    with start_server(tmp_path_factory.mktemp("home"), *flags) as server:
        yield server


def test_crowd_beyond_the_queue(crowded: Any) -> None:
    """100 at once on a line of 32: as many as fit are served, the others are told when to come back, nothing else."""

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=crowded.url, timeout=LIMIT_S, limits=LIMITS) as client:
            bodies = (BODY | LONG | {"seed": seed} for seed in range(CLIENTS))
            return await asyncio.gather(*(client.post("/v1/completions", json=body) for body in bodies))

    answers = asyncio.run(ask())
    statuses = Counter(answer.status_code for answer in answers)
    assert {200, 429} == set(statuses)
    assert statuses[200] >= QUEUE
    for answer in answers:
        if answer.status_code == 200:
            assert answer.json()["choices"][0]["structured"]["valid"] is True
        else:
            assert "queue_full" == answer.json()["error"]["code"]
            assert 0 < int(answer.headers["retry-after-ms"]) <= 120_000


def test_retries_of_the_sdk(crowded: Any) -> None:
    """The same crowd, each with the SDK's own retries: all are served in the end."""

    async def ask() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{crowded.url}/v1", api_key="local", max_retries=6) as client:
            calls = (client.completions.create(**BODY, extra_body=LONG) for _ in range(CLIENTS))
            return await asyncio.gather(*calls)

    assert CLIENTS == sum(answer.choices[0].finish_reason == "stop" for answer in asyncio.run(ask()))


def test_memory_is_flat(crowded: Any) -> None:
    """Four hundred requests after the first two hundred add next to nothing, and leave no file open."""
    process = psutil.Process(crowded.process.pid)

    async def ask(count: int) -> None:
        numbers = iter(range(count))

        async def one(client: httpx.AsyncClient) -> None:
            for number in numbers:
                response = await client.post("/v1/completions", json=BODY | SHORT | {"seed": number})
                assert 200 == response.status_code

        async with httpx.AsyncClient(base_url=crowded.url, timeout=LIMIT_S, limits=LIMITS) as client:
            await asyncio.gather(*(one(client) for _ in range(16)))

    asyncio.run(ask(200))
    before = process.memory_info().rss
    asyncio.run(ask(400))
    assert process.memory_info().rss - before < LEAK_BYTES


def test_clients_that_dawdle(crowded: Any) -> None:
    """Ten that stop in the middle of a body and ten that read nothing of a stream delay nobody else."""
    host, port = crowded.url.removeprefix("http://").split(":")
    whole = request_bytes(BODY | LONG | {"stream": True, "n": 4})
    with ExitStack() as stack:
        for sent in [whole[:-10]] * 10 + [whole] * 10:
            connection = stack.enter_context(socket.create_connection((host, int(port)), timeout=LIMIT_S))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(sent)
        with httpx.Client(base_url=crowded.url, timeout=LIMIT_S) as client:
            for seed in range(10):
                response = client.post("/v1/completions", json=BODY | SHORT | {"seed": seed})
                assert 200 == response.status_code


def request_bytes(body: dict[str, Any]) -> bytes:
    """A whole request."""
    content = json.dumps(body).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(content) + content
