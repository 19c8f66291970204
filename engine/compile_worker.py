"""The inside of a worker process: schemas in over a pipe, tables out.

In: `Task`s and vocabularies, sent by `compile_process`. Out: an `Answer` for each task: the bytes of
`CompiledSchema.dump`, or the error, of the same class and with the same findings. Cost: the compile, and half a
millisecond for the way to and fro.

A thread reads the pipe while the main one compiles: so a worker ends at once when its parent is gone, however that
ended, and hears that nobody waits for its compile any more. Memory is bounded by the address space, from what the
worker takes when it begins: Linux ends an allocation beyond it with `MemoryError`. macOS knows no such limit; there the
counts of `schemas_cache.limits` alone bound what a compile takes.

The first mask, and the one behind what is forced before the first draw, are worked out here too, so that the decode
thread does not have to.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from engine.errors import unexpected
from schemas_cache import CompiledSchema, Finding, Limits, SchemaError, SchemaTooComplexError, Source, Vocabulary
from schemas_cache.token_index import token_index
from schemas_cache.work import StoppedError, Work, working

WORKER_EXTRA_BYTES = 256 << 20
"""Address space beside the tables: the grammar and the NFA on the way to them, and what an allocator keeps free."""

logger = logging.getLogger(__name__)

Compile = Callable[..., CompiledSchema]


@dataclass(frozen=True, slots=True)
class Task:
    """One compile; `number` tells it from those before."""

    number: int
    source: Source
    fingerprint: str
    limits: Limits


@dataclass(frozen=True, slots=True)
class Stop:
    """Nobody waits for this task any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Begun:
    """The task is at work: its time counts from here. Task 0 is the start of the process: from here on it reads."""

    number: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a task: tables and rows, or the error. `spent` says that the worker ends after it."""

    tables: bytes = b""
    rows: dict[bytes, bytes] = field(default_factory=dict)  # mask rows by digest
    error: Exception | None = None
    spent: bool = False


Message = Task | Stop | Vocabulary
RETIRES_AT = 0.5  # share of its memory that a worker may have kept of earlier compiles, before it ends after one


def main(descriptor: int, compile_name: str) -> None:
    """Serve the pipe with this descriptor until it closes; `compile_name` is `module:function`."""
    module, function = compile_name.split(":")
    Worker(Connection(descriptor), getattr(import_module(module), function)).run()


class Worker:
    """Compiles what comes over a pipe, one task after another.

    Parameters
    ----------
    pipe : Connection
        To the parent.
    compile_function : callable
        As `compile_source`.
    """

    def __init__(self, pipe: Connection, compile_function: Compile) -> None:
        self._pipe, self._compile = pipe, compile_function
        self._vocabularies: dict[str, Vocabulary] = {}
        self._messages: SimpleQueue[Task | Vocabulary] = SimpleQueue()
        self._stopped = -1  # the number of the latest task that nobody waits for
        self._base_bytes = 0  # address space before the first task, vocabularies included

    def run(self) -> None:
        """Work until the pipe closes, or memory is spent."""
        Thread(target=self._read, name="pipe", daemon=True).start()
        self._pipe.send(Begun(0))
        spent = False
        while not spent:
            message = self._messages.get()
            if isinstance(message, Vocabulary):
                self._vocabularies[message.fingerprint] = message
                token_index(message)
                self._base_bytes = address_space_bytes()
            else:
                self._pipe.send(Begun(message.number))
                answer = self._answer(message)
                self._pipe.send(answer)
                spent = answer.spent

    def _read(self) -> None:
        """Sort what comes; the end of the pipe ends the process, whatever the main thread is at."""
        try:
            while True:
                message: Message = self._pipe.recv()
                if isinstance(message, Stop):
                    self._stopped = message.number
                else:
                    self._messages.put(message)
        except (EOFError, OSError):
            os._exit(0)

    def _answer(self, task: Task) -> Answer:
        allowed_bytes = task.limits.max_memory_bytes + WORKER_EXTRA_BYTES
        bound_memory(self._base_bytes + allowed_bytes)
        try:
            answer = self._compiled(task)
        except (SchemaError, StoppedError) as error:
            answer = Answer(error=error)
        except MemoryError:
            answer = Answer(error=out_of_memory(task.limits.max_memory_bytes), spent=True)
        except Exception as error:
            logger.exception("compiling a schema failed")
            answer = Answer(error=unexpected(error, "compiling the schema failed: "))
        bound_memory(None)
        kept_bytes = address_space_bytes() - self._base_bytes
        return replace(answer, spent=answer.spent or kept_bytes > RETIRES_AT * allowed_bytes)

    def _compiled(self, task: Task) -> Answer:
        limits = task.limits

        def is_stopped() -> bool:
            return self._stopped >= task.number

        with working(Work(limits.max_work, limits.compile_timeout_s, is_stopped=is_stopped)):
            vocabulary = self._vocabularies[task.fingerprint]
            compiled = self._compile(task.source, vocabulary, limits=task.limits)
            warm(compiled)
            return Answer(compiled.dump(with_rows=False), compiled.computed_rows(0))


def warm(compiled: CompiledSchema) -> None:
    """Work out the rows that every sequence needs first."""
    matcher = compiled.matcher()
    matcher.mask()
    forced = matcher.forced()
    if forced:
        matcher.advance_bytes(forced)
        matcher.mask()


def out_of_memory(limit_bytes: int) -> SchemaTooComplexError:
    """What is told of a compile that took more memory than it may."""
    limit_mb, beside_mb = limit_bytes >> 20, WORKER_EXTRA_BYTES >> 20
    reason = f"compiling takes more than {limit_mb + beside_mb} MB of memory, and the limit is {limit_mb} MB of tables"
    return SchemaTooComplexError([Finding("#", "", reason, "simplify the schema")])


def address_space_bytes() -> int:
    """What the process takes of its address space; 0 where the system does not tell."""
    statistics = Path("/proc/self/statm")
    return int(statistics.read_text().split()[0]) * resource.getpagesize() if statistics.exists() else 0


def bound_memory(most_bytes: int | None) -> None:
    """Bound the address space; None takes the bound back. Does nothing where the system does not tell what is taken."""
    if address_space_bytes():
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        bounds = [bound for bound in (most_bytes, hard) if bound is not None and bound != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min(bounds, default=resource.RLIM_INFINITY), hard))


def command(descriptor: int, compile_name: str) -> list[str]:
    """How to start a worker: with the modules that this process finds, whatever its own main module is."""
    start = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main({descriptor}, {compile_name!r})"
    return [sys.executable, "-c", start]
