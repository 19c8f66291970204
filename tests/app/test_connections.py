"""Clients that are slow, stall, speak something else than HTTP, or are too many: each gets an answer or its end."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import uvicorn
from fastapi import FastAPI, Response

from app.main import create_app
from app.server import listen, server_config
from app.settings import Settings
from engine import Engine

PATIENCE_S = 0.3
ENDS_WITHIN_S = 10.0  # a bound for waiting, not for speed
LONG = 64 << 20  # bytes; no socket buffers as much
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"

Address = tuple[str, int]


@contextmanager
def serving(app: FastAPI, settings: Settings) -> Iterator[Address]:
    """The app behind the real web server, on a free port."""
    server = uvicorn.Server(server_config(app, settings))
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not app.state.gate.loaded_at:
                time.sleep(0.005)
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(ENDS_WITHIN_S)


@pytest.fixture
def address(engine: Any, tmp_path: Path) -> Iterator[Address]:
    """A server of little patience, for three connections."""
    settings = Settings(home=tmp_path, client_timeout_s=PATIENCE_S, max_connections=3)
    app = create_app(settings, cast("Engine", engine))
    app.add_api_route("/long", lambda: Response(b"x" * LONG))
    with serving(app, settings) as address:
        yield address


def connect(address: Address) -> socket.socket:
    """A connection that gives up waiting after a while."""
    return socket.create_connection(address, timeout=ENDS_WITHIN_S)


def answer_of(connection: socket.socket) -> tuple[int, dict[str, str], Any]:
    """What comes until the server closes: status, headers, body."""
    data = b""
    while part := connection.recv(1 << 16):
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), headers, json.loads(body)


def is_served(address: Address) -> bool:
    """Whether somebody else is."""
    url = f"http://{address[0]}:{address[1]}/v1/completions"
    return 200 == httpx.post(url, json={"model": "tiny", "prompt": "a"}, timeout=ENDS_WITHIN_S).status_code


@pytest.mark.parametrize("begun", [b"P", b"POST /v1/comple", HEAD])
def test_head_that_does_not_come(address: Address, begun: bytes) -> None:
    """A head that is not whole in time is 408, and the connection ends."""
    with connect(address) as connection:
        connection.sendall(begun)
        status, headers, body = answer_of(connection)
    assert (408, "request_timeout") == (status, body["error"]["code"])
    assert headers["x-request-id"] == headers["request-id"]


@pytest.mark.parametrize("asked", [b"", b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"])
def test_idle_connection(address: Address, asked: bytes) -> None:
    """A connection over which nothing comes, at the start or after an answer, is closed without a word."""
    with connect(address) as connection:
        connection.sendall(asked)
        data = b""
        while part := connection.recv(1 << 16):
            data += part
    assert asked.count(b"GET") == data.count(b"HTTP/1.1 ")


def test_head_by_drips(address: Address) -> None:
    """Each byte alone does not begin the wait anew; others are served meanwhile."""
    with connect(address) as connection:
        assert is_ended_by_dripping(connection, HEAD)
        assert is_served(address)


def is_ended_by_dripping(connection: socket.socket, data: bytes) -> bool:
    """Send a byte at a time, until the server has had enough."""
    give_up_s = time.monotonic() + ENDS_WITHIN_S
    try:
        while time.monotonic() < give_up_s:
            for byte in data:
                connection.sendall(bytes([byte]))
                time.sleep(0.02)
    except OSError:
        return True
    return False


@pytest.mark.parametrize("length", [b"content-length: 40\r\n", b"transfer-encoding: chunked\r\n"])
def test_body_that_does_not_come(address: Address, engine: Any, length: bytes) -> None:
    """A body that is not whole in time is 408, says that trying again is of no use, and closes."""
    with connect(address) as connection:
        connection.sendall(HEAD + length + b"\r\n")
        status, headers, body = answer_of(connection)
    assert (408, "request_timeout", "false") == (status, body["error"]["code"], headers["x-should-retry"])
    assert [] == engine.requests


def test_body_by_drips(address: Address) -> None:
    """One byte now and then does not keep a request alive."""
    with connect(address) as connection:
        connection.sendall(HEAD + b"content-length: 1000000\r\n\r\n")
        connection.settimeout(0.02)
        data = b""
        give_up_s = time.monotonic() + ENDS_WITHIN_S
        while not data:
            connection.sendall(b" ")
            assert time.monotonic() < give_up_s
            try:
                data = connection.recv(1 << 16)
            except TimeoutError:
                assert is_served(address)
    assert data.startswith(b"HTTP/1.1 408 ")


def test_reader_that_stalls(address: Address) -> None:
    """Who reads nothing of a long answer loses the connection before all of it was sent."""
    with connect(address) as connection:
        connection.sendall(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
        time.sleep(3 * PATIENCE_S)
        assert is_served(address)
        size = 0
        try:
            while part := connection.recv(1 << 20):
                size += len(part)
        except ConnectionError:
            pass
    assert size < LONG


def test_reader_that_keeps_up(address: Address) -> None:
    """Who reads slowly but steadily gets all of it, in more time than one wait."""
    with connect(address) as connection:
        connection.sendall(b"GET /long HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        size, begun_s = 0, time.monotonic()
        while part := connection.recv(1 << 20):
            size += len(part)
            time.sleep(0.01)
    assert size > LONG
    assert time.monotonic() - begun_s > PATIENCE_S


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "invalid_http"),
        (b"hello\r\n\r\n", 400, "invalid_http"),
        (b"GET / HTTP/1.1\r\nbad header\r\n\r\n", 400, "invalid_http"),
        (b"GET /health HTTP/1.1\r\nhost: x\r\ncookie: " + b"x" * 700_000 + b"\r\n\r\n", 431, "headers_too_large"),
    ],
)
def test_no_http(address: Address, sent: bytes, status: int, code: str) -> None:
    """What cannot be read is told in the form of all errors."""
    with connect(address) as connection:
        connection.sendall(sent)
        found, headers, body = answer_of(connection)
    assert (status, code, "close") == (found, body["error"]["code"], headers["connection"])
    assert {"message", "type", "param", "code"} == set(body["error"])


def test_body_that_is_no_http(address: Address, engine: Any) -> None:
    """A chunk without a length ends the request."""
    with connect(address) as connection:
        connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\nnonsense\r\n")
        assert 400 == answer_of(connection)[0]
    assert [] == engine.requests
    assert is_served(address)


def test_too_many_connections(address: Address) -> None:
    """Beyond the limit work is refused with a time to come back, health is still told, and places come free again."""
    with ExitStack() as open_connections:
        for _ in range(3):
            open_connections.enter_context(connect(address))
        time.sleep(0.05)
        url = f"http://{address[0]}:{address[1]}"
        refused = httpx.post(f"{url}/v1/completions", json={"model": "tiny", "prompt": "a"})
        assert (503, "too_many_connections") == (refused.status_code, refused.json()["error"]["code"])
        assert ("1", "close") == (refused.headers["retry-after"], refused.headers["connection"])
        assert 200 == httpx.get(f"{url}/health").status_code
    give_up_s = time.monotonic() + ENDS_WITHIN_S
    while not is_served(address):
        assert time.monotonic() < give_up_s


def test_connection_is_kept(address: Address) -> None:
    """Requests one after another over one connection, also two sent at once."""
    request = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    with connect(address) as connection:
        data = b""
        for sent, expected in ((request, 1), (request, 2), (2 * request, 4)):
            connection.sendall(sent)
            while data.count(b'{"status":"ok"}') < expected:
                data += connection.recv(1 << 16)
    assert 4 == data.count(b"HTTP/1.1 200 ")
