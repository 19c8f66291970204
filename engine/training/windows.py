"""Tokenised lines in, training examples out: each token with the 24 before it.

In: token ids of each line. Out: `Examples`, all lines in one array, each behind 24 end tokens and followed by one. The
window of an example is a slice of that array, so a batch is one gather. A window holds nothing of the line before: that
is how the model sees the beginning of a line when it runs (see engine/models/window_mlp.py). Cost: 2 bytes per token
and 48 per line. Rejected: windows laid out beforehand, 24 times the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.models.window_mlp import WINDOW_TOKENS


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Every token of every line, the end tokens too, as something to predict."""

    token_ids: NDArray[np.uint16]  # (N,): end tokens, a line, an end token, and so on
    positions: NDArray[np.int32]  # (M,): where the tokens to predict are

    def __len__(self) -> int:
        return len(self.positions)

    def at(self, chosen: NDArray[np.integer[Any]]) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
        """Windows (B, 24) and targets (B,) of the examples with these numbers, int (B,)."""
        slices = np.lib.stride_tricks.sliding_window_view(self.token_ids, WINDOW_TOKENS + 1)
        rows = slices[self.positions[chosen] - WINDOW_TOKENS]
        return rows[:, :-1], rows[:, -1]


def build_examples(lines: Sequence[Sequence[int]], end_id: int) -> Examples:
    """Lay out the lines, each given by its token ids without an end token."""
    padding = [end_id] * WINDOW_TOKENS
    token_ids = np.array([token for line in lines for token in (*padding, *line, end_id)], np.uint16)
    lengths = np.array([len(line) + 1 for line in lines])
    starts = np.cumsum(lengths + WINDOW_TOKENS) - lengths
    positions = np.concatenate(
        [np.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)]
    )
    return Examples(token_ids, positions.astype(np.int32))
