"""Compiles schemas off the step's thread and off the event loop; a request queues once its schema is ready.

In: a source, a vocabulary, a time limit and whom to tell. Out: `Lookup`, or the error that compiling ended with. Cost:
a thread for each compile that may run at once, and one in front of them, which hashes the schema and answers at once
where it was seen before: a request whose schema is in memory never waits behind those that are new.

Equal schemas compile once: `SchemaCache` lets one caller compile and the others wait for it. Whatever a compile raises,
a bug included, is handed to the request that asked, and nothing is kept of it: a retry compiles again.

Rejected: an `asyncio` executor, since the command line has no event loop, and processes, since what is learnt while
decoding would have to travel back.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from time import monotonic

from engine.errors import EngineFailedError
from schemas_cache import CompileTimeoutError, Finding, KatagamiError, Lookup, SchemaCache, Source, Vocabulary

SEEN_SCHEMAS = 4096  # remembered as seen before; one that was forgotten waits among the new ones, no more

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """One request's wish, and whom to tell; `done` is called once, on a thread of the pool."""

    source: Source
    vocabulary: Vocabulary
    timeout_s: float
    deadline_s: float
    done: Callable[[Lookup | Exception], None]


class CompilerPool:
    """Threads that fetch compiled schemas.

    Parameters
    ----------
    cache : SchemaCache
        Where they come from.
    workers : int
        New schemas compiled at the same time.
    """

    def __init__(self, cache: SchemaCache, workers: int) -> None:
        self._cache = cache
        self._front = ThreadPoolExecutor(1, thread_name_prefix="schemas")
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="compile")
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._lock = Lock()  # over `_seen`

    def submit(
        self, source: Source, vocabulary: Vocabulary, timeout_s: float, done: Callable[[Lookup | Exception], None]
    ) -> None:
        """Fetch a compiled schema within `timeout_s` from now, and call `done` with it or with the error.

        Raises
        ------
        RuntimeError
            When the pool was stopped.
        """
        self._front.submit(self._route, Order(source, vocabulary, timeout_s, monotonic() + timeout_s, done))

    def stop(self) -> None:
        """Drop what has not begun; a compile under way ends by its own limits, and then calls back."""
        for pool in (self._front, self._workers):
            pool.shutdown(wait=False, cancel_futures=True)

    def _route(self, order: Order) -> None:
        try:
            with self._lock:
                seen = _key(order) in self._seen
            if not seen:
                self._workers.submit(self._answer, order)
        except Exception as error:
            order.done(_failure(error))
            return
        if seen:
            self._answer(order)

    def _answer(self, order: Order) -> None:
        try:
            outcome: Lookup | Exception = self._fetch(order)
        except KatagamiError as error:
            outcome = error
        except Exception as error:
            outcome = _failure(error)
        order.done(outcome)

    def _fetch(self, order: Order) -> Lookup:
        left_s = order.deadline_s - monotonic()
        try:
            if left_s <= 0:
                raise TimeoutError
            lookup = self._cache.get(order.source, order.vocabulary, left_s)
        except TimeoutError as error:
            finding = Finding("#", "", f"not compiled within {order.timeout_s:g} s", "try again, or allow more time")
            raise CompileTimeoutError([finding]) from error
        with self._lock:
            self._seen[_key(order)] = None
            self._seen.move_to_end(_key(order))
            if len(self._seen) > SEEN_SCHEMAS:
                self._seen.popitem(last=False)
        return lookup


def _key(order: Order) -> tuple[str, str]:
    return order.source.digest, order.vocabulary.fingerprint


def _failure(error: Exception) -> EngineFailedError:
    logger.error("compiling a schema failed", exc_info=error)
    return EngineFailedError(f"compiling the schema failed: {type(error).__name__}: {error}")
