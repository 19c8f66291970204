"""Schemas that are compiled before anybody needs them.

In: a model and a source. Out: what compiling came to, or that it is still going on. Cost: that of a request for no
tokens: the schema takes its place in the same queue, under the same limits, as those of ordinary requests.

One that nobody waits for goes on when its client is gone, and ends with the server. How it ended is not kept: whoever
asks again is told anew.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fastapi import Request

from app.gate import Gate
from engine import Request as EngineRequest
from engine import Result, SchemaUse
from schemas_cache import Source

BRIEF_S = 0.1  # what a client that does not want to wait still waits: known and simple schemas are ready by then


@dataclass(frozen=True, slots=True)
class Tables:
    """What one compile makes: a schema has tables for each model, and for each set of options."""

    schema_hash: str
    model_name: str
    digest: str  # of the source, options included


class Prewarming:
    """One per server; used on the event loop only."""

    def __init__(self, gate: Gate, deadline_s: float | None) -> None:
        self._gate, self._deadline_s = gate, deadline_s
        self._tasks: dict[Tables, asyncio.Task[Result]] = {}  # compiles that nobody waits for

    @property
    def compiling(self) -> tuple[str, ...]:
        """Hashes of the schemas that are being compiled in the background, the latest first."""
        return tuple(dict.fromkeys(tables.schema_hash for tables in reversed(self._tasks)))

    async def compile(self, request: Request, model_name: str, source: Source) -> SchemaUse:
        """Compile and wait; raises as `Gate.generate`."""
        return _use(await self._gate.generate(request, model_name, self._asked(source)))

    async def begin(self, model_name: str, source: Source) -> SchemaUse | None:
        """Compile; None where that takes longer than a moment. Raises what is found wrong within it."""
        tables = Tables(source.schema_hash, model_name, source.digest)
        task = self._tasks.get(tables) or self._start(tables, source)
        done, _ = await asyncio.wait({task}, timeout=BRIEF_S)
        return _use(task.result()) if done else None

    def _start(self, tables: Tables, source: Source) -> asyncio.Task[Result]:
        work = self._gate.run(None, self._gate.engine.generate(tables.model_name, self._asked(source)))
        task = self._tasks[tables] = asyncio.create_task(work)
        task.add_done_callback(lambda task: self._forget(tables, task))
        return task

    def _forget(self, tables: Tables, task: asyncio.Task[Result]) -> None:
        if not task.cancelled():
            task.exception()  # seen: where somebody still waits it is raised there
        self._tasks.pop(tables, None)

    def _asked(self, source: Source) -> EngineRequest:
        return EngineRequest(
            prompts=((),), max_tokens=0, source=source, on_limit="truncate", deadline_s=self._deadline_s
        )


def _use(result: Result) -> SchemaUse:
    if result.schema is None:
        raise TypeError("a request with a source came back without its schema")
    return result.schema
