"""Works out states that nobody has visited yet, without making the other rows of a step wait.

In: a row, and the token that was drawn for it, or None where the row has just joined. Out: the row again, once all that
it needs to go on is known: the states on the way, what is forced after them, the next mask. Or the error that working
this out ended with, which is that row's alone.

A step does the work of all its rows itself as long as it is little: `INLINE_WORK` in sum, a few milliseconds. That is
the common case by far, and costs no hand-over between threads. What takes more is put down again, and rehearsed on a
thread beside: on a copy of the row's matcher, so that nobody sees a row half way, with the schema's own limit for one
state. Meanwhile the row is left out of the steps; its token and its logits are kept for it. When the rehearsal is over,
the decode thread takes the row's token as if nothing had been, and finds everything known. So a text does not depend on
how long anything took: a row's random stream moves only when it draws.

A row that needs something new of a schema that is being worked on is put down too, since it would wait for the lock.

Cost: nothing for what is known. While the thread works it shares the interpreter with the decode thread, which gets it
back within `SWITCH_INTERVAL_S` wherever numpy had let go of it. With the interpreter's own 5 ms the slowest tenth of
the steps of eight rows took 24 ms each beside such work, instead of 0.4; alone a step takes 0.3.

Rejected: a thread for each row, which would share the same interpreter; giving every new state to the thread, since the
hand-over costs more than most states do; a process, which could not share the tables.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Lock, Thread
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import unexpected
from engine.outputs import Outputs
from engine.sequence import Healing, Sequence
from schemas_cache import KatagamiError
from schemas_cache.work import Haste, Working, working

INLINE_WORK = 3_000
"""Steps of work that a step of the decoder does itself: some 3 ms, less than most forward passes."""

WAIT_S = 0.005
"""How long a step waits that has no other row: until then something is nearly always ready."""

SWITCH_INTERVAL_S = 0.0005
"""How long the thread may keep the interpreter while the decode thread wants it."""

WordArray = NDArray[np.uint32]
NotNow = Literal["not now"]
NOT_NOW: NotNow = "not now"
NOTHING = Outputs(np.zeros((0, 0), np.float32)), np.zeros((0, 0), np.uint32)

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Held:
    """A row that is left out, and what is kept for it.

    Attributes
    ----------
    token_id : int or None
        What was drawn for it; None where it has just joined.
    refused_id : int or None
        The token in whose place it was drawn, since that one left no room to end the text.
    drawn_from : Outputs (one) and uint32 (1, W)
        What the model said, and the mask; of no meaning where nothing was drawn.
    error : Exception or None
        What the rehearsal ended with.
    """

    row: Sequence
    token_id: int | None
    refused_id: int | None
    drawn_from: tuple[Outputs, WordArray] = NOTHING
    error: Exception | None = None


class Mark(NamedTuple):
    """How far a sequence was, to go back to where something could not be done to its end."""

    advances: int
    tokens: int
    pending: list[int]
    data_bytes: int
    forced_tokens: int
    healing: Healing | None

    @staticmethod
    def of(row: Sequence) -> Mark:
        """How far a sequence is."""
        advances = 0 if row.matcher is None else row.matcher.advances
        return Mark(advances, len(row.token_ids), row.pending.copy(), len(row.data), row.forced_tokens, row.healing)

    def restore(self, row: Sequence) -> None:
        """Take back what has been added since."""
        if row.matcher is not None:
            row.matcher.rollback(row.matcher.advances - self.advances)
        del row.token_ids[self.tokens :], row.data[self.data_bytes :]
        row.pending[:] = self.pending
        row.forced_tokens, row.healing = self.forced_tokens, self.healing


class Switching:
    """Has threads take turns more often while anybody is in it; the last one to leave puts back what was before."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._before_s = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before_s, SWITCH_INTERVAL_S))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                sys.setswitchinterval(self._before_s)


_SWITCHING = Switching()  # one for the expanders of all models


class Expander:
    """Rows that wait for states, of one decoder; its thread runs only while there is work.

    Parameters
    ----------
    rehearse : callable
        Does what going on with a row and a token needs, and changes nothing but what the automaton has learnt.
    """

    def __init__(self, rehearse: Callable[[Sequence, int | None], None]) -> None:
        self._rehearse = rehearse
        self._haste = Haste(INLINE_WORK)  # what a step may do itself
        self._held: dict[int, Held] = {}  # by id() of the row
        self._new: list[Held] = []  # held in this step
        self._change = Condition()  # over the next three
        self._queue: deque[Held] = deque()
        self._done: deque[Held] = deque()
        self._runs = False

    @property
    def waiting(self) -> bool:
        """Whether any row is left out."""
        return bool(self._held)

    def begin_step(self) -> None:
        """Allow a little work again."""
        self._haste = Haste(INLINE_WORK)

    def inline(self) -> Working:
        """Let what follows do what is left of a step's work, and raise `NotNowError` where it would be more."""
        return working(self._haste)

    def holds(self, row: Sequence) -> bool:
        """Whether a row is left out."""
        return id(row) in self._held

    def hold(self, row: Sequence, token_id: int | None, refused_id: int | None) -> None:
        """Leave a row out of the steps until what it needs is known."""
        held = self._held[id(row)] = Held(row, token_id, refused_id)
        self._new.append(held)

    def keep(self, rows: list[Sequence], outputs: Outputs, masks: WordArray) -> None:
        """Copy what the rows held in this step drew from: the first B outputs, and masks, uint32 (B, W)."""
        if self._new:
            place = {id(row): number for number, row in enumerate(rows)}
            for held in self._new:
                number = place.get(id(held.row))
                if number is not None:
                    held.drawn_from = outputs.one(number), masks[number : number + 1].copy()

    def dispatch(self) -> None:
        """Hand over what was held in this step."""
        if not self._new:
            return
        with self._change:
            self._queue.extend(self._new)
            self._new.clear()
            if not self._runs:
                self._runs = True
                Thread(target=self._run, name="expand", daemon=True).start()

    def ready(self, wait_s: float) -> list[Held]:
        """Take back the rows that can go on, in the order in which they were held; waits so long for the first."""
        with self._change:
            self._change.wait_for(lambda: self._done, wait_s)
            done, self._done = list(self._done), deque()
        found = [held for held in done if self._held.get(id(held.row)) is held]
        for held in found:
            del self._held[id(held.row)]
        return found

    def forget(self, row: Sequence) -> None:
        """Nothing is needed for this row any more."""
        self._held.pop(id(row), None)

    def _run(self) -> None:
        with _SWITCHING:
            while (held := self._next()) is not None:
                held.error = self._rehearsed(held)
                with self._change:
                    self._done.append(held)
                    self._change.notify_all()

    def _next(self) -> Held | None:
        with self._change:
            if not self._queue:
                self._runs = False
                return None
            return self._queue.popleft()

    def _rehearsed(self, held: Held) -> Exception | None:
        matcher = held.row.matcher
        if matcher is None or self._held.get(id(held.row)) is not held:
            return None
        try:
            with working(matcher.allowance()):
                self._rehearse(held.row, held.token_id)
        except KatagamiError as error:
            return error
        except Exception as error:
            logger.exception("working out a state failed")
            return unexpected(error)
        return None
