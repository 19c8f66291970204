"""Logits and masks in, one token per row out: mask, temperature, top-k, top-p, min-p, draw; a function for each.

Bias and penalties belong before the mask, and are added right behind it, which comes to the same: see `penalties`.

In: logits float32 (B, L) and packed masks uint32 (B, W) over a vocabulary of V tokens, W = ceil(V / 32). Out: `Drawn`.
A model's output may be wider than the vocabulary: what lies beyond V is masked like any forbidden token. A logit that
is not a number fails its row wherever it is; an infinite one only where it is allowed.

Scores and weights lie in one buffer, float32 (B, 32 W), padded so that 32 tokens share a mask word and so that every
pass runs over contiguous memory; the padding is masked like any forbidden token. `weights` are probabilities not yet
divided by their sum.

Cost for B = 500, V = 838: the mask 0.09 ms, exp and the passes around it 0.3 ms, the draw 0.2 ms.

- *Mask.* A table turns each byte of the mask into eight floats, +inf or -inf, and one `minimum` with the logits does
  the rest: 0.09 ms, where `putmask`, `copyto(where=)` and `where` on unpacked bits take 1.3 ms each, since they branch.
  It is 0.14 ms where the model's output is not 32 W wide, since numpy then has to go from row to row.
- *Draw.* The sums of blocks of 32 tokens are searched, then the one block: a cumulative sum over whole rows costs
  1.2 ms, and the Gumbel trick needs V random numbers per row.

Rejected: keeping each schema's mask rows as floats and gathering those (no faster: both are bound by memory), drawing
from the whole vocabulary and repeating while forbidden (the same distribution, but no bound on the time), and falling
back to some token when all are forbidden: such a row is reported as dead.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from engine.request import Sampling

FloatArray = NDArray[np.float32]
DoubleArray = NDArray[np.float64]
IntArray = NDArray[np.int32]
WordArray = NDArray[np.uint32]

UNIFORMS_AHEAD = 64  # random numbers drawn at once for a row: 0.5 KB each, and 1/64 of the calls
WORD_BITS = 32

# float32 (256, 8): what each byte of a mask lets through of the logits of its eight tokens.
CEILINGS = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"), np.float32(np.inf), -np.inf
).astype(np.float32)


class Outcome(IntEnum):
    """What became of a row's draw."""

    DRAWN = 0
    DEAD = 1  # the mask allows no token
    NOT_FINITE = 2  # the best of the allowed logits is no number, or infinite
    FORBIDDEN = 3  # the mask forbids what was drawn: a fault of the sampler


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """One token per row; of no meaning where the outcome is not `DRAWN`."""

    token_ids: IntArray  # int32 (B,)
    outcomes: NDArray[np.uint8]  # uint8 (B,), values of `Outcome`


def apply_mask(logits: FloatArray, masks: WordArray, out: FloatArray) -> None:
    """Write the logits of allowed tokens, and -inf for all others, into `out`.

    Parameters
    ----------
    logits : float32, shape (B, L)
        L at least V; not changed. Fastest where L = 32 W.
    masks : uint32, shape (B, W)
        Bits at or beyond V are 0.
    out : float32, shape (B, 32 W)
        Contiguous.
    """
    words = masks.astype("<u4", copy=False)
    np.take(CEILINGS, words.view(np.uint8), axis=0, out=out.reshape(len(masks), -1, 8), mode="clip")
    tokens = out[:, : logits.shape[1]]
    np.minimum(tokens, logits[:, : out.shape[1]], out=tokens)


def apply_temperature(scores: FloatArray, top: FloatArray, temperature: FloatArray) -> None:
    """Turn scores into weights, in place: exp((score - top) / temperature), so that the best token has weight 1.

    `top` (B,) is the best score of each row, `temperature` (B,) above 0. A row whose `top` is not finite comes out as
    numbers of no meaning.
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        scores -= top[:, None]
        if (temperature != 1).any():
            scores *= (1.0 / temperature)[:, None]
        np.exp(scores, out=scores)


def apply_top_k(weights: FloatArray, top_k: NDArray[np.int64]) -> None:
    """Keep exactly the k heaviest tokens of each row, in place; the lower ids among equals; k (B,) at least 1."""
    _keep_heaviest(weights, np.sort(weights, axis=1)[:, ::-1], top_k)


def apply_top_p(weights: FloatArray, top_p: DoubleArray) -> None:
    """Keep the fewest heaviest tokens whose share of the row's weight is at least p, in place; p (B,) in (0, 1]."""
    descending = np.sort(weights, axis=1)[:, ::-1]
    reached = np.cumsum(descending, axis=1, dtype=np.float64)
    needed = (reached < (top_p * reached[:, -1])[:, None]).sum(axis=1) + 1
    _keep_heaviest(weights, descending, needed)


def apply_min_p(weights: FloatArray, min_p: DoubleArray) -> None:
    """Drop tokens that weigh less than min_p times the heaviest, in place; min_p (B,) in [0, 1]."""
    weights[weights < (min_p * weights.max(axis=1))[:, None]] = 0.0


def _keep_heaviest(weights: FloatArray, descending: FloatArray, counts: NDArray[np.int64]) -> None:
    last = np.minimum(counts, weights.shape[1]) - 1
    threshold = np.take_along_axis(descending, last[:, None], axis=1)
    above = (weights > threshold).sum(axis=1)
    equal = weights == threshold
    surplus = equal & (np.cumsum(equal, axis=1) > (counts - above)[:, None])
    weights[(weights < threshold) | surplus] = 0.0


def draw_tokens(weights: FloatArray, uniforms: DoubleArray) -> IntArray:
    """Draw one token per row in proportion to the weights: the inverse of the cumulative sum, in two levels.

    Parameters
    ----------
    weights : float32, shape (B, 32 W)
        Not negative; some of each row above 0.
    uniforms : float64, shape (B,)
        In [0, 1).

    Returns
    -------
    int32, shape (B,)
        A token of weight 0 is never drawn.
    """
    blocks = weights.reshape(len(weights), -1, WORD_BITS)
    block, below = _invert(np.einsum("bwi->bw", blocks), uniforms)
    offset, _ = _invert(blocks[np.arange(len(blocks)), block], below)
    return (block * WORD_BITS + offset).astype(np.int32)


def _invert(weights: FloatArray, uniforms: DoubleArray) -> tuple[NDArray[np.int64], DoubleArray]:
    """First index whose cumulative weight exceeds the row's share, and how far into that index it lies, in [0, 1)."""
    reached = np.cumsum(weights, axis=1, dtype=np.float64)
    share = uniforms * reached[:, -1]
    index = (reached > share[:, None]).argmax(axis=1)
    weight = np.take_along_axis(weights, index[:, None], axis=1)[:, 0].astype(np.float64)
    before = np.take_along_axis(reached, index[:, None], axis=1)[:, 0] - weight
    with np.errstate(invalid="ignore", divide="ignore"):
        within = (share - before) / weight
    return index, np.clip(within, 0.0, np.nextafter(1.0, 0.0))


def are_allowed(masks: WordArray, token_ids: IntArray) -> NDArray[np.bool_]:
    """Whether each row's token (B,) is allowed by its mask (B, W)."""
    words = masks[np.arange(len(masks)), token_ids // WORD_BITS]
    return (words >> (token_ids % WORD_BITS).astype(np.uint32) & np.uint32(1)).astype(bool)


class Samplers:
    """Settings and random stream of each slot, side by side in arrays, so that a step draws all rows at once.

    A row's stream depends on the seed and the row's index within its request alone, not on the slot or on what else is
    running. Used by one thread.
    """

    def __init__(self, slots: int) -> None:
        self._temperature = np.ones(slots, np.float32)  # 1 where greedy
        self._greedy = np.zeros(slots, bool)
        self._top_k = np.zeros(slots, np.int64)
        self._top_p = np.ones(slots, np.float64)
        self._min_p = np.zeros(slots, np.float64)
        self._truncated = np.zeros(slots, bool)  # any of the three is on
        self._uniforms = np.zeros((slots, UNIFORMS_AHEAD), np.float64)
        self._used = np.zeros(slots, np.int64)  # how many of a slot's uniforms are spent
        self._generators: list[np.random.Generator] = [np.random.default_rng(0)] * slots

    def open(self, slot: int, sampling: Sampling, seed: int, index: int) -> None:
        """Take over a slot for row `index` of a request with this seed."""
        greedy = sampling.temperature == 0
        self._greedy[slot] = greedy
        self._temperature[slot] = 1.0 if greedy else max(sampling.temperature, float(np.finfo(np.float32).tiny))
        self._top_k[slot], self._top_p[slot], self._min_p[slot] = sampling.top_k, sampling.top_p, sampling.min_p
        self._truncated[slot] = not greedy and (sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0)
        entropy = np.random.SeedSequence(entropy=seed % (1 << 64), spawn_key=(index,))
        self._generators[slot] = np.random.Generator(np.random.PCG64(entropy))
        self._used[slot] = UNIFORMS_AHEAD

    def draw(self, scores: FloatArray, masks: WordArray, slots: IntArray) -> Drawn:
        """Draw a token for each row.

        Parameters
        ----------
        scores : float32, shape (B, 32 W)
            As `apply_mask` wrote them; used up.
        masks : uint32, shape (B, W)
            What is allowed; each drawn token is checked against it once more.
        slots : int32, shape (B,)
            Whose settings and stream a row has.
        """
        top = scores.max(axis=1)
        greedy = self._greedy[slots]
        token_ids = np.zeros(len(slots), np.int32)
        if greedy.any():
            token_ids[greedy] = scores[greedy].argmax(axis=1)
        if not greedy.all():
            drawn = self._draw_random(scores, top, slots)
            token_ids[~greedy] = drawn[~greedy]
        outcomes = np.where(are_allowed(masks, token_ids), Outcome.DRAWN, Outcome.FORBIDDEN).astype(np.uint8)
        outcomes[~np.isfinite(top)] = Outcome.NOT_FINITE
        if outcomes.any():
            outcomes[~masks.any(axis=1)] = Outcome.DEAD
        return Drawn(token_ids, outcomes)

    def _draw_random(self, scores: FloatArray, top: FloatArray, slots: IntArray) -> IntArray:
        apply_temperature(scores, top, self._temperature[slots])
        rows = np.flatnonzero(self._truncated[slots])
        if len(rows):
            scores[rows] = self._truncate(scores[rows], slots[rows])
        return draw_tokens(scores, self._next_uniforms(slots))

    def _truncate(self, weights: FloatArray, slots: IntArray) -> FloatArray:
        top_k = self._top_k[slots]
        if top_k.any():
            apply_top_k(weights, np.where(top_k > 0, top_k, weights.shape[1]))
        if (self._top_p[slots] < 1).any():
            apply_top_p(weights, self._top_p[slots])
        if self._min_p[slots].any():
            apply_min_p(weights, self._min_p[slots])
        return weights

    def _next_uniforms(self, slots: IntArray) -> DoubleArray:
        for slot in slots[self._used[slots] == UNIFORMS_AHEAD]:
            self._uniforms[slot] = self._generators[slot].random(UNIFORMS_AHEAD)
            self._used[slot] = 0
        uniforms = self._uniforms[slots, self._used[slots]]
        self._used[slots] += 1
        return uniforms
