"""Bytes to equivalence classes: bytes that no edge of the NFA tells apart are one letter of the automaton.

In: the NFA's edges. Out: `Alphabet`. Cost: one pass over the distinct ranges. A JSON schema has 20 to 60 classes, so a
state's transitions are 20 to 60 numbers instead of 256. Source: the same idea as in lexers since lex; "ours" as code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas_cache.nfa import Nfa

# Which byte stands for its class where any would do: letters read best in an example, then digits, then the rest.
_FIRST = b"abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
PREFERENCE = _FIRST + bytes(
    byte for byte in (*range(0x20, 0x7F), *range(0x20), *range(0x7F, 0x100)) if byte not in _FIRST
)


@dataclass(frozen=True, slots=True, eq=False)
class Alphabet:
    """The classes, numbered from 0 to C - 1 in the order of their representatives' preference."""

    class_of: NDArray[np.uint8]  # uint8 (256,)
    representative: NDArray[np.uint8]  # uint8 (C,)
    size_of: NDArray[np.int32]  # int32 (C,): how many bytes each class has

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return len(self.representative)


def build_alphabet(nfa: Nfa, spellable: frozenset[int] = frozenset(range(256))) -> Alphabet:
    """Group bytes by the set of edge ranges they lie in; O(256 * distinct ranges).

    Bytes in `spellable` (those that are a token of their own) are preferred as representatives, so that a shortest way
    is one that the vocabulary can write.
    """
    ranges = np.unique(np.stack([nfa.edge_lo, nfa.edge_hi], axis=1), axis=0)
    order = np.array(sorted(PREFERENCE, key=lambda byte: byte not in spellable), np.int32)
    inside = (order[:, None] >= ranges[None, :, 0]) & (order[:, None] <= ranges[None, :, 1])
    _, first, group = np.unique(np.packbits(inside, axis=1), axis=0, return_index=True, return_inverse=True)
    by_first = np.argsort(first)
    number = np.empty(len(first), np.uint8)
    number[by_first] = np.arange(len(first))
    class_of = np.empty(256, np.uint8)
    class_of[order] = number[group.reshape(-1)]
    return Alphabet(class_of, order[first[by_first]].astype(np.uint8), np.bincount(class_of).astype(np.int32))
