"""Work counted while it is done, so that what would take too long ends by itself, and whom it ends for is told why.

In: the loops that may run long say what they have done, with `spend`. Out: nothing, or the error at the limit. One step
of work is about 0.7 microseconds of the machine that the figures of `limits` are from. So the bound does not depend on
how busy a machine is: a schema is refused everywhere or nowhere. The clock is looked at too, every few milliseconds,
and so is whether anybody still waits. Cost: a tenth of a microsecond for each `spend`; loops call it once for many
steps.

A thread has one piece of work at a time; `working` begins it. Outside of it nothing is counted: then `spend` does
nothing. Rejected: passing the counter through every function on the way, two hundred of them; a timer alone, whose
outcome depends on the machine's load; a signal, which only the main thread of a process can take.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import ContextVar

from schemas_cache.errors import CompileTimeoutError, Finding, KatagamiError, SchemaTooComplexError
from schemas_cache.limits import COMPILE_TIMEOUT_S

LOOK_EVERY = 4_000
"""Steps between two looks at the clock: some milliseconds."""

_current: ContextVar[Work | None] = ContextVar("work", default=None)


class StoppedError(KatagamiError):
    """Nobody waits for this work any more; never told to anyone."""


class NotNowError(KatagamiError):
    """More than somebody in haste may do; nothing is wrong with it."""


class Work:
    """What one compile, or one expansion while decoding, has done and may do.

    Parameters
    ----------
    limit : int
        Steps.
    timeout_s : float
        Seconds from now.
    subject : str
        What takes the work, for the error: `compiling`.
    is_stopped : callable, optional
        Whether nobody waits any more; by default what the work around this one says.
    """

    __slots__ = ("_is_stopped", "_limit", "_look_at", "_start_s", "_subject", "_timeout_s", "done")

    def __init__(
        self,
        limit: int,
        timeout_s: float = COMPILE_TIMEOUT_S,
        subject: str = "compiling",
        is_stopped: Callable[[], bool] | None = None,
    ) -> None:
        around = _current.get()
        self._is_stopped: Callable[[], bool] = is_stopped or (around._is_stopped if around else _never)
        self.done = 0
        self._limit, self._timeout_s, self._subject = limit, timeout_s, subject
        self._start_s = time.monotonic()
        self._look_at = min(LOOK_EVERY, self._limit)

    def spend(self, steps: int) -> None:
        """Count steps; raises as `look` where it is time to."""
        self.done += steps
        if self.done >= self._look_at:
            self.look()

    def look(self) -> None:
        """Compare with the limits.

        Raises
        ------
        SchemaTooComplexError
            When more steps were done than may be.
        CompileTimeoutError
            When the time is over.
        StoppedError
            When nobody waits any more.
        """
        if self.done > self._limit:
            reason = f"{self._subject} takes {self.done:,} steps of work at least, and the limit is {self._limit:,}"
            raise SchemaTooComplexError([Finding("#", "", reason, "simplify the schema, or split it")])
        taken_s = time.monotonic() - self._start_s
        if taken_s > self._timeout_s:
            reason = f"{self._subject} took {taken_s:.2f} s so far, and the limit is {self._timeout_s:g} s"
            raise CompileTimeoutError([Finding("#", "", reason, "allow more time, or simplify the schema")])
        if self._is_stopped():
            raise StoppedError("nobody waits for this any more")
        self._look_at = min(self.done + LOOK_EVERY, self._limit + 1)


class Haste(Work):
    """A little work: `NotNowError` where it would be more, or where another thread is at the same automaton."""

    __slots__ = ()

    def look(self) -> None:
        """Raise `NotNowError` when more steps were done than may be."""
        if self.done > self._limit:
            raise NotNowError


class GrowthLock:
    """Held while an automaton grows, by the thread that makes it grow; who is in haste does not wait for it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            if isinstance(_current.get(), Haste):
                raise NotNowError
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def spend(steps: int) -> None:
    """Count steps of this thread's work; raises as `Work.look` where a limit is broken."""
    work = _current.get()
    if work is not None:
        work.spend(steps)


class Working:
    """Counts what its thread does in it as some work, and in the end as that of the work around it."""

    __slots__ = ("_around", "_before", "_work")

    def __init__(self, work: Work) -> None:
        self._work, self._around, self._before = work, _current.get(), work.done

    def __enter__(self) -> Work:
        _current.set(self._work)
        return self._work

    def __exit__(self, *_: object) -> None:
        _current.set(self._around)
        if self._around is not None:
            self._around.done += self._work.done - self._before


def working(work: Work) -> Working:
    """Count what this thread does as this work."""
    return Working(work)


def at_work() -> bool:
    """Whether what this thread does is counted."""
    return _current.get() is not None


def _never() -> bool:
    return False
