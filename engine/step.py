"""One step: schedule, forward, mask, sample, advance.

In: sequences. Out: after each step, those that are over. Between steps sequences may join and leave; each has its own
schema, sampling settings, random stream and state. Cost: one forward pass over all rows, a pass or two over the masked
logits, and a few microseconds of Python per row.

A new sequence first takes what its schema forces: that goes to the model together with its prompt, as one chunk. So
does every forced chunk with the token drawn before it. A sequence that is over at its last token needs no further
forward pass, and one that is over before its first draw needs none at all; unless it owes probabilities of forced
tokens, for which it listens to one more (`recorder`).

Free text is drawn from the tokens that stand for bytes and from the end tokens: other special tokens have no text, and
positions of the model's output beyond the vocabulary are no tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import accumulate, chain
from operator import attrgetter
from time import perf_counter
from typing import TypeVar

import numpy as np

from engine.constraint import Forcing, Walk, drawable_words
from engine.errors import EngineFailedError, RowDeadError
from engine.expander import NOT_NOW, WAIT_S, Expander, Held, Mark, NotNow
from engine.models import Batch, Model
from engine.penalties import Penalties
from engine.recorder import Recorder
from engine.sampling import (
    WORD_BITS,
    Drawn,
    FloatArray,
    IntArray,
    Outcome,
    Samplers,
    WordArray,
    apply_mask,
    are_allowed,
)
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.stats import StepCounters
from schemas_cache import KatagamiError, Vocabulary, fill_masks
from schemas_cache.work import NotNowError

logger = logging.getLogger(__name__)

T = TypeVar("T")
_MATCHER = attrgetter("matcher")
_PENDING = attrgetter("pending")


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
    batch_invariant : bool
        Whether a row's logits must not depend on the other rows, not even in their last bit.

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
        batch_invariant: bool = False,
    ) -> None:
        if model.vocabulary_size < len(vocabulary):
            raise ValueError(f"the model has {model.vocabulary_size} outputs for {len(vocabulary)} tokens")
        model.allocate(max_running, batch_invariant)
        self.counters = StepCounters()
        self.scheduler = Scheduler(max_running)
        self._model, self._vocabulary, self._clock = model, vocabulary, clock
        self._walk = Walk(vocabulary, Forcing(vocabulary, encode_bytes))
        self._samplers = Samplers(max_running)
        self._drawable = drawable_words(vocabulary)
        self._masks = np.zeros((max_running, len(self._drawable)), np.uint32)
        self._scores = np.zeros((max_running, len(self._drawable) * WORD_BITS), np.float32)
        self._penalties = Penalties(*self._scores.shape)
        self._recorder = Recorder(vocabulary, self._drawable)
        self._expander = Expander(self._walk.rehearse)
        self._over: list[Sequence] = []

    @property
    def context_length(self) -> int:
        """Most tokens of a sequence, prompt and output together."""
        return self._model.context_length

    def step(self) -> list[Sequence]:
        """Give every running sequence its next token, and return those that are over, their slots taken back."""
        with self._expander.inline():
            rows, listening = self._schedule()
        if rows or listening:
            fed = [*rows, *listening] if listening else rows
            logits = self._forward(fed)
            if rows:
                scores, masks = self._mask(rows, logits[: len(rows)])
                drawn = self._sample(rows, scores, masks)
                with self._expander.inline():
                    refused = self._advance(rows, drawn)
                    if refused:
                        self._draw_again(rows, drawn.token_ids, refused, logits, masks)
                self._expander.keep(rows, logits, masks)
            self._record(fed, logits)
        self._expander.dispatch()
        return self._leave()

    def abandon(self, error: Exception) -> list[Sequence]:
        """Fail everything that runs, after a step broke off, and return all that is over."""
        for row in self.scheduler.running:
            if row not in self._over:
                row.error = row.error or error
                self._over.append(row)
        return self._leave()

    def _schedule(self) -> tuple[list[Sequence], list[Sequence]]:
        """Rows to draw for, and rows that only listen to the forward pass."""
        if self._expander.waiting:
            self._rejoin()
        schedule = self.scheduler.schedule()
        for row in schedule.joined:
            self._guarded(row, self._join, row)
        rows = schedule.rows
        if self._expander.waiting:
            rows = [row for row in rows if not self._expander.holds(row)]
        if self._recorder.active:
            rows = [row for row in rows if not row.over or self._recorder.owes(row)]
            return self._recorder.plan(rows, self._scores.shape[1])
        return [row for row in rows if not row.over], []

    def _rejoin(self) -> None:
        """Go on with the rows whose states are known now; where all rows wait, wait for the first of them."""
        others = any(not self._expander.holds(row) for row in self.scheduler.running)
        for held in self._expander.ready(0.0 if others else WAIT_S):
            if self.scheduler.holds(held.row):
                self._guarded(held.row, self._go_on, held)

    def _go_on(self, held: Held) -> None:
        """Do what could not be done before, with what was kept."""
        row, token_id = held.row, held.token_id
        if held.error is not None:
            raise held.error
        if token_id is None:
            self._join(row)
            return
        logits, mask = held.drawn_from
        if self._take(row, token_id, held.refused_id) is False:
            self._draw_again([row], np.array([token_id], np.int32), [0], logits[None], mask[None])
        self._expander.keep([row], logits[None], mask[None])
        if not self._expander.holds(row):
            self._recorder.score_late(row, logits)

    def _join(self, row: Sequence) -> None:
        job = row.job
        if job.started_s is None:
            job.started_s = self._clock()
        prompt_tokens = len(row.pending)
        if self._unless_held(row, None, None, self._walk.begin, row) is NOT_NOW:
            return
        self._recorder.open(row)
        if not row.over or self._recorder.owes(row):
            self._samplers.open(row.slot, job.request.sampling, job.seed, row.index)
            self._penalties.open(row.slot, job.request.sampling)
            self._model.reset(row.slot)
            self.counters.prompt_tokens += prompt_tokens

    def _forward(self, rows: list[Sequence]) -> FloatArray:
        started_s = self._clock()
        active = self._recorder.active
        chunks = list(map(self._recorder.chunk if active else _PENDING, rows))
        batch = batch_of(rows, chunks)
        if active:
            batch = replace(batch, inner=self._recorder.inner(rows, batch.row_offsets))
        logits = self._model.forward(batch)
        for row, chunk in zip(rows, chunks, strict=True):
            del row.pending[: len(chunk)]
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
        self._score(rows, logits, masks, scores)
        self.counters.interventions += self._interventions(rows, logits, masks)
        self.counters.mask_s += self._clock() - started_s
        return scores, masks

    def _interventions(self, rows: list[Sequence], logits: FloatArray, masks: WordArray) -> int:
        """How many rows would have had another token without their schema, drawn greedily."""
        best = logits[:, : len(self._vocabulary)].argmax(axis=1).astype(np.int32)
        forbidden = np.flatnonzero(~are_allowed(masks, best))
        return sum(rows[number].matcher is not None for number in forbidden)

    def _score(self, rows: list[Sequence], logits: FloatArray, masks: WordArray, scores: FloatArray) -> None:
        """Write what the rows' tokens are drawn by into `scores`, float32 (B, 32 W)."""
        apply_mask(logits, masks, scores)
        self._penalties.apply(scores, rows)

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

    def _advance(self, rows: list[Sequence], drawn: Drawn) -> list[int]:
        """Give each row its token; return the numbers of those whose token leaves no room to end the text."""
        started_s = self._clock()
        refused: list[int] = []
        pairs = zip(rows, drawn.token_ids.tolist(), drawn.outcomes.tolist(), strict=True)
        for number, (row, token_id, outcome) in enumerate(pairs):
            if row.job.prefilled_s is None:
                row.job.prefilled_s = started_s
            if outcome == Outcome.DRAWN:
                if self._guarded(row, self._take, row, token_id) is False:
                    refused.append(number)
            elif not row.over:
                self._guarded(row, self._refuse, row, outcome)
        self.counters.advance_s += self._clock() - started_s
        return refused

    def _draw_again(
        self, rows: list[Sequence], token_ids: IntArray, refused: list[int], logits: FloatArray, masks: WordArray
    ) -> None:
        """Draw once more for some rows, from what the token limit leaves; their masks are narrowed to that."""
        for number in refused:
            self._guarded(rows[number], self._narrow, rows[number], int(token_ids[number]), masks[number])
        tight = [number for number in refused if not rows[number].over and not self._expander.holds(rows[number])]
        if not tight:
            return
        few = [rows[number] for number in tight]
        scores = self._scores[: len(few)]
        self._score(few, logits[tight], masks[tight], scores)
        again = self._sample(few, scores, masks[tight])
        outcomes = again.outcomes.tolist()
        for row, number, token_id, outcome in zip(few, tight, again.token_ids.tolist(), outcomes, strict=True):
            if outcome == Outcome.DRAWN:
                self._guarded(row, self._take, row, token_id, int(token_ids[number]))
            else:
                self._guarded(row, self._refuse, row, outcome)

    def _take(self, row: Sequence, token_id: int, refused_id: int | None = None) -> object:
        """Give a row its token, in place of a refused one where there is one; False where it leaves too little room."""
        if refused_id is None:
            return self._unless_held(row, token_id, None, self._walk.advance, row, token_id)
        return self._unless_held(row, token_id, refused_id, self._walk.advance_instead, row, token_id, refused_id)

    def _narrow(self, row: Sequence, token_id: int, mask: WordArray) -> None:
        if row.matcher is not None:
            narrowed = self._unless_held(row, token_id, None, row.matcher.mask_within, row.tokens_left - 1)
            if narrowed is not NOT_NOW:
                mask[:] = narrowed

    def _unless_held(
        self, row: Sequence, token_id: int | None, refused_id: int | None, action: Callable[..., T], *arguments: object
    ) -> T | NotNow:
        """Do something that moves a row's matcher, and look up its next mask; NOT_NOW where the row is held instead."""
        before = Mark.of(row)
        try:
            outcome = action(*arguments)
            if row.matcher is not None and not row.over:
                row.matcher.mask()
        except NotNowError:
            before.restore(row)
            self._expander.hold(row, token_id, refused_id)
            return NOT_NOW
        return outcome

    def _refuse(self, row: Sequence, outcome: int) -> None:
        if outcome == Outcome.NOT_FINITE:
            raise EngineFailedError(f"the model's logits for choice {row.index} are not finite numbers")
        if outcome == Outcome.FORBIDDEN:
            raise EngineFailedError(f"a token was drawn for choice {row.index} that its mask forbids")
        if not self._walk.dead_end(row):
            raise RowDeadError(row.index, "" if row.matcher is None else row.matcher.pointer())

    def _guarded(self, row: Sequence, action: Callable[..., object], *arguments: object) -> object:
        """Do something with one row, and return what it returns; whatever it raises ends that row alone."""
        outcome: object = None
        try:
            outcome = action(*arguments)
        except KatagamiError as error:
            row.error = error
        except Exception as error:
            logger.exception("choice %d of a request failed", row.index)
            row.error = EngineFailedError(f"{type(error).__name__}: {error}")
        if row.over and row not in self._over:
            self._over.append(row)
        return outcome

    def _record(self, rows: list[Sequence], logits: FloatArray) -> None:
        """Keep the probabilities that some of the rows want; those that owe none any more may leave."""
        if not self._recorder.active:
            return
        self._recorder.score(rows, logits)
        self._over += [row for row in rows if row.over and row not in self._over]

    def _leave(self) -> list[Sequence]:
        over = [row for row in self._over if not self._recorder.owes(row)]
        self._over = []
        for row in over:
            self._expander.forget(row)
            self._recorder.close(row)
            self.scheduler.release(row)
            self.counters.forced_tokens += row.forced_tokens
            self.counters.sampled_tokens += len(row.token_ids) - row.forced_tokens
        return over


def batch_of(rows: list[Sequence], chunks: list[list[int]]) -> Batch:
    """Pack what each row is fed."""
    offsets = np.fromiter(accumulate(map(len, chunks), initial=0), np.int32, len(rows) + 1)
    token_ids = np.fromiter(chain.from_iterable(chunks), np.int32, int(offsets[-1]))
    return Batch(token_ids, offsets, slots_of(rows))


def slots_of(rows: list[Sequence]) -> IntArray:
    """Slot of each row, int32 (B,)."""
    return np.array([row.slot for row in rows], np.int32)
