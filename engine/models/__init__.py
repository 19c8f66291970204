"""What the step needs of a model: new tokens in, one row of logits per sequence out.

In: a `Batch`, the new tokens of every row packed one after another. Out: float32 logits for the last position of each
row. A model owns the memory of its sequences (a window of tokens, a KV cache) in numbered slots, so that rows may be at
different lengths and join and leave between steps. Rejected: passing whole contexts at each step, which costs the
prompt again for every token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One step's work: row b feeds `token_ids[row_offsets[b]:row_offsets[b + 1]]` into slot `slots[b]`."""

    token_ids: IntArray  # int32 (N,): the new tokens of all rows
    row_offsets: IntArray  # int32 (B + 1,): increasing; a row may be empty (its slot's logits are asked for again)
    slots: IntArray  # int32 (B,): distinct


class Model(Protocol):
    """A next-token predictor over slots; used by one thread at a time."""

    @property
    def vocabulary_size(self) -> int:
        """How many tokens there are, V."""

    @property
    def context_length(self) -> int:
        """Most tokens, prompt and output together, that one sequence may have."""

    def allocate(self, slots: int) -> None:
        """Make room for this many sequences; forgets all of them."""

    def reset(self, slot: int) -> None:
        """Forget the sequence in `slot`, so that another may use it."""

    def forward(self, batch: Batch) -> FloatArray:
        """Feed the new tokens; logits after the last of them, float32 (B, at least V); beyond V are no tokens."""
