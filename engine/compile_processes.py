"""Worker processes that compile: a compile function for the cache, whose work happens elsewhere.

In: a source, a vocabulary and limits. Out: what one of a few processes makes of them, as soon as one is free. Cost:
that of `compile_process`, and a lock.

Every schema goes to a worker, small ones too: which schema is small is known when it is compiled.

Rejected: one process for each compile, since starting costs more than most compiles; `concurrent.futures`, which takes
the whole pool down when one process dies.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Condition, Thread

from engine.compile_process import COMPILE, CompileProcess
from engine.errors import EngineFailedError
from schemas_cache import CompiledSchema, Limits, Source, Vocabulary
from schemas_cache.work import StoppedError

logger = logging.getLogger(__name__)

Key = tuple[str, str]  # the source's digest, the vocabulary's fingerprint


class CompileProcesses:
    """A compile function, as `compile_source`, that has its work done by processes.

    Parameters
    ----------
    count : int
        Processes at most; one is started by `warm`, the others when there is work for them.
    compile_name : str
        `module:function` that they compile with.
    """

    def __init__(self, count: int, compile_name: str = COMPILE) -> None:
        self._change = Condition()  # over the next four
        self._idle = [CompileProcess(compile_name) for _ in range(count)]  # the last one is taken first
        self._busy: dict[CompileProcess, Key | None] = {}
        self._in_line: dict[Key, bool] = {}  # compiles that wait for a process, and whether nobody waits for them
        self._closed = False
        self._finalizer = weakref.finalize(self, _close_all, self._idle)

    def __call__(self, source: Source, vocabulary: Vocabulary, *, limits: Limits) -> CompiledSchema:
        """Compile in a process that is free, or as soon as one is; raises as `CompileProcess.compile`."""
        with self._taken((source.digest, vocabulary.fingerprint)) as process:
            return process.compile(source, vocabulary, limits)

    def apart(self, source: Source, vocabulary: Vocabulary, *, limits: Limits) -> CompiledSchema:
        """Do as a call does, for one caller alone: `stop` is for the others that wait for the same schema."""
        with self._taken(None) as process:
            return process.compile(source, vocabulary, limits)

    def warm(self, vocabularies: Iterable[Vocabulary]) -> None:
        """Start a process in the background, and give it the vocabularies."""
        Thread(target=self._warm, args=(tuple(vocabularies),), name="warm", daemon=True).start()

    def stop(self, source: Source, vocabulary: Vocabulary) -> None:
        """Nobody waits for this compile any more."""
        key = source.digest, vocabulary.fingerprint
        with self._change:
            if key in self._in_line:
                self._in_line[key] = True
                self._change.notify_all()
            for process in (process for process, work in self._busy.items() if work == key):
                process.stop()

    def close(self) -> None:
        """End all processes, those at work too, and take no more work."""
        with self._change:
            self._closed = True
            at_work = list(self._busy)
            self._change.notify_all()
        for process in at_work:
            process.kill()
        self._finalizer()

    def _warm(self, vocabularies: tuple[Vocabulary, ...]) -> None:
        try:
            with self._taken(None) as process:
                process.prepare(vocabularies)
        except (EOFError, OSError, EngineFailedError) as error:
            logger.warning("a compile worker could not be started: %s", str(error) or "it ended at once")
        except StoppedError:  # closed before it began
            return

    @contextmanager
    def _taken(self, key: Key | None) -> Iterator[CompileProcess]:
        with self._change:
            process = self._next_process(key)
            self._busy[process] = key
        try:
            yield process
        finally:
            with self._change:
                del self._busy[process]
                if self._closed:
                    process.close()
                else:
                    self._idle.append(process)
                self._change.notify_all()

    def _next_process(self, key: Key | None) -> CompileProcess:
        """Wait for a process, as long as anybody waits for the compile; the lock is held."""
        if key is not None:
            self._in_line[key] = False
        self._change.wait_for(lambda: self._closed or self._idle or (key is not None and self._in_line[key]))
        dropped = key is not None and self._in_line.pop(key)
        if self._closed or dropped:
            raise StoppedError("the workers were closed" if self._closed else "nobody waited for it any more")
        return self._idle.pop()


def _close_all(processes: list[CompileProcess]) -> None:
    for process in processes:
        process.close()
