"""`katagami serve`: settings and flags in, a running server."""

from __future__ import annotations

import logging
import socket
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
import uvicorn

from app.gate import Gate
from app.main import create_app
from app.settings import Settings

LAST_ANSWERS_S = 5  # for what the end of the grace cut short to be answered
log = logging.getLogger("katagami")


class DrainingServer(uvicorn.Server):
    """A server that, told to stop, still answers: new work gets 503 while what runs may finish within the grace."""

    def __init__(self, config: uvicorn.Config, gate: Gate, settings: Settings) -> None:
        super().__init__(config)
        self.gate, self.settings = gate, settings
        self.deadline: float | None = None
        self.announced = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain at the first signal; stop at once at the second."""
        if self.gate.draining:
            super().handle_exit(sig, frame)
            return
        self.gate.draining = True
        self.deadline = time.monotonic() + self.settings.grace_s

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: say once that the models are there; see whether it is time to stop."""
        if self.gate.loaded_at and not self.announced:
            self.announced = True
            typer.echo(f"katagami: serving {', '.join(self.gate.engine.models)} on {self._url()}")
        late = self.deadline is not None and time.monotonic() >= self.deadline
        if late:
            self.gate.expire()
        if late or self.gate.failure or (self.gate.draining and not self.gate.running):
            self.should_exit = True
        return await super().on_tick(counter)

    def _url(self) -> str:
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"


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
    run_server(Settings(**{name: value for name, value in flags.items() if value is not None}))


def run_server(settings: Settings) -> None:
    """Listen until told to stop; exits with 2 where the models cannot be loaded."""
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    app = create_app(settings)
    listener = listen(settings.host, settings.port)
    config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=LAST_ANSWERS_S)
    gate: Gate = app.state.gate
    DrainingServer(config, gate, settings).run(sockets=[listener])
    if gate.failure:  # the log has it
        raise typer.Exit(2)


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
