"""Requests on their way: each is taken once, and ended once.

In: requests, from any thread. Out: a `Job` for each that is taken; at its end its result or its error on the job's
future, from where `asyncio` carries it over to a thread of its own. Cost: a lock, and what `admission` costs.

One condition is over all of it and over the decode thread's queues, so that whatever becomes of a request wakes that
thread up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from concurrent.futures import Future
from threading import Condition
from time import perf_counter

import numpy as np

from engine.admission import Admission
from engine.config import EngineConfig
from engine.delivery import Outlet, Post
from engine.errors import QueueFullError, ShuttingDownError
from engine.request import Request, Result
from engine.sequence import Job
from engine.stats import RequestCounters
from engine.step import Decoder


class InFlight:
    """The requests of one engine; used from any thread.

    Attributes
    ----------
    change : Condition
        To be held for `late`, `remaining_s` and whatever else has to fit together with them.
    accepting : bool
        Whether requests are taken.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.change = Condition()  # over everything below
        self.accepting = False
        self._seeds = np.random.default_rng(config.seed)
        self._admission = Admission[Decoder](config.max_running, config.max_queued)
        self._outlets: dict[int, Outlet] = {}  # of streamed requests, by their job's id()
        self._counters = RequestCounters()

    def __contains__(self, job: Job) -> bool:
        return job in self._admission

    @property
    def counts(self) -> dict[str, int]:
        """How many requests came to what, and how many wait."""
        with self.change:
            queued = self._admission.waiting
        return {"queued": queued, **self._counters.snapshot()}

    def take(self, request: Request, decoder: Decoder, decoders: Iterable[Decoder], post: Post | None) -> Job:
        """Take a request for one of the decoders; `post` gets its events where it is streamed.

        Raises
        ------
        ShuttingDownError
            When no more are taken.
        QueueFullError
            When as many wait as may.
        """
        with self.change:
            if not self.accepting:
                raise ShuttingDownError
            now_s = perf_counter()
            try:
                self._admission.check(decoder, decoders, now_s)
            except QueueFullError:
                self._counters.add("refused")
                raise
            job = Job(request, Future(), self._seed_of(request), submitted_s=now_s, ready_s=now_s)
            self._admission.add(decoder, job)
            if post is not None:
                self._outlets[id(job)] = Outlet(job, post)
            self.change.notify_all()  # its deadline may be the next one
        self._counters.add("submitted")
        return job

    def outlet_of(self, job: Job) -> Outlet | None:
        """Where the events of a request go; None where it is not streamed."""
        return self._outlets.get(id(job))

    def deliver(self, done: Collection[int]) -> None:
        """Send all readers what a step brought; `done` are the id()s of sequences that left.

        Of attempts nothing is sent: which of them is the answer is known later.
        """
        with self.change:
            outlets = [outlet for outlet in self._outlets.values() if outlet.job.request.retry is None]
        for outlet in outlets:
            outlet.deliver(done)

    def finish(self, job: Job, outcome: Result | Exception) -> None:
        """Hand over what became of a request, once; afterwards nothing is known of it."""
        with self.change:
            if not self._admission.remove(job):
                return
            self._outlets.pop(id(job), None)
            self.change.notify_all()
        if not job.future.set_running_or_notify_cancel():
            self._counters.add("cancelled")
        elif isinstance(outcome, Exception):
            self._counters.add("failed")
            job.future.set_exception(outcome)
        else:
            self._counters.add("completed")
            job.future.set_result(outcome)

    def drain(self, grace_s: float) -> None:
        """Take no more requests, and wait for those under way as long as the grace lasts."""
        with self.change:
            self.accepting = False
            self.change.wait_for(lambda: not self._admission, grace_s)

    def fail_all(self, error: type[Exception]) -> None:
        """End all that are left, each with an error of this class."""
        with self.change:
            left = self._admission.jobs
        for job in left:
            self.finish(job, error())

    def late(self) -> list[tuple[Decoder, Job]]:
        """List the requests whose time is over."""
        return self._admission.late(perf_counter())

    def remaining_s(self) -> float | None:
        """Seconds until the next deadline; None without one."""
        return self._admission.remaining_s(perf_counter())

    def learn(self, job: Job) -> None:
        """Learn from a request that is done how long one takes."""
        if job.started_s is not None:
            self._admission.took(perf_counter() - job.started_s)

    def _seed_of(self, request: Request) -> int:
        seed = request.sampling.seed
        return int(self._seeds.integers(1 << 63)) if seed is None else seed
