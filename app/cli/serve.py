"""`katagami serve`: settings and flags in, a running server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import socket
import tempfile
import time
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, cast

import typer
import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from app.cli.models_command import pull_missing
from app.cli.source import UsageError
from app.connections import MAX_HEAD_BYTES, PatientConnection
from app.gate import Gate
from app.logs import set_up_log
from app.main import create_app
from app.settings import Settings, unknown_variables
from app.words import reason_of
from engine import Engine, LoadedModel, load_model
from engine.models.llama.decoder import DEFAULT_CACHE_BYTES
from schemas_cache import DEFAULT_LIMITS, MEMORY_BYTES, SIZE_LIMIT_BYTES

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


def serve(
    host: Annotated[str | None, typer.Option(help="Address; 0.0.0.0 for all.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 takes a free one.", show_default="8000")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="A model's name, a folder or a .gguf; may be given several times.")
    ] = None,
    home: Annotated[Path | None, typer.Option(help="Folder for its cache.", show_default="~/.cache/katagami")] = None,
    cache_size_limit: Annotated[
        int | None, typer.Option(help="Bytes of compiled schemas on disk.", show_default=f"{SIZE_LIMIT_BYTES}")
    ] = None,
    cache_memory_limit: Annotated[
        int | None, typer.Option(help="Bytes of compiled schemas in memory.", show_default=f"{MEMORY_BYTES}")
    ] = None,
    kv_cache: Annotated[
        int | None, typer.Option(help="Bytes of keys and values, each model.", show_default=f"{DEFAULT_CACHE_BYTES}")
    ] = None,
    max_running: Annotated[int | None, typer.Option(help="Sequences decoded at once.", show_default="64")] = None,
    max_queued: Annotated[int | None, typer.Option(help="Requests that may wait.", show_default="256")] = None,
    batch_invariant: Annotated[
        bool | None, typer.Option("--batch-invariant", help="Have no text depend on what else runs, at some cost.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads for matrix products.", show_default="1")] = None,
    compile_timeout: Annotated[float | None, typer.Option(help="Seconds for one schema.", show_default="60")] = None,
    max_states: Annotated[int | None, typer.Option(help="States of one schema.", show_default="200000")] = None,
    max_frames: Annotated[int | None, typer.Option(help="Frames of one schema.", show_default="1000000")] = None,
    max_table: Annotated[int | None, typer.Option(help="Bytes of one schema's tables.", show_default="512 MiB")] = None,
    max_compile_work: Annotated[
        int | None, typer.Option(help="Microseconds of work for one schema.", show_default=f"{DEFAULT_LIMITS.max_work}")
    ] = None,
    max_state_work: Annotated[int | None, typer.Option(help="For one state.", show_default="500000")] = None,
    request_timeout: Annotated[
        float | None, typer.Option(help="Seconds for one request, waiting included.", show_default="none")
    ] = None,
    client_timeout: Annotated[
        float | None, typer.Option(help="Seconds for a client to send, or to read on.", show_default="60")
    ] = None,
    max_connections: Annotated[int | None, typer.Option(help="Connections at once.", show_default="1000")] = None,
    structured_output: Annotated[
        bool | None,
        typer.Option("--structured-output/--no-structured-output", help="Take requests with a response_format."),
    ] = None,
    grace: Annotated[
        float | None, typer.Option(help="Seconds for running requests at the end.", show_default="30")
    ] = None,
    api_key: Annotated[
        list[str] | None, typer.Option(help="KEY or NAME:KEY that lets clients in; may be given several times.")
    ] = None,
    api_key_file: Annotated[Path | None, typer.Option(help="File with such keys, one a line.")] = None,
    metrics_need_key: Annotated[
        bool | None, typer.Option("--metrics-need-key", help="Ask for a key at /metrics too.")
    ] = None,
    cors_origin: Annotated[
        list[str] | None, typer.Option(help="Origin whose pages may call, or *; may be given several times.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json.", show_default="text")] = None,
    log_prompts: Annotated[
        bool | None, typer.Option("--log-prompts", help="Write the bodies of requests to the log.")
    ] = None,
) -> None:
    """Serve models over HTTP, with OpenAI's routes.

    Every flag can also be set in the environment, as KATAGAMI_PORT and so on. Example:

        katagami serve --port 8000

        curl http://127.0.0.1:8000/v1/completions -H 'content-type: application/json' -d '{"model": "katagami-char",
        "prompt": "", "response_format": {"type": "choice", "choice": ["yes", "no"]}}'
    """
    run_server(read_settings(setting_flags(locals())))


def setting_flags(arguments: dict[str, Any]) -> dict[str, Any]:
    """The settings that a command's arguments name; those in seconds or bytes have their unit in the name."""
    given = {name: value for name, value in arguments.items() if value not in (None, [])}
    units = {f"{name}{unit}": name for name in given for unit in ("", "_s", "_bytes")}
    return {setting: given[name] for setting, name in units.items() if setting in Settings.model_fields}


def read_settings(flags: dict[str, Any]) -> Settings:
    """The settings with these on top of the environment's; raises `UsageError` that names the flag at fault."""
    try:
        return Settings(**flags)
    except ValidationError as error:
        fault = next((fault for fault in error.errors() if fault["loc"][0] in flags), None)
        if fault is None:
            raise
        flag = str(fault["loc"][0]).removesuffix("_s").removesuffix("_bytes").replace("_", "-")
        raise UsageError(f"--{flag}: {reason_of(fault)}") from None


def run_server(settings: Settings) -> None:
    """Listen until told to stop; exits with 2 where the models cannot be loaded."""
    set_up_log(settings.log_level, settings.log_format)
    warn_of_settings(settings)
    allow_connections(settings.max_connections)
    app = create_app(settings, Engine(settings.engine_config(), load=partial(load_or_pull, settings)))
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
        raise typer.Exit(2)
    log.info("stopped at once, by a second signal" if server.force_exit else "stopped")


def load_or_pull(settings: Settings, name: str) -> LoadedModel:
    """Load a model, fetched first where it is missing and can be; the server answers `/health` meanwhile."""
    pull_missing(settings.home, (name,))
    return load_model(name, settings.home, settings.kv_cache_bytes)


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
