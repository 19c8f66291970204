"""The trials under way: attempts that are over in, what follows from the verdicts on them out.

In: requests with `retry`, and their attempts as they end. Out: for each attempt a `Judged`, and what its trial makes of
it. Judging takes longer than a step, so it is done on a thread beside, one attempt after another; all else belongs to
the decode thread. Cost: a hand-over between threads for each attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from engine.errors import unexpected
from engine.retry import Move, Trial, Verdict, verdict_on
from engine.sequence import Job, Sequence
from engine.step import Decoder
from schemas_cache import KatagamiError


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """An attempt that is over, and what is said of it."""

    decoder: Decoder
    row: Sequence
    verdict: Future[Verdict]


class Judging:
    """The trials of all requests of an engine.

    Parameters
    ----------
    note : callable
        Gets what was judged; called on the judging thread.
    """

    def __init__(self, note: Callable[[Judged], None]) -> None:
        self._note = note
        self._executor = ThreadPoolExecutor(1, "judge")  # its thread starts with the first attempt
        self._trials: dict[int, Trial] = {}  # by their job's id()

    def begin(self, job: Job, context_length: int) -> list[Sequence]:
        """Begin a trial, which is forgotten when the request is over; its first attempts."""
        key = id(job)
        trial = self._trials[key] = Trial(job, context_length)
        job.future.add_done_callback(lambda _: self._trials.pop(key, None))
        return trial.first

    def judge(self, decoder: Decoder, row: Sequence) -> None:
        """Have an attempt judged that is over."""

        def note(verdict: Future[Verdict]) -> None:
            self._note(Judged(decoder, row, verdict))

        with suppress(RuntimeError):  # stopped meanwhile: all that is left fails anyway
            self._executor.submit(verdict_on, row).add_done_callback(note)

    def follow(self, judged: Judged) -> tuple[Trial, Move] | None:
        """What follows for the attempt's trial; None where the request is over, or the engine.

        Raises
        ------
        KatagamiError
            When the attempt could not be judged.
        """
        trial = self._trials.get(id(judged.row.job))
        if trial is None or judged.verdict.cancelled():
            return None
        error = judged.verdict.exception()
        if error is not None:
            raise error if isinstance(error, KatagamiError) else unexpected(error, "judging: ")
        return trial, trial.take(judged.row, judged.verdict.result(), judged.decoder.scheduler.slots_free)

    def stop(self) -> None:
        """Judge no more; waits for the one that is being judged."""
        self._executor.shutdown(cancel_futures=True)
