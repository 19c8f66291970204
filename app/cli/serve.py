"""`katagami serve`: settings and flags in, a running server."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from app.cli.models_command import pull_missing
from app.cli.source import UsageError
from app.server import run_server
from app.settings import Settings
from app.words import reason_of
from engine import LoadedModel, load_model
from engine.config import KV_CACHE_BYTES
from schemas_cache import DEFAULT_LIMITS, MEMORY_BYTES, SIZE_LIMIT_BYTES


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
        int | None, typer.Option(help="Bytes of keys and values, each model.", show_default=f"{KV_CACHE_BYTES}")
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
    settings = read_settings(setting_flags(locals()))
    if not run_server(settings, partial(load_or_pull, settings)):
        raise typer.Exit(2)


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


def load_or_pull(settings: Settings, name: str) -> LoadedModel:
    """Load a model, fetched first where it is missing and can be; the server answers `/health` meanwhile."""
    pull_missing(settings.home, (name,))
    return load_model(name, settings.home, settings.kv_cache_bytes)
