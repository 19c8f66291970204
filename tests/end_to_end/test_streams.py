"""Streams and clients as they are in the world: that leave, wait, stall, come in crowds; and servers that fail."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

FORMAT = {"type": "json_schema", "json_schema": {"name": "entry", "schema": {"enum": ["yes", "no"]}}}
SLOW = {"response_format": {"type": "regex", "regex": "[a-z]{9000}"}}
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def small_server(start_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server with four places."""
    with start_server(tmp_path_factory.mktemp("small"), "--max-running", "4") as server:
        yield server


def metric(url: str, name: str) -> float:
    """One figure of `/metrics`."""
    text = httpx.get(f"{url}/metrics").text
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


def wait_until_idle(url: str, limit_s: float = 5.0) -> None:
    """Until no sequence has a slot."""
    give_up = time.monotonic() + limit_s
    while metric(url, "katagami_running"):
        assert time.monotonic() < give_up
        time.sleep(0.02)


def is_served(url: str) -> bool:
    """Whether the next request is answered as ever."""
    body = {"model": "katagami-char", "prompt": "", "response_format": FORMAT}
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=20)
    return bool(answer.json()["choices"][0]["structured"]["valid"])


def test_timeout_of_the_client(caller_of: Any, small_server: Any) -> None:
    """Row 24: the SDK gives up after half a second, and the places are free."""
    caller = caller_of(small_server.url, timeout=0.5)
    for method, prompt in (("completions", {"prompt": ""}), ("chat.completions", {"messages": MESSAGES})):
        fields = {"model": "katagami-char", "n": 8, "max_tokens": 100_000, "extra_body": SLOW}
        with pytest.raises(openai.APITimeoutError):
            caller.call(f"{method}.create", **fields, **prompt)
        wait_until_idle(small_server.url)
    assert is_served(small_server.url)


def test_breaking_out_of_a_stream(small_server: Any) -> None:
    """Row 25: a stream that is left early frees its places, and the next request is served on them."""
    fields: dict[str, Any] = {"model": "katagami-char", "n": 8, "max_tokens": 100_000, "extra_body": SLOW}
    with (
        openai.OpenAI(base_url=f"{small_server.url}/v1", api_key="local", max_retries=0) as client,
        client.chat.completions.create(**fields, messages=MESSAGES, stream=True) as stream,
    ):
        for chunk in stream:
            if chunk.choices[0].delta.content:
                break
    assert is_served(small_server.url)
    wait_until_idle(small_server.url)


@pytest.mark.parametrize("read_first", [True, False])
def test_killed_client(small_server: Any, read_first: bool) -> None:
    """Row 25: a connection that is reset, before or in the middle of a stream, frees all its rows at once."""
    body = {"model": "katagami-char", "messages": MESSAGES, "n": 8, "max_tokens": 100_000, "stream": True} | SLOW
    connection = connect_and_ask(small_server.url, body)
    while metric(small_server.url, "katagami_running") < 4:
        time.sleep(0.01)
    if read_first:
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset, as by a killed process
    connection.close()
    wait_until_idle(small_server.url, 1.0)
    assert is_served(small_server.url)
    assert "Traceback" not in small_server.log.read_text("utf-8")


def connect_and_ask(url: str, body: dict[str, Any]) -> socket.socket:
    """A connection of our own on which a chat was asked for."""
    host, port = url.removeprefix("http://").split(":")
    content = json.dumps(body).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: "
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(head + str(len(content)).encode() + b"\r\n\r\n" + content)
    return connection


def test_stalled_reader(small_server: Any) -> None:
    """A client that reads nothing harms nobody, and whoever reads later gets the whole text."""
    form = {"response_format": {"type": "regex", "regex": "[a-z]{3000}"}}
    body = {"model": "katagami-char", "messages": MESSAGES, "n": 4, "max_tokens": 100_000, "stream": True} | form
    with connect_and_ask(small_server.url, body) as connection:
        while not metric(small_server.url, "katagami_running"):
            time.sleep(0.01)
        wait_until_idle(small_server.url, 60.0)  # the engine is done, and nothing was read
        assert is_served(small_server.url)
        data = b""
        while b"data: [DONE]" not in data:
            data += connection.recv(1 << 20)
    pieces = re.findall(rb'"delta":\{"content":"([a-z]*)"\}', data)
    assert 4 * 3000 == sum(map(len, pieces))


def test_failure_in_the_middle(caller_of: Any, start_server: Any, tmp_path: Path) -> None:
    """Row 26: in a stream an `APIError` with its code and the request's id; plain a 500 that is not tried again."""
    with start_server(tmp_path, faults="step") as server:
        caller = caller_of(server.url, max_retries=2)
        for method, prompt in (("completions", {"prompt": ""}), ("chat.completions", {"messages": MESSAGES})):
            with pytest.raises(openai.APIError) as caught:
                caller.call(f"{method}.create", model="katagami-char", **prompt, stream=True)
            assert not isinstance(caught.value, openai.APIStatusError)
            assert "engine_error" == caught.value.code
            assert re.search("req_[0-9a-f]{32}", caught.value.message)
            with pytest.raises(openai.InternalServerError):
                caller.call(f"{method}.create", model="katagami-char", **prompt)
        assert 4 == len(re.findall(r"POST /v1/\S+ (?:200|500) in", server.log.read_text("utf-8")))
        assert is_served(server.url)  # its answer has fewer tokens


def test_crowd_with_one_new_schema(start_server: Any, tmp_path: Path) -> None:
    """Row 27: 20 calls at once, one compile, 20 results; a plain call waits for its schema as long as it takes."""

    async def ask(url: str) -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="local", max_retries=0) as client:
            fields: dict[str, Any] = {"model": "katagami-char", "messages": MESSAGES, "response_format": FORMAT}
            return await asyncio.gather(*(client.chat.completions.create(**fields) for _ in range(20)))

    with start_server(tmp_path, faults="slow_compile") as server:
        answers = asyncio.run(ask(server.url))
        assert 1 == server.log.read_text("utf-8").count("INFO katagami compiling\n")
    assert [True] * 20 == [answer.choices[0].structured["valid"] for answer in answers]


def test_slow_compile(start_server: Any, tmp_path: Path) -> None:
    """Headers come after two seconds, with a comment; what is found out later is told in the stream."""
    schema: dict[str, Any] = {"type": "string", "pattern": "(?=a)b"}
    bodies = [
        {"model": "katagami-char", "messages": MESSAGES, "stream": True, "response_format": form}
        for form in (FORMAT, {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    ]
    with start_server(tmp_path, faults="slow_compile") as server:
        texts = []
        for body in bodies:
            begun_s = time.monotonic()
            with httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=30) as response:
                assert (200, True) == (response.status_code, time.monotonic() - begun_s > 1.9)
                assert "x-schema-hash" not in response.headers
                texts.append((response.read().decode(), response.headers["x-request-id"]))
    (good, _), (bad, request_id) = texts
    assert good.startswith(": keep-alive\n\n")
    assert good.endswith("data: [DONE]\n\n")
    error = json.loads(bad.split("\n\n")[-2].removeprefix("data: "))["error"]
    assert ("invalid_json_schema", True) == (error["code"], request_id in error["message"])
    assert "[DONE]" not in bad


def test_deadline(start_server: Any, tmp_path: Path) -> None:
    """What takes too long ends: plain with 504, which is not tried again; streamed with an error in the stream."""
    form = {"response_format": {"type": "regex", "regex": "[a-z]{200}"}}
    body = {"model": "katagami-char", "messages": MESSAGES} | form
    with start_server(tmp_path, "--request-timeout", "2", faults="slow_step") as server:
        url = f"{server.url}/v1/chat/completions"
        plain = httpx.post(url, json=body, timeout=20)
        assert (504, "deadline_exceeded", "false") == (
            plain.status_code,
            plain.json()["error"]["code"],
            plain.headers["x-should-retry"],
        )
        streamed = httpx.post(url, json=body | {"stream": True}, timeout=20)
        assert (200, True) == (streamed.status_code, '"code":"deadline_exceeded"' in streamed.text)
        assert is_served(server.url)


def test_curl(server: Any) -> None:
    """Row 40: a stream is readable without any SDK, and every one of its lines is an event, a comment or empty."""
    body = {"model": "katagami-char", "messages": MESSAGES, "response_format": FORMAT, "stream": True}
    text = httpx.post(f"{server.url}/v1/chat/completions", json=body).text
    assert "\r" not in text
    blocks = text.removesuffix("\n\n").split("\n\n")
    assert all(block.startswith(("data: ", ": ")) and "\n" not in block for block in blocks)
    events = [block[6:] for block in blocks if block.startswith("data: ")]  # on a busy machine a comment comes first
    assert "[DONE]" == events[-1]
    content = "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events[:-1])
    assert json.loads(content) in ("yes", "no")
