"""Which sequences are in the next batch: policy only, no arrays, no clock.

In: sequences in the order of their arrival. Out: for each step the rows that run, and which of them have just joined.
First come, first served: a sequence joins as soon as a slot is free and leaves when it is over; a request of many
sequences may run with some of them while the rest wait. Cost: constant for each sequence, and one list per step.

Rejected: shortest first, since nobody knows which will be short, and waiting until all sequences of a request fit,
which leaves slots empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from engine.sequence import Job, Sequence


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """One step's rows, each with a slot."""

    rows: list[Sequence]
    joined: list[Sequence]  # those of `rows` that are here for the first time


class Scheduler:
    """Keeps the waiting line and the slots of one model.

    Parameters
    ----------
    max_running : int
        Number of slots.
    """

    def __init__(self, max_running: int) -> None:
        self._waiting: deque[Sequence] = deque()
        self._running: dict[int, Sequence] = {}  # by slot, in the order of joining
        self._free = list(range(max_running - 1, -1, -1))

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
    def idle(self) -> bool:
        """Whether there is no sequence at all."""
        return not self._running and not self._waiting

    def add(self, rows: Iterable[Sequence]) -> None:
        """Put sequences at the end of the line."""
        self._waiting.extend(rows)

    def schedule(self) -> Schedule:
        """Give free slots to those who wait longest, and return all that have one."""
        joined = [self._admit(self._waiting.popleft()) for _ in range(min(len(self._free), len(self._waiting)))]
        return Schedule(self.running, joined)

    def holds(self, row: Sequence) -> bool:
        """Whether a sequence has a slot."""
        return self._running.get(row.slot) is row

    def release(self, row: Sequence) -> None:
        """Take back the slot of a sequence, if it has one."""
        if self.holds(row):
            del self._running[row.slot]
            self._free.append(row.slot)

    def drop(self, job: Job) -> None:
        """Forget the sequences of a request, waiting or running."""
        for row in job.sequences:
            self.release(row)
        if any(row.job is job for row in self._waiting):
            self._waiting = deque(row for row in self._waiting if row.job is not job)

    def _admit(self, row: Sequence) -> Sequence:
        row.slot = self._free.pop()
        self._running[row.slot] = row
        return row
