"""Compiles schemas off the step's thread and off the event loop; a request queues once its schema is ready.

In: a source, a vocabulary, a time limit and whom to tell. Out: `Lookup`, or the error that compiling ended with. Cost:
a thread for each compile that may run at once, which waits for its worker process; one in front of them, and one that
watches the clock.

The thread in front hashes the schema and answers at once what is in memory or on disk, and what failed in the last
minute: such a request never waits behind those that are new. A new schema gets a `Flight`; requests for an equal one
board it, instead of taking a worker each, and are told what it came to. Each has its own time limit, and may leave: it
then hears nothing more. A flight that everybody left is dropped before it has begun, and stopped afterwards. A flight
may take as long as the most patient of those who were there when it began; who came later and has time left flies
again.

What a schema is refused for is remembered for a minute, in memory alone, so that asking again costs nothing. A time
limit that was broken answers those who have hardly more time than that. A fault that is not the schema's (a worker that
died, a bug) is told to the requests that asked, and nothing is kept of it: the next one compiles again.

Rejected: an executor, whose threads keep the process from ending until their compiles do; leaving the sharing of equal
compiles to `SchemaCache`, which is for callers that have threads to wait with.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from threading import Condition, Thread
from time import monotonic

from engine.compile_processes import CompileProcesses
from engine.errors import EngineFailedError, unexpected
from schemas_cache import (
    CompileTimeoutError,
    Finding,
    KatagamiError,
    Lookup,
    SchemaCache,
    SchemaError,
    Source,
    Vocabulary,
)
from schemas_cache.limits import FAILURE_KEPT_S
from schemas_cache.work import StoppedError

FAILURES_KEPT = 4096  # a few hundred bytes each
LOOK_AGAIN_S = 60.0  # a wait without end may be longer than a lock can wait
LITTLE_MORE = 1.1  # times what a compile had: requests with equal limits never have quite the same time left
TIMEOUTS = (CompileTimeoutError, TimeoutError)

logger = logging.getLogger(__name__)

Key = tuple[str, str]  # the source's digest, the vocabulary's fingerprint
Outcome = Lookup | Exception


@dataclass(slots=True, eq=False)
class Order:
    """One request's wish, and whom to tell: `done` is called at most once, on a thread of the pool."""

    source: Source
    vocabulary: Vocabulary
    timeout_s: float
    done: Callable[[Outcome], None]
    submitted_s: float = field(default_factory=monotonic)
    flight: Flight | None = None
    left: bool = False

    @property
    def remaining_s(self) -> float:
        """What is left of its time."""
        return self.submitted_s + self.timeout_s - monotonic()


@dataclass(slots=True, eq=False)
class Flight:
    """A compile, waiting for a worker or under way, and the requests that wait for it."""

    key: Key
    waiting: list[Order] = field(default_factory=list)
    begun_with: list[Order] | None = None  # who waited when it began; None before that


@dataclass(frozen=True, slots=True)
class Failure:
    """What a schema was refused for, and how long it had then."""

    error: SchemaError
    timeout_s: float
    until_s: float

    def answers(self, order: Order) -> bool:
        """Whether the same would come of this request, which a little more time would not change."""
        return not isinstance(self.error, TIMEOUTS) or order.remaining_s <= LITTLE_MORE * self.timeout_s


class CompilerPool:
    """Threads that fetch compiled schemas.

    Parameters
    ----------
    cache : SchemaCache
        Where they come from.
    workers : int
        New schemas compiled at the same time.
    processes : CompileProcesses, optional
        What the cache compiles with, if that is processes: started and ended with the pool, and stopped where nobody
        waits for their work any more.
    clock : callable
        Seconds of a monotonic clock, for how long failures are remembered.
    """

    def __init__(
        self,
        cache: SchemaCache,
        workers: int,
        processes: CompileProcesses | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._cache, self._processes, self._clock = cache, processes, clock
        self._change = Condition()  # over everything below
        self._arrived: deque[Order] = deque()
        self._queue: deque[Flight] = deque()  # those that wait for a worker
        self._flights: dict[Key, Flight] = {}
        self._failures: OrderedDict[Key, Failure] = OrderedDict()
        self._stopped = False
        tasks = [("schemas", self._route_all), ("deadlines", self._watch), *[("compile", self._compile_all)] * workers]
        self._threads = [Thread(target=task, name=name, daemon=True) for name, task in tasks]

    def start(self, vocabularies: Iterable[Vocabulary] = ()) -> None:
        """Start the threads, called once; the processes are made ready for these vocabularies in the background."""
        for thread in self._threads:
            thread.start()
        if self._processes is not None:
            self._processes.warm(vocabularies)

    def submit(
        self, source: Source, vocabulary: Vocabulary, timeout_s: float, done: Callable[[Outcome], None]
    ) -> Order:
        """Fetch a compiled schema within `timeout_s` from now, and call `done` with it or with the error.

        Raises
        ------
        RuntimeError
            When the pool was stopped.
        """
        order = Order(source, vocabulary, timeout_s, done)
        with self._change:
            if self._stopped:
                raise RuntimeError("the pool was stopped")
            self._arrived.append(order)
            self._change.notify_all()
        return order

    def leave(self, order: Order) -> None:
        """The request needs its schema no more; nothing happens where it was answered already."""
        with self._change:
            order.left = True
            empty = self._disembark(order)
        if empty and self._processes is not None:
            self._processes.stop(order.source, order.vocabulary)

    def stop(self) -> None:
        """Drop what has not begun; a compile under way is ended in a process, and otherwise ends by its own limits."""
        with self._change:
            self._stopped = True
            self._change.notify_all()
        if self._processes is not None:
            self._processes.close()

    def _route_all(self) -> None:
        """The thread in front."""
        while True:
            with self._change:
                self._change.wait_for(lambda: self._stopped or self._arrived)
                if self._stopped:
                    return
                order = self._arrived.popleft()
                if order.left:
                    continue
            try:
                self._route(order)
            except KatagamiError as error:  # a schema beyond the limits of reading it
                order.done(error)
            except Exception as error:
                order.done(_failure(error))

    def _route(self, order: Order) -> None:
        """Answer what is known, else board the flight for this schema."""
        key = order.source.digest, order.vocabulary.fingerprint
        with self._change:
            known = None if key in self._flights else self._failure_of(key, order)
            in_flight = key in self._flights
        outcome = known or (None if in_flight else self._cache.find(order.source, order.vocabulary))
        if outcome is not None:
            _tell([order], outcome)
            return
        with self._change:
            if order.left:
                return
            flight = self._flights.get(key)
            if flight is None:
                flight = self._flights[key] = Flight(key)
                self._queue.append(flight)
            order.flight = flight
            flight.waiting.append(order)
            self._change.notify_all()

    def _compile_all(self) -> None:
        """A worker."""
        while True:
            with self._change:
                self._change.wait_for(lambda: self._stopped or self._queue)
                if self._stopped:
                    return
                flight = self._queue.popleft()
                flight.begun_with = list(flight.waiting)
            longest_s = max(order.remaining_s for order in flight.begun_with)
            self._land(flight, self._fetch(flight.begun_with[0], longest_s), longest_s)

    def _land(self, flight: Flight, outcome: Outcome, timeout_s: float) -> None:
        """Tell everybody what came of it, but for those who came later and whose time is not over."""
        begun_with = flight.begun_with or []
        with self._change:
            over, flight.waiting = flight.waiting, []
            if isinstance(outcome, StoppedError):  # who is there came after the last one had left
                over, flight.waiting = [], over
            elif isinstance(outcome, TIMEOUTS):
                flight.waiting = [order for order in over if order not in begun_with]
                over = [order for order in over if order in begun_with]
            if flight.waiting:
                flight.begun_with = None
                self._queue.append(flight)
            else:
                del self._flights[flight.key]
            if isinstance(outcome, SchemaError):
                self._remember(flight.key, Failure(outcome, timeout_s, self._clock() + FAILURE_KEPT_S))
            self._change.notify_all()
        _tell(over, outcome)

    def _watch(self) -> None:
        """The thread that watches the clock: whose time is over need not wait for a worker to hear of it."""
        while True:
            with self._change:
                if self._stopped:
                    return
                waiting = [order for flight in self._flights.values() for order in flight.waiting]
                late = [order for order in waiting if order.remaining_s <= 0]
                for order in late:
                    self._disembark(order)
                if not late:
                    self._change.wait(min([LOOK_AGAIN_S, *(order.remaining_s for order in waiting)]))
            _tell(late, TimeoutError())

    def _disembark(self, order: Order) -> bool:
        """Take a request off its flight; whether that is under way and nobody is left. The lock is held."""
        flight = order.flight
        if flight is None or order not in flight.waiting:
            return False
        flight.waiting.remove(order)
        if flight.waiting:
            return False
        if flight.begun_with is None:
            self._queue.remove(flight)
            del self._flights[flight.key]
        return flight.begun_with is not None

    def _fetch(self, order: Order, timeout_s: float) -> Outcome:
        try:
            return self._cache.get(order.source, order.vocabulary, timeout_s) if timeout_s > 0 else TimeoutError()
        except (KatagamiError, TimeoutError) as error:
            return error
        except Exception as error:
            return _failure(error)

    def _remember(self, key: Key, failure: Failure) -> None:
        self._failures[key] = failure
        self._failures.move_to_end(key)
        if len(self._failures) > FAILURES_KEPT:
            self._failures.popitem(last=False)

    def _failure_of(self, key: Key, order: Order) -> SchemaError | None:
        """What a request can be told without compiling again; the lock is held."""
        failure = self._failures.get(key)
        if failure is not None and self._clock() >= failure.until_s:
            del self._failures[key]
            failure = None
        return failure.error if failure is not None and failure.answers(order) else None


def _tell(orders: Iterable[Order], outcome: Outcome) -> None:
    now_s = monotonic()
    for order in orders:
        order.done(_told(order, outcome, now_s))


def _told(order: Order, outcome: Outcome, now_s: float) -> Outcome:
    """What this request hears of it: its own waiting time, and the time limit that it named."""
    if isinstance(outcome, Lookup):
        return replace(outcome, compile_ms=1000 * (now_s - order.submitted_s))
    if isinstance(outcome, TIMEOUTS):
        taken_s = now_s - order.submitted_s
        reason = f"not compiled within {order.timeout_s:g} s, the limit: it has taken {taken_s:.2f} s so far"
        return CompileTimeoutError([Finding("#", "", reason, "allow more time, or simplify the schema")])
    if isinstance(outcome, SchemaError):  # one for each, since raising an error writes into it
        return type(outcome)(outcome.findings)
    return outcome


def _failure(error: Exception) -> EngineFailedError:
    logger.error("compiling a schema failed", exc_info=error)
    return unexpected(error, "compiling the schema failed: ")
