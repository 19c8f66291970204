"""Rows with few allowed tokens: drawn from the logits of those alone.

In: masks, known before the model is asked. Out: which tokens they allow, and a token for each row, the one that would
be drawn from the logits of the whole vocabulary. Cost: some fifteen numpy calls for all rows together, 60 microseconds
for 32 rows of a vocabulary of 49,152; a row of whole logits costs 0.8 ms there, and 5.7 ms where it is the only one.

A row is folded: of its mask and its scores only the words of 32 tokens stay in which any is allowed. The draw sums up
such words, and what is left out would have added exact zeros; so the same random number falls on the same token. Only
the logits themselves may differ, in their last bit, since another product makes them.

Rejected: writing the few logits into a row of the whole vocabulary, which the draw then goes through several times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.sampling import WORD_BITS, Drawn, FloatArray, IntArray, WordArray

LongArray = NDArray[np.int64]

FEW_TOKENS = 1000
"""Up to so many in a row it is cheaper to ask for them alone: gathering their rows of the output matrix takes as long
as the row's share in the product with all of it."""


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """Masks of R rows without their empty words.

    Attributes
    ----------
    words : int32, shape (R, C)
        Where each word was; of no meaning beyond a row's last one.
    masks : uint32, shape (R, C)
        The words; 0 beyond a row's last one.
    rows, places : int64, shape (N,)
        The allowed tokens, row by row in ascending order: where their scores stand in (R, 32 C).
    """

    words: IntArray
    masks: WordArray
    rows: LongArray
    places: LongArray

    @property
    def token_ids(self) -> IntArray:
        """The allowed tokens, int32 (N,)."""
        return self._tokens(self.rows, self.places)

    @property
    def row_offsets(self) -> IntArray:
        """`row_offsets[r]:row_offsets[r + 1]` of them are those of row r, int32 (R + 1,)."""
        return np.searchsorted(self.rows, np.arange(len(self.words) + 1)).astype(np.int32)

    def scores(self, logits: FloatArray) -> FloatArray:
        """Scores, float32 (R, 32 C), of the logits of the allowed tokens, float32 (N,)."""
        scores = np.full((len(self.words), self.words.shape[1] * WORD_BITS), -np.inf, np.float32)
        scores[self.rows, self.places] = logits
        return scores

    def unfold(self, drawn: Drawn) -> Drawn:
        """What was drawn, as tokens of the vocabulary."""
        return Drawn(self._tokens(np.arange(len(self.words), dtype=np.int64), drawn.token_ids), drawn.outcomes)

    def _tokens(self, rows: LongArray, places: LongArray | IntArray) -> IntArray:
        return self.words[rows, places // WORD_BITS] * WORD_BITS + (places % WORD_BITS).astype(np.int32)


def fold(masks: WordArray) -> Folded:
    """Leave out the empty words of masks, uint32 (R, W)."""
    rows, words = _places(masks != 0)
    counts = np.bincount(rows, minlength=len(masks))
    width = max(1, int(counts.max(initial=0)))
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = np.zeros((len(masks), width), np.int32)
    kept[rows, places] = words
    folded = np.zeros((len(masks), width), np.uint32)
    folded[rows, places] = masks[rows, words]
    bits = np.unpackbits(folded.astype("<u4", copy=False).view(np.uint8), axis=1, bitorder="little")
    return Folded(kept, folded, *_places(bits.view(bool)))


def allowed_counts(masks: WordArray) -> LongArray:
    """How many tokens each mask, uint32 (B, W), allows; int64 (B,)."""
    wide = masks if masks.shape[1] % 2 else masks.view(np.uint64)  # half as many to add up
    counts: LongArray = np.bitwise_count(wide).sum(axis=1, dtype=np.int64)
    return counts


def _places(found: NDArray[np.bool_]) -> tuple[LongArray, LongArray]:
    """Rows and columns of what is true, row by row; `nonzero` of two dimensions takes twenty times as long."""
    rows, columns = np.divmod(np.flatnonzero(found), found.shape[1])
    return rows, columns
