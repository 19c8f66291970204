"""`katagami serve`: settings and flags in, a running server."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
import uvicorn
from pydantic import ValidationError

from app.cli.source import UsageError
from app.gate import Gate
from app.main import create_app
from app.settings import Settings, unknown_variables
from app.words import reason_of

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


def serve(
    host: Annotated[str | None, typer.Option(help="Address; 0.0.0.0 for all.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.", show_default="8000")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A shipped model's name, or a folder; may be given several times.")
    ] = None,
    home: Annotated[Path | None, typer.Option(help="Folder for its cache.", show_default="~/.cache/katagami")] = None,
    max_running: Annotated[int | None, typer.Option(help="Sequences decoded at once.", show_default="64")] = None,
    max_queued: Annotated[int | None, typer.Option(help="Requests that may wait.", show_default="256")] = None,
    compile_timeout: Annotated[float | None, typer.Option(help="Seconds for one schema.", show_default="60")] = None,
    grace: Annotated[
        float | None, typer.Option(help="Seconds for running requests at the end.", show_default="30")
    ] = None,
) -> None:
    """Serve models over HTTP, with OpenAI's routes.

    Every flag can also be set in the environment, as KATAGAMI_PORT and so on. Example:

        katagami serve --port 8000

        curl http://127.0.0.1:8000/v1/completions -H 'content-type: application/json' -d '{"model": "katagami-char",
        "prompt": "", "response_format": {"type": "choice", "choice": ["yes", "no"]}}'
    """
    flags: dict[str, Any] = {"host": host, "port": port, "home": home, "model": tuple(model) if model else None}
    flags |= {"max_running": max_running, "max_queued": max_queued, "compile_timeout_s": compile_timeout}
    flags |= {"grace_s": grace}
    run_server(read_settings({name: value for name, value in flags.items() if value is not None}))


def read_settings(flags: dict[str, Any]) -> Settings:
    """The settings with these on top of the environment's; raises `UsageError` that names the flag at fault."""
    try:
        return Settings(**flags)
    except ValidationError as error:
        fault = next((fault for fault in error.errors() if fault["loc"][0] in flags), None)
        if fault is None:
            raise
        flag = str(fault["loc"][0]).removesuffix("_s").replace("_", "-")
        raise UsageError(f"--{flag}: {reason_of(fault)}") from None


def run_server(settings: Settings) -> None:
    """Listen until told to stop; exits with 2 where the models cannot be loaded."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    warn_of_settings(settings)
    app = create_app(settings)
    gate: Gate = app.state.gate
    listener = listen(settings.host, settings.port)
    url = url_of(listener)
    log.info("listening on %s, loading %s", url, ", ".join(settings.model))
    gate.on_loaded = lambda: announce(gate, url)
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=LAST_ANSWERS_S)
    server = DrainingServer(config, gate, settings)
    server.run(sockets=[listener])
    if gate.failure:  # the log has it
        raise typer.Exit(2)
    log.info("stopped at once, by a second signal" if server.force_exit else "stopped")


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
