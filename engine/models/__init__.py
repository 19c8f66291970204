"""What the step needs of a model: new tokens in, one row of logits per sequence out.

In: a `Batch`, the new tokens of every row packed one after another. Out: float32 logits for the last position of each
row, and for those inside that the batch names: only who asks for probabilities of forced tokens pays for them. A model
owns the memory of its sequences (a window of tokens, a KV cache) in numbered slots, so that rows may be at
different lengths and join and leave between steps. Rejected: passing whole contexts at each step, which costs the
prompt again for every token.

A `CachingModel` keeps what it computed of each token, so that a text may begin with what another has; and what it
computes of a token and what it says of the next one are two steps, since the second is not always wanted whole.

    tiles                       matrix products whose rows do not depend on each other
    window_mlp                  the shipped models' type
    llama/                      decoders with a KV cache
    gguf_file, hf_folder        their checkpoints; gguf_tokenizer: the tokenizer of the first
    models_folder, pull         where models lie, and how they are fetched
    registry                    a name or a path -> a model ready to run
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]


def _nothing() -> IntArray:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One step's work: row b feeds `token_ids[row_offsets[b]:row_offsets[b + 1]]` into slot `slots[b]`."""

    token_ids: IntArray  # int32 (N,): the new tokens of all rows
    row_offsets: IntArray  # int32 (B + 1,): increasing; a row may be empty (its slot's logits are asked for again)
    slots: IntArray  # int32 (B,): distinct
    inner: IntArray = field(default_factory=_nothing)  # int32 (M,): indices into `token_ids`, ascending; no row's last


class Model(Protocol):
    """A next-token predictor over slots; used by one thread at a time."""

    @property
    def vocabulary_size(self) -> int:
        """How many tokens there are, V."""

    @property
    def context_length(self) -> int:
        """Most tokens, prompt and output together, that one sequence may have."""

    def allocate(self, slots: int, batch_invariant: bool = False) -> None:
        """Make room for this many sequences; forgets all of them.

        Where it is to be `batch_invariant`, the logits of a row are bit for bit the same whatever other rows are in the
        batch, in whichever slot it is and however many inner positions are asked for; see `tiles`.
        """

    def reset(self, slot: int) -> None:
        """Forget the sequence in `slot`, so that another may use it."""

    def forward(self, batch: Batch) -> FloatArray:
        """Feed the new tokens; logits after them, float32 (B + M, at least V); beyond V are no tokens.

        First those after the last token of each row, then those after each token of `inner`.
        """


class PrefixCache(Protocol):
    """What a model keeps of its sequences, slot by slot, within one bound of memory."""

    @property
    def token_bytes(self) -> int:
        """Memory of one token."""

    @property
    def capacity_tokens(self) -> int:
        """Most tokens of all slots together."""

    def reserve(self, slot: int, tokens: int) -> bool:
        """Take room for a sequence of at most so many tokens; False while others hold too much of it."""

    def release(self, slot: int) -> None:
        """The sequence is over; its tokens stay for others to begin with until the room is needed."""

    def common_prefix(self, slot: int, token_ids: IntArray) -> int:
        """How many of these tokens, int32 (N,), a slot begins with."""

    def reuse_prefix(self, slot: int, token_ids: IntArray) -> int:
        """Let a slot begin with what any slot holds of these tokens, all but the last, and say how many those are."""


class CachingModel(Model, Protocol):
    """A model that keeps what it computed of each token, and gives logits apart from that.

    `forward(batch)` is `logits(hidden(batch))`.
    """

    @property
    def cache(self) -> PrefixCache:
        """What it keeps."""

    def hidden(self, batch: Batch) -> FloatArray:
        """Feed the new tokens; what logits are computed of, float32 (B + M, D), in the order of `forward`."""

    def logits(self, hidden: FloatArray) -> FloatArray:
        """Logits of all tokens, float32 (R, at least V), of hidden states (R, D)."""

    def logits_of(self, hidden: FloatArray, token_ids: IntArray, row_offsets: IntArray) -> FloatArray:
        """Logits of some tokens, float32 (N,): row r asks for `token_ids[row_offsets[r]:row_offsets[r + 1]]`."""


def caching(model: Model) -> CachingModel | None:
    """The same model, if it is a caching one."""
    return cast(CachingModel, model) if hasattr(model, "cache") else None
