"""Attention of the rows of one pass, each over its own slot of the KV cache.

In: queries, keys and values of new tokens, packed, rotary embedding applied, queries scaled. Out: what their heads
attend to, packed; keys and values are in the cache then. Cost: for a row with one new token and T in all, two products
that read its keys and values once; SmolLM2, T = 500: 22 microseconds a row and layer.

Rows with one new token go through the softmax together, padded to the longest of those that are less than twice as long
as the shortest. Their products are made row by row, on the cache as it lies, one vector for each head: the same as
a matrix for the heads that share keys takes two to three times as long, since the BLAS repacks the keys for it. Rows
with more new tokens go one by one, in blocks of queries, over no more keys than the last of a block may see.

Rejected: gathering the keys of all rows into one padded array, which copies the whole cache at each layer and step.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from engine.models.llama.config import FloatArray, LlamaConfig

SHORT = 32  # rows up to this long are alike
QUERY_BLOCK = 64  # queries of a long row at once: scores of 64 x T a head, so that they stay in the processor's cache


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """The new tokens of one row in a pass: `start:end` of the packed ones, after `past` that the slot has."""

    data: FloatArray  # (L, 2 K, C, S): the slot's keys and values
    start: int
    end: int
    past: int

    @property
    def total(self) -> int:
        """Tokens of the slot once these are in it."""
        return self.past + self.end - self.start


class Attention:
    """The attention of one pass, layer after layer; what does not change between layers is looked up once.

    Parameters
    ----------
    config : LlamaConfig
        Sizes.
    pieces : list of Piece
        The rows, in any order.
    qkv : float32, shape (at least N, (H + 2 K) S)
        Where queries, keys and values of the N packed tokens will be, for one layer after the other.
    attended : float32, shape (at least N, H S)
        Where the outcome goes; rows beyond N are left as they are.
    apart : bool
        No padding, so that what a row attends to does not depend on the others, down to the last bit.
    """

    def __init__(
        self, config: LlamaConfig, pieces: list[Piece], qkv: FloatArray, attended: FloatArray, apart: bool
    ) -> None:
        self._kv_heads, self._head_size = config.kv_heads, config.head_size
        width, shape = config.heads * config.head_size, (len(qkv), config.kv_heads, -1, config.head_size)
        self._queries, self._attended = qkv[:, :width].reshape(shape), attended.reshape(shape)
        keys_values = qkv[:, width:].reshape(len(qkv), -1, config.head_size)
        self._stores = [
            (piece.data[:, :, piece.past : piece.total], keys_values[piece.start : piece.end].swapaxes(0, 1))
            for piece in pieces
        ]
        self._long = [piece for piece in pieces if piece.end - piece.start > 1]
        single = sorted((piece for piece in pieces if piece.end - piece.start == 1), key=lambda piece: piece.total)
        alike = groupby(single, key=lambda piece: piece.start if apart else max(piece.total, SHORT).bit_length())
        self._groups = [_Group(list(group), self._queries, self._attended) for _, group in alike]

    def attend(self, layer: int) -> None:
        """Write keys and values of one layer into the cache, and what the queries attend to into `attended`."""
        for kept, new in self._stores:
            kept[layer] = new
        for group in self._groups:
            group.attend(layer)
        for piece in self._long:
            self._attend_long(piece.data[layer], piece)

    def _attend_long(self, data: FloatArray, piece: Piece) -> None:
        kv_heads, head_size = self._kv_heads, self._head_size
        for start in range(piece.start, piece.end, QUERY_BLOCK):
            end = min(start + QUERY_BLOCK, piece.end)
            seen = piece.past + end - piece.start
            block = self._queries[start:end].transpose(1, 2, 0, 3).reshape(kv_heads, -1, head_size)
            scores = block @ data[:kv_heads, :seen].swapaxes(1, 2)
            later = np.triu(np.full((end - start, end - start), -np.inf, np.float32), 1)
            scores.reshape(kv_heads, -1, end - start, seen)[..., start - end :] += later
            weights_sum = _exponentiate(scores)
            found = scores @ data[kv_heads:, :seen]
            found /= weights_sum[..., None]
            self._attended[start:end] = found.reshape(kv_heads, -1, end - start, head_size).transpose(2, 0, 1, 3)


class _Group:
    """Rows with one new token each, and of like lengths, the longest last."""

    def __init__(self, pieces: list[Piece], queries: FloatArray, attended: FloatArray) -> None:
        kv_heads, shared = queries.shape[1:3]
        totals = np.array([piece.total for piece in pieces])
        self._beyond = np.arange(totals[-1]) >= totals[:, None, None, None, None]  # where a row has no tokens any more
        self._scores = np.zeros((len(pieces), kv_heads, shared, 1, totals[-1]), np.float32)
        self._rows = [
            (
                queries[piece.start, :, :, None],
                piece.data[:, :kv_heads, None, : piece.total].swapaxes(3, 4),
                scores[..., : piece.total],
                piece.data[:, kv_heads:, None, : piece.total],
                attended[piece.start, :, :, None],
            )
            for piece, scores in zip(pieces, self._scores, strict=True)
        ]
        self._places = np.array([piece.start for piece in pieces])
        self._attended = attended

    def attend(self, layer: int) -> None:
        """Write what the rows attend to in one layer."""
        for queries, keys, scores, _, _ in self._rows:
            np.matmul(queries, keys[layer], out=scores)
        np.copyto(self._scores, -np.inf, where=self._beyond)
        totals = _exponentiate(self._scores)
        for _, _, weights, values, attended in self._rows:
            np.matmul(weights, values[layer], out=attended)
        self._attended[self._places] /= totals


def _exponentiate(scores: FloatArray) -> FloatArray:
    """Turn scores (..., T) into weights exp(score - best), in place, and return their sums (...,)."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    total: FloatArray = scores.sum(axis=-1)
    return total
