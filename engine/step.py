"""One step: schedule, forward, mask, sample, advance.

In: sequences. Out: after each step, those that are over. Between steps sequences may join and leave; each has its own
schema, sampling settings, random stream and state. Cost: one forward pass over all rows, a pass or two over the masked
logits, and a few microseconds of Python per row.

A new sequence first takes what its schema forces: that goes to the model together with its prompt, as one chunk. So
does every forced chunk with the token drawn before it. A sequence that is over at its last token needs no further
forward pass, and one that is over before its first draw needs none at all.

Free text is drawn from the tokens that stand for bytes and from the end tokens: other special tokens have no text, and
positions of the model's output beyond the vocabulary are no tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import accumulate, chain
from operator import attrgetter
from time import perf_counter

import numpy as np

from engine.constraint import Forcing, Walk, drawable_words
from engine.errors import EngineFailedError, RowDeadError
from engine.models import Batch, Model
from engine.sampling import (
    WORD_BITS,
    Drawn,
    FloatArray,
    IntArray,
    Outcome,
    Samplers,
    WordArray,
    apply_mask,
)
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.stats import StepCounters
from schemas_cache import KatagamiError, Vocabulary, fill_masks

logger = logging.getLogger(__name__)

_MATCHER = attrgetter("matcher")


class Decoder:
    """Decodes the sequences of one model, a step at a time; belongs to one thread.

    Parameters
    ----------
    model : Model
        Its logits are at least as wide as the vocabulary.
    vocabulary : Vocabulary
        V tokens.
    encode_bytes : callable
        Tokenises forced UTF-8 canonically.
    max_running : int
        Most rows of a batch.
    clock : callable
        Seconds of a monotonic clock.

    Raises
    ------
    ValueError
        When the model's logits are narrower than the vocabulary.
    """

    def __init__(
        self,
        model: Model,
        vocabulary: Vocabulary,
        encode_bytes: Callable[[bytes], Iterable[int]],
        max_running: int,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        if model.vocabulary_size < len(vocabulary):
            raise ValueError(f"the model has {model.vocabulary_size} outputs for {len(vocabulary)} tokens")
        model.allocate(max_running)
        self.counters = StepCounters()
        self.scheduler = Scheduler(max_running)
        self._model, self._vocabulary, self._clock = model, vocabulary, clock
        self._walk = Walk(vocabulary, Forcing(vocabulary, encode_bytes))
        self._samplers = Samplers(max_running)
        self._drawable = drawable_words(vocabulary)
        self._masks = np.zeros((max_running, len(self._drawable)), np.uint32)
        self._scores = np.zeros((max_running, len(self._drawable) * WORD_BITS), np.float32)
        self._over: list[Sequence] = []

    @property
    def context_length(self) -> int:
        """Most tokens of a sequence, prompt and output together."""
        return self._model.context_length

    def step(self) -> list[Sequence]:
        """Give every running sequence its next token, and return those that are over, their slots taken back."""
        rows = self._schedule()
        if rows:
            logits = self._forward(rows)
            scores, masks = self._mask(rows, logits)
            drawn = self._sample(rows, scores, masks)
            self._advance(rows, drawn)
        return self._leave()

    def abandon(self, error: Exception) -> list[Sequence]:
        """Fail everything that runs, after a step broke off, and return all that is over."""
        for row in self.scheduler.running:
            if not row.over:
                row.error = error
                self._over.append(row)
        return self._leave()

    def _schedule(self) -> list[Sequence]:
        schedule = self.scheduler.schedule()
        for row in schedule.joined:
            self._guarded(row, self._join, row)
        return [row for row in schedule.rows if not row.over] if schedule.joined else schedule.rows

    def _join(self, row: Sequence) -> None:
        job = row.job
        if job.started_s is None:
            job.started_s = self._clock()
        prompt_tokens = len(row.pending)
        self._walk.begin(row)
        if not row.over:
            self._samplers.open(row.slot, job.request.sampling, job.seed, row.index)
            self._model.reset(row.slot)
            self.counters.prompt_tokens += prompt_tokens

    def _forward(self, rows: list[Sequence]) -> FloatArray:
        started_s = self._clock()
        logits = self._model.forward(batch_of(rows))
        for row in rows:
            row.pending.clear()
            row.model_calls += 1
        self.counters.steps += 1
        self.counters.rows += len(rows)
        self.counters.forward_s += self._clock() - started_s
        return logits

    def _mask(self, rows: list[Sequence], logits: FloatArray) -> tuple[FloatArray, WordArray]:
        started_s = self._clock()
        masks, scores = self._masks[: len(rows)], self._scores[: len(rows)]
        try:
            any_free = fill_masks(list(map(_MATCHER, rows)), masks)
        except Exception:  # a schema that outgrew its limits, say: find out whose
            any_free = self._fill_one_by_one(rows, masks)
        if any_free:
            masks &= self._drawable
        apply_mask(logits, masks, scores)
        self.counters.mask_s += self._clock() - started_s
        return scores, masks

    def _fill_one_by_one(self, rows: list[Sequence], masks: WordArray) -> bool:
        """Fail the rows that have no mask; it is all zero then, so that nothing is drawn for them."""
        for number, row in enumerate(rows):
            masks[number] = 0
            self._guarded(row, fill_masks, [row.matcher], masks[number : number + 1])
        return any(row.matcher is None for row in rows)

    def _sample(self, rows: list[Sequence], scores: FloatArray, masks: WordArray) -> Drawn:
        started_s = self._clock()
        drawn = self._samplers.draw(scores, masks, slots_of(rows))
        self.counters.sample_s += self._clock() - started_s
        return drawn

    def _advance(self, rows: list[Sequence], drawn: Drawn) -> None:
        started_s = self._clock()
        for row, token_id, outcome in zip(rows, drawn.token_ids.tolist(), drawn.outcomes.tolist(), strict=True):
            if row.job.prefilled_s is None:
                row.job.prefilled_s = started_s
            if outcome == Outcome.DRAWN:
                self._guarded(row, self._walk.advance, row, token_id)
            elif not row.over:
                self._guarded(row, self._refuse, row, outcome)
        self.counters.advance_s += self._clock() - started_s

    def _refuse(self, row: Sequence, outcome: int) -> None:
        if outcome == Outcome.NOT_FINITE:
            raise EngineFailedError(f"the model's logits for choice {row.index} are not finite numbers")
        if outcome == Outcome.FORBIDDEN:
            raise EngineFailedError(f"a token was drawn for choice {row.index} that its mask forbids")
        if not self._walk.dead_end(row):
            raise RowDeadError(row.index, "" if row.matcher is None else row.matcher.pointer())

    def _guarded(self, row: Sequence, action: Callable[..., object], *arguments: object) -> None:
        """Do something with one row; whatever it raises ends that row alone."""
        try:
            action(*arguments)
        except KatagamiError as error:
            row.error = error
        except Exception as error:
            logger.exception("choice %d of a request failed", row.index)
            row.error = EngineFailedError(f"{type(error).__name__}: {error}")
        if row.over:
            self._over.append(row)

    def _leave(self) -> list[Sequence]:
        over, self._over = self._over, []
        for row in over:
            self.scheduler.release(row)
            self.counters.forced_tokens += row.forced_tokens
            self.counters.sampled_tokens += len(row.token_ids) - row.forced_tokens
        return over


def batch_of(rows: list[Sequence]) -> Batch:
    """Pack the tokens that the model has not seen of each row."""
    lengths = [len(row.pending) for row in rows]
    offsets = np.fromiter(accumulate(lengths, initial=0), np.int32, len(rows) + 1)
    token_ids = np.fromiter(chain.from_iterable(row.pending for row in rows), np.int32, int(offsets[-1]))
    return Batch(token_ids, offsets, slots_of(rows))


def slots_of(rows: list[Sequence]) -> IntArray:
    """Slot of each row, int32 (B,)."""
    return np.array([row.slot for row in rows], np.int32)
