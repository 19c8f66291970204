"""A server started as a user starts it: the installed command, in a process of its own, on a free port."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

START_LIMIT_S = 60.0
KATAGAMI = Path(sys.executable).with_name("katagami")


@dataclass(frozen=True)
class Server:
    """A running server; `url` has no trailing slash and no `/v1`; the file `log` has its standard error."""

    url: str
    process: subprocess.Popen[str]
    log: Path


@contextmanager
def running_server(home: Path, *flags: str) -> Iterator[Server]:
    """Start a server, wait until it is ready, and stop it at the end."""
    home.mkdir(parents=True, exist_ok=True)
    command = [str(KATAGAMI), "serve", "--port", "0", "--home", str(home), *flags]
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
