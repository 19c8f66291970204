"""The thread that takes the steps: jobs that are ready in, sequences decoded, outcomes handed over.

In: jobs whose schemas are compiled, and those that are cancelled, from any thread. Out: events to readers after each
step, and an outcome for each job. Cost: a few microseconds for each step beside the step itself.

Between two steps requests come and go: a job that is cancelled, or whose deadline passes, takes its sequences out of
the batch. Whatever a step raises fails the requests that were in it, and the thread goes on; so it does where the
beginning or the end of one request raises. With several models it takes a step of each in turn. Should the thread break
off itself, no more requests are taken, and none is left without an answer.

Rejected: a step per event-loop turn, which stops the server for as long as a forward pass takes, and a thread for each
model, which would only share the same cores.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import CancelledError
from dataclasses import dataclass
from threading import Thread
from time import perf_counter

from engine.errors import DeadlineExceededError, ShuttingDownError, unexpected
from engine.in_flight import InFlight
from engine.judging import Judged, Judging
from engine.request import Result
from engine.retry import events_of
from engine.sequence import Job, Sequence, choice_of, result_of, sequences_of
from engine.step import Decoder
from schemas_cache import KatagamiError

logger = logging.getLogger(__name__)

JobOf = tuple[Decoder, Job]


@dataclass(frozen=True, slots=True, eq=False)
class News:
    """What has come about since the last step."""

    arrived: Collection[JobOf]
    judged: Collection[Judged]
    cancelled: Collection[JobOf]
    late: Collection[JobOf]


class DecodeThread:
    """Owns the decoders; `start` it once, `stop` it, and `join` it.

    Parameters
    ----------
    in_flight : InFlight
        The requests that jobs belong to; its condition is over the queues here too.
    """

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight, self._change = in_flight, in_flight.change
        self._thread = Thread(target=self._run, name="decode", daemon=True)
        self._judging = Judging(self._note_judged)
        self._decoders: Collection[Decoder] = ()
        self._arrived: deque[JobOf] = deque()
        self._cancelled: deque[JobOf] = deque()
        self._judged: deque[Judged] = deque()
        self.stopping = False

    @property
    def is_alive(self) -> bool:
        """Whether steps are taken."""
        return self._thread.is_alive()

    def start(self, decoders: Collection[Decoder]) -> None:
        """Begin to take steps of these decoders."""
        self._decoders = decoders
        self._thread.start()

    def stop(self) -> None:
        """Take no more steps; what is left fails. Does not wait for that."""
        with self._change:
            self.stopping = True
            self._change.notify_all()

    def join(self) -> None:
        """Wait for the end, after `stop`."""
        self._judging.stop()
        if self._thread.ident is not None:
            self._thread.join()

    def put(self, decoder: Decoder, job: Job) -> None:
        """Begin a job before the next step."""
        with self._change:
            self._arrived.append((decoder, job))
            self._change.notify_all()

    def cancel(self, decoder: Decoder, job: Job) -> None:
        """Take a cancelled job out before the next step."""
        with self._change:
            self._cancelled.append((decoder, job))
            self._change.notify_all()

    def _note_judged(self, judged: Judged) -> None:
        with self._change:
            self._judged.append(judged)
            self._change.notify_all()

    def _run(self) -> None:
        """Decode until stopped."""
        try:
            while self._turn():
                pass
        except Exception:
            logger.exception("decoding broke off")
        with self._change:
            self._in_flight.accepting = False
        self._in_flight.fail_all(ShuttingDownError)

    def _turn(self) -> bool:
        """Let requests come and go, and take a step of each model; False once stopped."""
        news = self._await_news()
        if news is None:
            return False
        for decoder, job in news.arrived:
            self._guarded(decoder, job, self._begin, decoder, job)
        for judged in news.judged:
            self._guarded(judged.decoder, judged.row.job, self._go_on, judged)
        for decoder, job in news.cancelled:
            self._drop(decoder, job, CancelledError())
        for decoder, job in news.late:
            self._drop(decoder, job, DeadlineExceededError(job.request.deadline_s or 0.0))
        busy = [decoder for decoder in self._decoders if not decoder.scheduler.idle]
        may_wait = all(decoder.stalled for decoder in busy)
        for decoder in busy:
            self._step(decoder, may_wait)
        return True

    def _await_news(self) -> News | None:
        """Wait until there is something to do; None once stopped."""
        with self._change:
            while not (late := self._in_flight.late()) and not self._has_work():
                self._change.wait(self._in_flight.remaining_s())
            news = News(self._arrived, self._judged, self._cancelled, late)
            self._arrived, self._judged, self._cancelled = deque(), deque(), deque()
            return None if self.stopping else news

    def _has_work(self) -> bool:
        idle = all(decoder.scheduler.idle for decoder in self._decoders)
        return bool(self.stopping or self._arrived or self._cancelled or self._judged or not idle)

    def _drop(self, decoder: Decoder, job: Job, outcome: Result | Exception) -> None:
        """Have done with a job, whatever of it still runs."""
        decoder.scheduler.drop(job)
        self._in_flight.finish(job, outcome)

    def _guarded(self, decoder: Decoder, job: Job, action: Callable[..., None], *arguments: object) -> None:
        """Do something for one job; whatever it raises ends that job alone."""
        try:
            action(*arguments)
        except KatagamiError as error:
            self._drop(decoder, job, error)
        except Exception as error:
            logger.exception("a request failed")
            self._drop(decoder, job, unexpected(error))

    def _begin(self, decoder: Decoder, job: Job) -> None:
        if job not in self._in_flight:  # cancelled while it was compiled
            return
        if job.request.retry is None:
            job.sequences = list(sequences_of(job, decoder.context_length))
        else:
            job.sequences = self._judging.begin(job, decoder.context_length)
        job.unfinished = len(job.sequences)
        decoder.scheduler.add(job.sequences)

    def _step(self, decoder: Decoder, may_wait: bool) -> None:
        try:
            over = decoder.step(may_wait)
        except Exception as error:
            logger.exception("a step failed")
            over = decoder.abandon(unexpected(error))
        self._in_flight.deliver(set(map(id, over)))
        for row in over:
            self._guarded(decoder, row.job, self._collect, decoder, row)

    def _collect(self, decoder: Decoder, row: Sequence) -> None:
        """See what a sequence that is over means for its job."""
        job = row.job
        if job not in self._in_flight:  # another of its sequences failed
            return
        if row.error is not None:
            self._drop(decoder, job, row.error)
            return
        if job.request.retry is not None:
            self._judging.judge(decoder, row)
            return
        job.unfinished -= 1
        if job.unfinished == 0:
            self._in_flight.learn(job)
            self._in_flight.finish(job, result_of(job, map(choice_of, job.sequences), perf_counter()))

    def _go_on(self, judged: Judged) -> None:
        """Begin further attempts at an answer, or have done with it."""
        decoder, job = judged.decoder, judged.row.job
        followed = self._judging.follow(judged)
        if followed is None:
            return
        trial, move = followed
        decoder.scheduler.withdraw(move.needless)
        job.sequences += move.new
        decoder.scheduler.add(move.new)
        outlet = self._in_flight.outlet_of(job)
        if outlet is not None and move.choice is not None:
            outlet.post(events_of(move.choice))
        if trial.over:
            self._drop(decoder, job, result_of(job, trial.choices, perf_counter()))
