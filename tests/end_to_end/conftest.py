"""A server started as a user starts it: the installed command, in a process of its own, on a free port."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

START_LIMIT_S = 60.0
KATAGAMI = Path(sys.executable).with_name("katagami")
FAULTY = Path(__file__).with_name("faulty_server.py")


@dataclass(frozen=True)
class Server:
    """A running server; `url` has no trailing slash and no `/v1`; the file `log` has its standard error."""

    url: str
    process: subprocess.Popen[str]
    log: Path


@contextmanager
def running_server(home: Path, *flags: str, faults: str = "") -> Iterator[Server]:
    """Start a server, wait until it is ready, and stop it at the end; with `faults` those of faulty_server.py."""
    home.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, str(FAULTY), faults] if faults else [str(KATAGAMI)]
    command = [*program, "serve", "--port", "0", "--home", str(home), *flags]
    with (
        (home / "log").open("a") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            url = process.stdout.readline().split()[-1].removesuffix("/v1") if process.stdout else ""
            wait_until_ready(url)
            yield Server(url, process, home / "log")
        finally:
            process.terminate()
            process.wait(START_LIMIT_S)


def wait_until_ready(url: str) -> None:
    """Ask until `/ready` is 200."""
    give_up = time.monotonic() + START_LIMIT_S
    while httpx.get(f"{url}/ready").status_code != 200:
        assert time.monotonic() < give_up
        time.sleep(0.05)


Start = Callable[..., AbstractContextManager[Server]]


@pytest.fixture(scope="session")
def start_server() -> Start:
    """`running_server`, for tests that start their own."""
    return running_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that need no other."""
    with running_server(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    """The official SDK, without retries, so that every failure shows."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="local", max_retries=0) as client:
        yield client


class Caller:
    """Calls the SDK by the name of a method; what it gives in pieces comes back as a list of them."""

    def __init__(self, url: str, **options: Any) -> None:
        self.options = {"base_url": f"{url}/v1", "api_key": "local", "max_retries": 0} | options

    def call(self, method: str, **fields: Any) -> Any:
        """The result, or all pieces of it."""
        with openai.OpenAI(**self.options) as client:
            result = attrgetter(method)(client)(**fields)
            return list(result) if isinstance(result, openai.Stream) else result

    def events(self, **fields: Any) -> tuple[list[Any], Any]:
        """All events of the chat's stream helper, and the completion that it puts together."""
        with openai.OpenAI(**self.options) as client, client.chat.completions.stream(**fields) as stream:
            return list(stream), stream.get_final_completion()


class AsyncCaller(Caller):
    """The same with the asynchronous client."""

    def call(self, method: str, **fields: Any) -> Any:
        """The result, or all pieces of it."""

        async def ask() -> Any:
            async with openai.AsyncOpenAI(**self.options) as client:
                result = await attrgetter(method)(client)(**fields)
                return [piece async for piece in result] if isinstance(result, openai.AsyncStream) else result

        return asyncio.run(ask())

    def events(self, **fields: Any) -> tuple[list[Any], Any]:
        """All events of the chat's stream helper, and the completion that it puts together."""

        async def ask() -> tuple[list[Any], Any]:
            async with (
                openai.AsyncOpenAI(**self.options) as client,
                client.chat.completions.stream(**fields) as stream,
            ):
                return [event async for event in stream], await stream.get_final_completion()

        return asyncio.run(ask())


@pytest.fixture(params=[Caller, AsyncCaller], ids=["sync", "async"])
def caller(request: pytest.FixtureRequest, server: Server) -> Caller:
    """Both clients of the SDK, one after the other, on the common server."""
    made: Caller = request.param(server.url)
    return made


@pytest.fixture(params=[Caller, AsyncCaller], ids=["sync", "async"])
def caller_of(request: pytest.FixtureRequest) -> Callable[..., Caller]:
    """The same for servers that a test starts."""
    made: Callable[..., Caller] = request.param
    return made
