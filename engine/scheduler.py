"""Which sequences are in the next batch: policy only, no arrays, no clock.

In: sequences in the order of their arrival. Out: for each step the rows that run, and which of them have just joined.
First come, first served: a sequence joins as soon as there is a slot for it and leaves when it is over; a request of
many sequences may run with some of them while the rest wait. Cost: constant for each sequence, and one list per step.

Rejected: shortest first, since nobody knows which will be short, and waiting until all sequences of a request fit,
which leaves slots empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from engine.sequence import Job, Sequence
from engine.slots import Slots


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """One step's rows, each with a slot."""

    rows: list[Sequence]
    joined: list[Sequence]  # those of `rows` that are here for the first time
    failed: list[tuple[Sequence, Exception]]  # those for which no slot could be made ready, and why


class Scheduler:
    """Keeps the waiting line and the slots of one model.

    Parameters
    ----------
    slots : Slots
        Where sequences run.
    """

    def __init__(self, slots: Slots) -> None:
        self._waiting: deque[Sequence] = deque()
        self._running: dict[int, Sequence] = {}  # by slot, in the order of joining
        self._slots = slots

    @property
    def waiting(self) -> int:
        """Sequences without a slot."""
        return len(self._waiting)

    @property
    def running(self) -> list[Sequence]:
        """Sequences with a slot, in the order of their joining."""
        return list(self._running.values())

    @property
    def slots_taken(self) -> int:
        """How many sequences have a slot; may be asked from any thread."""
        return len(self._running)

    @property
    def slots_free(self) -> int:
        """How many slots nobody has or waits for."""
        return max(self._slots.free - len(self._waiting), 0)

    @property
    def idle(self) -> bool:
        """Whether there is no sequence at all."""
        return not self._running and not self._waiting

    def add(self, rows: Iterable[Sequence]) -> None:
        """Put sequences at the end of the line."""
        self._waiting.extend(rows)

    def schedule(self) -> Schedule:
        """Give slots to those who wait longest, and return all that have one."""
        joined: list[Sequence] = []
        failed: list[tuple[Sequence, Exception]] = []
        while self._waiting:
            try:
                slot = self._slots.take(self._waiting[0])
            except Exception as error:  # memory that the system does not give, say: it would be the same again
                failed.append((self._waiting.popleft(), error))
                continue
            if slot is None:
                break
            row = self._waiting.popleft()
            row.slot = slot
            self._running[slot] = row
            joined.append(row)
        return Schedule(self.running, joined, failed)

    def clear_line(self) -> list[Sequence]:
        """Forget the sequences without a slot, and return them."""
        waiting, self._waiting = list(self._waiting), deque()
        return waiting

    def holds(self, row: Sequence) -> bool:
        """Whether a sequence has a slot."""
        return self._running.get(row.slot) is row

    def release(self, row: Sequence) -> None:
        """Take back the slot of a sequence, if it has one."""
        if self.holds(row):
            del self._running[row.slot]
            self._slots.give_back(row)

    def drop(self, job: Job) -> None:
        """Forget the sequences of a request, waiting or running."""
        self.withdraw(job.sequences)

    def withdraw(self, rows: list[Sequence]) -> None:
        """Forget sequences, waiting or running."""
        gone = set(map(id, rows))
        for row in rows:
            self.release(row)
        if any(id(row) in gone for row in self._waiting):
            self._waiting = deque(row for row in self._waiting if id(row) not in gone)
