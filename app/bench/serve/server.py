"""Our own server, started for a measurement and stopped after it; what its metrics say of its steps.

In: a model's name, or the address of a server that runs. Out: its address; seconds by stage. Cost: a start of some
seconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from prometheus_client.parser import text_string_to_metric_families

from app.bench.serve.client import Server, ServerError

STOP_S = 30.0
PROGRAM = "from app.cli import main; main()"

StageSeconds = dict[str, float]


@contextmanager
def own_server(model: str) -> Iterator[str]:
    """A server with this model on a free port, in a process of its own; its address. For the main thread only.

    Raises
    ------
    ServerError
        When it does not start; it has said on standard error why.
    """
    command = [sys.executable, "-c", PROGRAM, "serve", "--host", "127.0.0.1", "--port", "0", "--model", model]
    environment = {"KATAGAMI_LOG_LEVEL": "warning", **os.environ}
    with (
        _stopped_by_sigterm(),
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process,  # noqa: S603  # our own words
    ):
        try:
            told = process.stdout.readline().split() if process.stdout else []
            if not told:
                raise ServerError(f"no server with the model {model} could be started")
            yield told[-1]
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end this process as an exception does, so that the server does not outlive it."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def stage_seconds(server: Server) -> StageSeconds:
    """How long the steps of its model have taken so far, by stage; empty for a server that does not say."""
    response = httpx.get(f"{server.url.removesuffix('/v1')}/metrics", trust_env=False)
    if response.status_code != httpx.codes.OK:
        return {}
    return {
        sample.labels["stage"]: sample.value
        for family in text_string_to_metric_families(response.text)
        if family.name == "katagami_step_seconds"
        for sample in family.samples
        if sample.labels.get("model") == server.model
    }
