"""Which requests are taken, when they have to be done, and when one that is refused had better come again.

In: requests as they come and go. Out: whether there is a place, the requests whose time is over, an estimate in
seconds. Policy only: no lock and no clock of its own. Cost: one look at each request on its way for every request that
comes; a comparison for each step.

A request waits when all slots of its model are taken, counted as if requests took them in the order in which they came:
which ones those will be is open until their schemas are compiled, how many is not. A prewarm takes none.

Who is refused is promised a place of its own: the next one that comes free after those promised before. So those who
come again do so one after another, as places come free, and not all at once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from math import inf
from typing import Generic, TypeVar

from engine.errors import QueueFullError
from engine.sequence import Job

SMOOTHING = 0.1  # weight of the latest request in the mean time that one takes
SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.5, 60.0  # between them an estimate is of use to a client

D = TypeVar("D", bound=Hashable)


class Admission(Generic[D]):
    """The requests on their way, each with the decoder `D` of its model.

    Parameters
    ----------
    max_running : int
        Slots of each decoder.
    max_queued : int
        Requests that may wait.
    """

    def __init__(self, max_running: int, max_queued: int) -> None:
        self._max_running, self._max_queued = max_running, max_queued
        self._jobs: dict[int, tuple[D, Job]] = {}  # by id()
        self._earliest_s = inf  # no deadline is before this
        self._request_s = 1.0  # what a request takes from its beginning to its end, a moving mean
        self._promised_s = -inf  # when the last place that was promised comes free

    def __contains__(self, job: Job) -> bool:
        return id(job) in self._jobs

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def jobs(self) -> list[Job]:
        """All requests on their way."""
        return [job for _, job in self._jobs.values()]

    @property
    def waiting(self) -> int:
        """How many of them have not begun."""
        return sum(job.started_s is None for _, job in self._jobs.values())

    def check(self, decoder: D, decoders: Iterable[D], now_s: float) -> None:
        """Refuse a request for which there is no place.

        Raises
        ------
        QueueFullError
            When as many wait as may, and a request for this decoder would have to wait too.
        """
        queued, has_room = self._in_line(decoder, decoders)
        if queued < self._max_queued or has_room:
            return
        apart_s = self._request_s / max(1, len(self._jobs) - queued)
        self._promised_s = min(max(self._promised_s, now_s) + apart_s, now_s + LONGEST_WAIT_S)
        raise QueueFullError(max(SHORTEST_WAIT_S, self._promised_s - now_s))

    def add(self, decoder: D, job: Job) -> None:
        """Take a request."""
        self._jobs[id(job)] = decoder, job
        self._earliest_s = min(self._earliest_s, deadline_of(job))

    def remove(self, job: Job) -> bool:
        """Forget a request; whether it was there."""
        return self._jobs.pop(id(job), None) is not None

    def took(self, seconds: float) -> None:
        """Learn from a request that is done."""
        self._request_s += SMOOTHING * (seconds - self._request_s)

    def remaining_s(self, now_s: float) -> float | None:
        """Seconds until `late` has to be asked again; None: no request has a deadline."""
        return None if self._earliest_s == inf else max(0.0, self._earliest_s - now_s)

    def late(self, now_s: float) -> list[tuple[D, Job]]:
        """List the requests whose time is over."""
        if now_s < self._earliest_s:
            return []
        late = [(decoder, job) for decoder, job in self._jobs.values() if deadline_of(job) <= now_s]
        on_time = (deadline_of(job) for _, job in self._jobs.values())
        self._earliest_s = min((deadline_s for deadline_s in on_time if deadline_s > now_s), default=inf)
        return late

    def _in_line(self, asked: D, decoders: Iterable[D]) -> tuple[int, bool]:
        """How many requests have to wait for a slot, and whether the next one for this model would not have to."""
        free = dict.fromkeys(decoders, self._max_running)
        queued = 0
        for decoder, job in self._jobs.values():
            if job.future.cancelled():  # gone before the next step
                continue
            queued += free[decoder] <= 0
            free[decoder] -= job.unfinished or rows_of(job)
        return queued, free[asked] > 0


def rows_of(job: Job) -> int:
    """How many slots a request will take in all."""
    return len(job.request.prompts) * job.request.n if job.request.max_tokens else 0


def deadline_of(job: Job) -> float:
    """When a request has to be done, in seconds of the job's clock; infinite without a deadline."""
    return inf if job.request.deadline_s is None else job.submitted_s + job.request.deadline_s
