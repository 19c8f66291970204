"""One step: schedule, forward, mask, sample, advance.

In: sequences. Out: after each step, those that are over. Between steps sequences may join and leave; each has its own
schema, sampling settings, random stream and state. Cost: one forward pass over all rows, a pass or two over the masked
logits, and a few microseconds of Python per row. Masks are known before the pass: logits come after it, as many as they
ask for (`drawing`).

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
from operator import attrgetter
from time import perf_counter
from typing import TypeVar

import numpy as np

from engine.config import FastPath
from engine.constraint import Walk, drawable_words
from engine.drawing import Drawing
from engine.errors import EngineFailedError, RowDeadError, unexpected
from engine.expander import NOT_NOW, WAIT_S, Expander, Held, Mark, NotNow
from engine.feeding import Feed, batch_of, plan_feed
from engine.forcing import Forcing
from engine.models import Model, caching
from engine.outputs import Outputs
from engine.recorder import Recorder
from engine.sampling import WORD_BITS, Drawn, IntArray, Outcome, WordArray
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.slots import CachingSlots, Slots
from engine.stats import StepCounters
from schemas_cache import KatagamiError, Vocabulary, fill_masks
from schemas_cache.work import NotNowError

logger = logging.getLogger(__name__)

T = TypeVar("T")
_MATCHER = attrgetter("matcher")
_HEALING = attrgetter("healing")


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
    fast_path : FastPath
        What is left out.

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
        fast_path: FastPath = FastPath(),  # noqa: B008  # frozen
    ) -> None:
        if model.vocabulary_size < len(vocabulary):
            raise ValueError(f"the model has {model.vocabulary_size} outputs for {len(vocabulary)} tokens")
        model.allocate(max_running, batch_invariant)
        cached, self._chunk_tokens, self._apart = caching(model), fast_path.prefill_chunk_tokens, batch_invariant
        self._slots = Slots(max_running, model.reset)
        if cached:
            self._slots = CachingSlots(max_running, cached, fast_path.prefix_reuse and not batch_invariant)
        self.counters = StepCounters()
        self.scheduler = Scheduler(self._slots)
        self._model, self._cached, self._clock = model, cached, clock
        self._walk = Walk(vocabulary, Forcing(vocabulary, encode_bytes))
        few_logits = cached is not None and fast_path.few_logits
        self._drawing = Drawing(max_running, len(vocabulary), few_logits, self.counters, clock)
        self._drawable = drawable_words(vocabulary)
        self._masks = np.zeros((max_running, len(self._drawable)), np.uint32)
        self._recorder = Recorder(vocabulary, self._drawable)
        self._expander = Expander(self._walk.rehearse)
        self._over: list[Sequence] = []

    @property
    def context_length(self) -> int:
        """Most tokens of a sequence, prompt and output together."""
        return self._model.context_length

    @property
    def stalled(self) -> bool:
        """Whether all its rows wait for states, so that a step can do nothing but wait for the first of them."""
        return self._expander.waiting and all(map(self._expander.holds, self.scheduler.running))

    def step(self, may_wait: bool = True) -> list[Sequence]:
        """Give every running sequence its next token, and return those that are over, their slots taken back.

        `may_wait`: where it is stalled, a few milliseconds; not where another decoder of the thread has work.
        """
        self._expander.begin_step()
        feed = self._schedule(may_wait)
        if feed.chunks:
            rows = feed.drawing
            outputs = self._forward(feed)
            if rows:
                masks = self._mask(rows)
                drawn = self._drawing.draw(rows, outputs, None, masks)
                refused = self._advance(rows, drawn)
                if refused:
                    self._draw_again(rows, drawn.token_ids, refused, outputs, masks)
                self._expander.keep(rows, outputs, masks)
            self._record(feed.rows, outputs)
        self._expander.dispatch()
        return self._leave()

    def abandon(self, error: Exception) -> list[Sequence]:
        """Fail everything that runs, after a step broke off, and return all that is over.

        Where nothing ran, all that waits fails: else the next step would break off too, and the one after it.
        """
        for row in self.scheduler.running or self.scheduler.clear_line():
            if row not in self._over:
                row.error = row.error or error
                self._over.append(row)
        return self._leave()

    def _schedule(self, may_wait: bool) -> Feed:
        """Rows to draw for, rows that only listen to the forward pass, and what is fed of them."""
        if self._expander.waiting:
            self._rejoin(WAIT_S if may_wait and self.stalled else 0.0)
        schedule = self.scheduler.schedule()
        for row, error in schedule.failed:
            self._guarded(row, self._fail, row, error)
        for row in schedule.joined:
            self._guarded(row, self._join, row)
        rows = schedule.rows
        if self._slots.begin():
            rows = [row for row in rows if not self._slots.waits(row)]
        if self._expander.waiting:
            rows = [row for row in rows if not self._expander.holds(row)]
        rows = [row for row in rows if not row.over or self._recorder.owes(row)]
        limit = None if self._cached is None else self._chunk_tokens
        return plan_feed(rows, self._recorder, self._masks.shape[1] * WORD_BITS, limit, self._apart)

    def _rejoin(self, wait_s: float) -> None:
        """Go on with the rows whose states are known now, or within this time where none are."""
        for held in self._expander.ready(wait_s):
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
        outputs, mask = held.drawn_from
        if self._take(row, token_id, held.refused_id) is False:
            self._draw_again([row], np.array([token_id], np.int32), [0], outputs, mask)
        self._expander.keep([row], outputs, mask)
        if not self._expander.holds(row):
            self._recorder.score_late(row, outputs)

    def _join(self, row: Sequence) -> None:
        job = row.job
        if job.started_s is None:
            job.started_s = self._clock()
        prompt_tokens = len(row.pending)
        if self._unless_held(row, None, None, self._walk.begin, row) is NOT_NOW:
            return
        self._recorder.open(row)
        if not row.over or self._recorder.owes(row):
            self._drawing.open(row)
            self._slots.start(row)
            self.counters.prompt_tokens += prompt_tokens

    def _forward(self, feed: Feed) -> Outputs:
        started_s = self._clock()
        batch = batch_of(feed)
        if self._recorder.active:
            batch = replace(batch, inner=self._recorder.inner(feed.rows, batch.row_offsets))
        found = self._model.forward(batch) if self._cached is None else self._cached.hidden(batch)
        for row, chunk in zip(feed.rows, feed.chunks, strict=True):
            del row.pending[: len(chunk)]
            row.model_calls += 1
        self.counters.steps += 1
        self.counters.rows += len(feed.chunks)
        self.counters.forward_s += self._clock() - started_s
        return Outputs(found, self._cached)

    def _mask(self, rows: list[Sequence]) -> WordArray:
        started_s = self._clock()
        masks = self._masks[: len(rows)]
        try:
            any_free = fill_masks(list(map(_MATCHER, rows)), masks)
        except Exception:  # a schema that outgrew its limits, say: find out whose
            any_free = self._fill_one_by_one(rows, masks)
        if any_free:
            masks &= self._drawable
        if any(map(_HEALING, rows)):
            for number, row in enumerate(rows):
                if row.healing is not None:
                    masks[number] = row.healing.allowed
        self.counters.mask_s += self._clock() - started_s
        return masks

    def _fill_one_by_one(self, rows: list[Sequence], masks: WordArray) -> bool:
        """Fail the rows that have no mask; it is all zero then, so that nothing is drawn for them."""
        for number, row in enumerate(rows):
            masks[number] = 0
            self._guarded(row, fill_masks, [row.matcher], masks[number : number + 1])
        return any(row.matcher is None for row in rows)

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
        self, rows: list[Sequence], token_ids: IntArray, refused: list[int], outputs: Outputs, masks: WordArray
    ) -> None:
        """Draw once more for some rows, from what the token limit leaves; their masks are narrowed to that."""
        for number in refused:
            self._guarded(rows[number], self._narrow, rows[number], int(token_ids[number]), masks[number])
        tight = [number for number in refused if not rows[number].over and not self._expander.holds(rows[number])]
        if not tight:
            return
        few = [rows[number] for number in tight]
        again = self._drawing.draw(few, outputs, tight, masks[tight])
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
        if row.matcher is None:
            return action(*arguments)
        before = Mark.of(row)
        try:
            with self._expander.inline():
                outcome = action(*arguments)
                if not row.over:
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
        except Exception as error:
            self._fail(row, error)
        if row.over and row not in self._over:
            self._over.append(row)
        return outcome

    def _fail(self, row: Sequence, error: Exception) -> None:
        if not isinstance(error, KatagamiError):
            logger.error("choice %d of a request failed", row.index, exc_info=error)
            error = unexpected(error)
        row.error = error

    def _record(self, rows: list[Sequence], outputs: Outputs) -> None:
        """Keep the probabilities that some of the rows want; those that owe none any more may leave."""
        if not self._recorder.active:
            return
        self._recorder.score(rows, outputs)
        self._over += [row for row in rows if row.over and row not in self._over]

    def _leave(self) -> list[Sequence]:
        over = [row for row in self._over if not self._recorder.owes(row)]
        self._over = []
        for row in over:
            try:
                self._part_with(row)
            except Exception as error:
                self._fail(row, error)
        return over

    def _part_with(self, row: Sequence) -> None:
        self._expander.forget(row)
        self.scheduler.release(row)
        self._recorder.close(row)
        self.counters.forced_tokens += row.forced_tokens
        self.counters.sampled_tokens += len(row.token_ids) - row.forced_tokens
