"""Masks and the model's outputs in, one token for each row out.

In: the rows of a step, their masks, and what the model says after their last tokens. Out: `Drawn`. A row whose mask
allows few tokens is drawn from their logits alone (`few_tokens`), where the model can give these apart; all others from
whole rows of logits. Cost: see `sampling` and `few_tokens`.

Whole logits go to free text, to rows with bias or penalties, and to those that want log-probabilities or diagnostics,
which need them anyway.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.few_tokens import FEW_TOKENS, allowed_counts, fold
from engine.outputs import Outputs
from engine.penalties import Penalties, is_penalised
from engine.request import Request
from engine.sampling import WORD_BITS, Drawn, FloatArray, IntArray, Samplers, WordArray, apply_mask, are_allowed
from engine.sequence import Sequence
from engine.stats import StepCounters


class Drawing:
    """Draws tokens for the rows of one model; used by one thread.

    Parameters
    ----------
    slots : int
        Most rows of a batch.
    vocabulary_size : int
        V tokens.
    few_logits : bool
        Whether to ask the model for some logits alone; it has to be a `CachingModel` then.
    counters : StepCounters
        Where the time goes, and what the masks bent.
    clock : callable
        Seconds of a monotonic clock.
    """

    def __init__(
        self, slots: int, vocabulary_size: int, few_logits: bool, counters: StepCounters, clock: Callable[[], float]
    ) -> None:
        words = -(-vocabulary_size // WORD_BITS)
        self._vocabulary_size, self._few_logits = vocabulary_size, few_logits
        self._counters, self._clock = counters, clock
        self._samplers = Samplers(slots)
        self._scores = np.zeros((slots, words * WORD_BITS), np.float32)
        self._penalties = Penalties(*self._scores.shape)

    def open(self, row: Sequence) -> None:
        """Begin with a row that has got a slot."""
        job = row.job
        self._samplers.open(row.slot, job.request.sampling, job.seed, row.stream)
        self._penalties.open(row.slot, job.request.sampling)

    def draw(self, rows: list[Sequence], outputs: Outputs, numbers: list[int] | None, masks: WordArray) -> Drawn:
        """Draw a token for each row.

        Parameters
        ----------
        rows : list of Sequence, length B
        outputs : Outputs
            Of the step.
        numbers : list of int, length B, or None
            Which of the outputs are the rows'; None: the first ones.
        masks : uint32, shape (B, W)
            What each row may draw.
        """
        numbers = list(range(len(rows))) if numbers is None and self._few_logits else numbers
        if not self._few_logits or numbers is None:
            return self._draw_whole(rows, outputs, slice(len(rows)) if numbers is None else numbers, masks)
        asks_all = np.array([needs_all_logits(row.job.request) for row in rows], bool)
        is_few = (allowed_counts(masks) <= FEW_TOKENS) & ~asks_all
        drawn = Drawn(np.zeros(len(rows), np.int32), np.zeros(len(rows), np.uint8))
        for some, draw in ((np.flatnonzero(is_few), self._draw_few), (np.flatnonzero(~is_few), self._draw_whole)):
            if len(some):
                found = draw([rows[i] for i in some], outputs, [numbers[i] for i in some], masks[some])
                drawn.token_ids[some], drawn.outcomes[some] = found.token_ids, found.outcomes
        return drawn

    def _draw_whole(
        self, rows: list[Sequence], outputs: Outputs, numbers: slice | list[int], masks: WordArray
    ) -> Drawn:
        started_s = self._clock()
        logits = outputs.logits(numbers)
        given_s = self._clock()
        scores = self._scores[: len(rows)]
        apply_mask(logits, masks, scores)
        self._penalties.apply(scores, rows)
        self._counters.interventions += self._interventions(rows, logits, masks)
        self._counters.forward_s += given_s - started_s
        self._counters.mask_s += self._clock() - given_s
        return self._sample(rows, scores, masks)

    def _draw_few(self, rows: list[Sequence], outputs: Outputs, numbers: list[int], masks: WordArray) -> Drawn:
        started_s = self._clock()
        folded = fold(masks)
        token_ids, row_offsets = folded.token_ids, folded.row_offsets
        folded_s = self._clock()
        logits = outputs.logits_of(numbers, token_ids, row_offsets)
        given_s = self._clock()
        scores = folded.scores(logits)
        self._counters.forward_s += given_s - folded_s
        self._counters.mask_s += folded_s - started_s + self._clock() - given_s
        return folded.unfold(self._sample(rows, scores, folded.masks))

    def _sample(self, rows: list[Sequence], scores: FloatArray, masks: WordArray) -> Drawn:
        started_s = self._clock()
        drawn = self._samplers.draw(scores, masks, slots_of(rows))
        self._counters.sample_s += self._clock() - started_s
        return drawn

    def _interventions(self, rows: list[Sequence], logits: FloatArray, masks: WordArray) -> int:
        """How many rows would have had another token without their schema, drawn greedily."""
        best = logits[:, : self._vocabulary_size].argmax(axis=1).astype(np.int32)
        forbidden = np.flatnonzero(~are_allowed(masks, best))
        return sum(rows[number].matcher is not None for number in forbidden)


def needs_all_logits(request: Request) -> bool:
    """Whether a row needs the logits of all tokens, whatever its mask allows."""
    return request.logprobs is not None or request.diagnostics or is_penalised(request.sampling)


def slots_of(rows: list[Sequence]) -> IntArray:
    """Slot of each row, int32 (B,)."""
    return np.array([row.slot for row in rows], np.int32)
