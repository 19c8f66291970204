"""The app behind a socket, from the first signal to the last.

In: settings, and how models are loaded. Out: a server that answers until it is told to stop. Cost: a look at the clock
ten times a second. At the first signal nothing new begins, and what runs may finish within the grace; at the second
all ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
import tempfile
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import cast

import typer
import uvicorn
from fastapi import FastAPI

from app.connections import MAX_HEAD_BYTES, PatientConnection
from app.gate import Gate
from app.logs import set_up_log
from app.main import create_app
from app.settings import Settings, unknown_variables
from engine import Engine, LoadedModel

LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")
OTHER_FILES = 256  # open files beside the connections: the cache's, the log, what libraries hold
KEEP_ALIVE_S = 30  # longer than the official SDKs keep an idle connection, so that they never find one just closed
LAST_ANSWERS_S = 5  # for what the end of the grace cut short to be answered
LAST_MOMENT_S = 1.0  # the same, after a second signal
log = logging.getLogger("katagami")


class DrainingServer(uvicorn.Server):
    """A server that, told to stop, still answers: new work gets 503 while what runs may finish within the grace."""

    def __init__(self, config: uvicorn.Config, gate: Gate, settings: Settings) -> None:
        super().__init__(config)
        self.gate, self.settings = gate, settings
        self.deadline: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn's signature
        """Begin to drain at the first signal; stop at once at the second."""
        if self.gate.draining:
            self.force_exit = True
            self.deadline = time.monotonic() + LAST_MOMENT_S
            logging.getLogger("uvicorn.error").disabled = True  # of all that is cut short it would log a traceback
            return
        self.gate.draining = True
        self.deadline = time.monotonic() + self.settings.grace_s

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: see whether it is time to stop."""
        late = self.deadline is not None and time.monotonic() >= self.deadline
        if late or self.force_exit:
            self.gate.expire()
        if late or self.gate.failure or (self.gate.draining and not self.gate.running):
            self.should_exit = True
        return await super().on_tick(counter)


def run_server(settings: Settings, load: Callable[[str], LoadedModel]) -> bool:
    """Listen until told to stop; whether the models could be loaded, by their names."""
    set_up_log(settings.log_level, settings.log_format)
    warn_of_settings(settings)
    allow_connections(settings.max_connections)
    app = create_app(settings, Engine(settings.engine_config(), load))
    gate: Gate = app.state.gate
    listener = listen(settings.host, settings.port)
    url = url_of(listener)
    log.info("listening on %s, loading %s", url, ", ".join(settings.model))
    if not (settings.api_key or settings.api_key_file) and settings.host not in LOCAL_HOSTS:
        log.warning("whoever reaches %s may use this server; --api-key asks for a key", settings.host)
    gate.on_loaded = lambda: announce(gate, url)
    config = server_config(app, settings)
    server = DrainingServer(config, gate, settings)
    server.run(sockets=[listener])
    if gate.failure:  # the log has it
        return False
    log.info("stopped at once, by a second signal" if server.force_exit else "stopped")
    return True


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """The web server's own settings."""
    connection = partial(
        PatientConnection, patience_s=settings.client_timeout_s, max_connections=settings.max_connections
    )
    return uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", connection),
        ws="none",
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=LAST_ANSWERS_S,
    )


def allow_connections(count: int) -> None:
    """Have the system allow as many open files as the connections need, where it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def warn_of_settings(settings: Settings) -> None:
    """Say in the log what was probably meant otherwise."""
    for name, nearest in unknown_variables(os.environ).items():
        log.warning("%s is not a setting%s", name, f"; the nearest is {nearest}" if nearest else "")
    folder = settings.cache_folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or error
        log.warning(
            "compiled schemas will not survive a restart: %s cannot be written (%s); name another folder with --home",
            folder,
            reason,
        )


def announce(gate: Gate, url: str) -> None:
    """Say on standard output that work is taken; where nobody reads that, the server goes on."""
    with contextlib.suppress(OSError):
        typer.echo(f"katagami: serving {', '.join(gate.engine.models)} on {url}")


def url_of(listener: socket.socket) -> str:
    """What a client's base URL has to be."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; raises `OSError` that names the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    # Accepted sockets inherit it. asyncio sets it only on sockets that it has made itself, and without it each answer
    # waits 40 ms for the client's delayed acknowledgement of the headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
