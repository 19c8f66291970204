"""The forward pass of a Llama-type decoder, over whole batches.

In: a `Batch` of new tokens. Out: final hidden states, and logits of them: of all tokens, or only of those that are
allowed. Cost, SmolLM2 in float32, one BLAS thread: see tests/benchmarks/bench_llama.py.

The tokens of all rows are packed one after another for the matrix products, whatever their number in each row, and only
attention looks at rows. A pass takes at most `PASS_TOKENS`; a larger batch is cut into several, so that memory is
bounded. The number of packed tokens is padded to a multiple of four: the BLAS computes in fours, and takes longer for
three rows than for four. Two are taken one by one, which costs 22 ms where four cost 31.

A prompt may be fed in parts: `hidden` feeds a batch without computing any logits, and a row whose prompt is not over
simply is not asked for them. Sources: Touvron et al. 2023 (Llama), Zhang and Sennrich 2019 (RMSNorm), Shazeer 2020
(SwiGLU), Ainslie et al. 2023 (grouped queries).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from engine.config import KV_CACHE_BYTES
from engine.models import Batch, IntArray
from engine.models.llama.attention import Attention, Piece
from engine.models.llama.config import FloatArray, LlamaConfig
from engine.models.llama.kv_cache import KvCache
from engine.models.llama.rotary import turns_of
from engine.models.llama.weights import LlamaWeights
from engine.models.tiles import fixed_tiles

PASS_TOKENS = 256  # the products run at full speed from about this many on
ROW_MULTIPLE = 4
FEW_ROWS = 2


@dataclass(frozen=True, slots=True, eq=False)
class _Scratch:
    """What a pass writes into; N rows of it are used. Kept, since fresh memory costs page faults."""

    hidden: FloatArray  # (PASS_TOKENS, D)
    normed: FloatArray  # (PASS_TOKENS, D)
    update: FloatArray  # (PASS_TOKENS, D)
    qkv: FloatArray  # (PASS_TOKENS, (H + 2 K) S)
    attended: FloatArray  # (PASS_TOKENS, H S)
    gate_up: FloatArray  # (PASS_TOKENS, 2 F)
    inner: FloatArray  # (PASS_TOKENS, F)

    @classmethod
    def of(cls, config: LlamaConfig) -> _Scratch:
        """Fresh ones for this config."""
        hidden, queries, inner = config.hidden_size, config.heads * config.head_size, config.inner_size
        fused = queries + 2 * config.kv_heads * config.head_size
        widths = (hidden, hidden, hidden, fused, queries, 2 * inner, inner)
        return cls(*(np.zeros((PASS_TOKENS, width), np.float32) for width in widths))

    def rows(self, count: int) -> _Scratch:
        """Their first rows."""
        return _Scratch(*(getattr(self, name)[:count] for name in self.__slots__))


class LlamaModel:
    """A Llama-type decoder over slots; used by one thread at a time.

    Parameters
    ----------
    config : LlamaConfig
        Sizes and switches.
    weights : LlamaWeights
        Only read; may be memory-mapped.
    cache_bytes : int
        Most memory for keys and values, of all sequences together.

    Attributes
    ----------
    cache : KvCache
        What it remembers of its sequences: takes room for them, and lets one begin with what another has.
    """

    def __init__(self, config: LlamaConfig, weights: LlamaWeights, cache_bytes: int = KV_CACHE_BYTES) -> None:
        self._config, self._weights = config, weights
        self._scratch = _Scratch.of(config)
        self.cache = KvCache(config, cache_bytes)
        self.allocate(0)

    @property
    def vocabulary_size(self) -> int:
        """How many tokens there are, V; the logits are padded to a multiple of 32."""
        return self._config.vocabulary_size

    @property
    def context_length(self) -> int:
        """Most tokens, prompt and output together, of one sequence: what it was trained for, or what memory holds."""
        return min(self._config.context_length, self.cache.capacity_tokens - 1)  # one to start an empty prompt with

    def allocate(self, slots: int, batch_invariant: bool = False) -> None:
        """Make room for this many sequences; forgets all of them.

        Where it is to be `batch_invariant`, products are made in fixed tiles of rows and attention row by row: then the
        logits of a row depend on its own tokens, and on how they were cut into batches, alone.
        """
        self.cache.allocate(slots)
        kinds = ("qkv", "attention_output", "gate_up", "down")
        matrices = [*(getattr(self._weights, name)[0] for name in kinds), self._weights.output]
        self._tile_rows = fixed_tiles([matrix.T for matrix in matrices]) if batch_invariant else None
        self._last_hidden = np.zeros((slots, self._config.hidden_size), np.float32)

    def reset(self, slot: int) -> None:
        """Forget the sequence in `slot`, so that another may use it."""
        self.cache.reset(slot)

    def forward(self, batch: Batch) -> FloatArray:
        """Feed the new tokens; logits after the last of each row, then after the inner ones: float32 (B + M, P)."""
        return self.logits(self.hidden(batch))

    def hidden(self, batch: Batch) -> FloatArray:
        """Feed the new tokens, and return the final hidden states from which logits are computed.

        Returns
        -------
        float32, shape (B + M, D)
            After the last token of each row, then after the inner ones. Rows that nobody needs logits of (their prompt
            goes on) are there too, and cost nothing.

        Raises
        ------
        CacheFullError
            When a row has no room. After this or any other error all rows of the batch are forgotten: some of their
            tokens may be noted and not computed.
        """
        try:
            return self._feed(self._started(batch))
        except BaseException:
            for slot in batch.slots.tolist():
                self.cache.reset(slot)
            raise

    def logits(self, hidden: FloatArray) -> FloatArray:
        """Logits of hidden states (N, D) for all tokens, float32 (N, P)."""
        rows = np.zeros((self._padded(len(hidden)), hidden.shape[1]), np.float32)
        rows[: len(hidden)] = hidden
        found = np.empty((len(rows), self._weights.output.shape[1]), np.float32)
        self._multiply(rows, self._weights.output, found)
        return found[: len(hidden)]

    def logits_of(self, hidden: FloatArray, token_ids: IntArray, row_offsets: IntArray) -> FloatArray:
        """Logits of hidden states for some tokens only, which is cheaper up to about a thousand of them a row.

        Parameters
        ----------
        hidden : float32, shape (B, D)
            One state a row.
        token_ids : int32, shape (N,)
            `row_offsets[b]:row_offsets[b + 1]` of them are the tokens of row b.
        row_offsets : int32, shape (B + 1,)

        Returns
        -------
        float32, shape (N,)
        """
        found, offsets = np.empty(len(token_ids), np.float32), row_offsets.tolist()
        for state, start, end in zip(hidden, offsets[:-1], offsets[1:], strict=True):
            np.matmul(self._weights.output_rows[token_ids[start:end]], state, out=found[start:end])
        return found

    def _feed(self, batch: Batch) -> FloatArray:
        """As `hidden`, for rows none of which is empty and new."""
        found = np.empty((len(batch.slots) + len(batch.inner), self._config.hidden_size), np.float32)
        wanted = np.concatenate([batch.row_offsets[1:] - 1, batch.inner])
        ends = pass_ends(batch.row_offsets)
        for start, end in pairwise([0, *ends]):
            hidden = self._pass(batch, start, end)
            here = np.flatnonzero((start <= wanted) & (wanted < end))
            found[here] = hidden[wanted[here] - start]
        rows, nothing_new = found[: len(batch.slots)], np.diff(batch.row_offsets) == 0
        rows[nothing_new] = self._last_hidden[batch.slots[nothing_new]]
        self._last_hidden[batch.slots] = rows
        return found

    def _started(self, batch: Batch) -> Batch:
        """The batch with the token that starts a text in each row that has nothing, neither new nor fed before."""
        lengths = np.diff(batch.row_offsets)
        empty = [row for row in np.flatnonzero(lengths == 0) if not self.cache[int(batch.slots[row])].length]
        if not empty:
            return batch
        places = batch.row_offsets[empty]
        lengths[empty] = 1
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        inner = batch.inner + np.searchsorted(places, batch.inner, side="right").astype(np.int32)
        return Batch(np.insert(batch.token_ids, places, self._config.start_id), offsets, batch.slots, inner)

    def _pass(self, batch: Batch, start: int, end: int) -> FloatArray:
        """Feed the packed tokens `start:end`, and return their final hidden states (at least their number, D)."""
        config, weights, count = self._config, self._weights, end - start
        scratch = self._scratch.rows(self._padded(count))
        pieces = self._pieces(batch, start, end)
        positions = np.concatenate([np.arange(piece.past, piece.total, dtype=np.int32) for piece in pieces])
        turned = (config.heads + config.kv_heads) * config.head_size
        pairs = scratch.qkv[:count, :turned].view(np.complex64).reshape(count, -1, config.head_size // 2)
        turns = turns_of(config.frequencies, positions)[:, None]
        attention = Attention(config, pieces, scratch.qkv, scratch.attended, apart=self._tile_rows is not None)
        scratch.attended[count:] = 0
        scratch.hidden[count:] = 0
        np.take(weights.embedding, batch.token_ids[start:end], axis=0, out=scratch.hidden[:count])
        with np.errstate(over="ignore"):  # exp of a large number: its reciprocal, 0, is meant
            for layer in range(config.layers):
                self._project(layer, scratch)
                pairs *= turns
                attention.attend(layer)
                self._multiply(scratch.attended, weights.attention_output[layer], scratch.update)
                np.add(scratch.hidden, scratch.update, out=scratch.hidden)
                self._feed_forward(layer, scratch)
        _rms_norm(scratch.hidden, weights.final_norm, config.epsilon, scratch.normed)
        return scratch.normed

    def _pieces(self, batch: Batch, start: int, end: int) -> list[Piece]:
        """The rows that have tokens among `start:end`, which are noted in the cache."""
        first = int(np.searchsorted(batch.row_offsets, start, side="right")) - 1
        last = int(np.searchsorted(batch.row_offsets, end, side="left"))
        offsets = np.clip(batch.row_offsets[first : last + 1], start, end).tolist()
        pieces = []
        for slot, begin, stop in zip(batch.slots[first:last].tolist(), offsets[:-1], offsets[1:], strict=True):
            if begin < stop:
                past = self.cache.extend(slot, batch.token_ids[begin:stop])
                pieces.append(Piece(self.cache[slot].data, begin - start, stop - start, past))
        return pieces

    def _project(self, layer: int, scratch: _Scratch) -> None:
        """Queries, keys and values."""
        weights = self._weights
        _rms_norm(scratch.hidden, weights.attention_norm[layer], self._config.epsilon, scratch.normed)
        self._multiply(scratch.normed, weights.qkv[layer], scratch.qkv)
        if self._config.attention_bias:
            np.add(scratch.qkv, weights.qkv_bias[layer], out=scratch.qkv)

    def _feed_forward(self, layer: int, scratch: _Scratch) -> None:
        """SwiGLU: silu(gate) * up, back to the hidden size, added."""
        weights, inner = self._weights, scratch.inner
        _rms_norm(scratch.hidden, weights.ffn_norm[layer], self._config.epsilon, scratch.normed)
        self._multiply(scratch.normed, weights.gate_up[layer], scratch.gate_up)
        gate, up = scratch.gate_up[:, : inner.shape[1]], scratch.gate_up[:, inner.shape[1] :]
        np.negative(gate, out=inner)
        np.exp(inner, out=inner)
        inner += 1
        np.divide(gate, inner, out=inner)
        inner *= up
        self._multiply(inner, weights.down[layer], scratch.update)
        np.add(scratch.hidden, scratch.update, out=scratch.hidden)

    def _padded(self, count: int) -> int:
        """How many rows a product of so many is made with."""
        multiple = self._tile_rows or (1 if count <= FEW_ROWS else ROW_MULTIPLE)
        return count + -count % multiple

    def _multiply(self, rows: FloatArray, weight: FloatArray, out: FloatArray) -> None:
        """Write rows (`_padded` of them) @ weight into `out`."""
        at_once = self._tile_rows or (1 if len(rows) <= FEW_ROWS else len(rows))
        tiles = len(rows) // at_once, at_once
        np.matmul(rows.reshape(*tiles, rows.shape[1]), weight, out=out.reshape(*tiles, out.shape[1]))


def _rms_norm(hidden: FloatArray, weight: FloatArray, epsilon: float, out: FloatArray) -> None:
    """Each row divided by the root of its mean square, times the weight."""
    mean_square = np.einsum("nd,nd->n", hidden, hidden)[:, None] / np.float32(hidden.shape[1])
    mean_square += np.float32(epsilon)
    np.divide(hidden, np.sqrt(mean_square), out=out)
    out *= weight


def pass_ends(row_offsets: IntArray) -> list[int]:
    """Where passes over packed tokens end: after at most `PASS_TOKENS`, and as few as possible.

    A row is cut only where it is longer than a pass, and then as if it were alone: how its tokens are cut must not
    depend on the other rows.
    """
    ends, begun, reached = [], 0, 0
    for first, last in pairwise(row_offsets.tolist()):
        for end in (*range(first + PASS_TOKENS, last, PASS_TOKENS), last):
            if end - begun > PASS_TOKENS:
                ends.append(reached)
                begun = reached
            reached = end
    return [*ends, reached] if reached > begun else ends
