"""Bytes to equivalence classes: bytes that no edge of the NFA tells apart are one letter of the automaton.

In: the NFA's edges. Out: `Alphabet`. Cost: one pass over the distinct ranges. A JSON schema has 20 to 60 classes, so a
state's transitions are 20 to 60 numbers instead of 256. Source: the same idea as in lexers since lex; "ours" as code.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from operator import xor

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
    """Group bytes by the set of edge ranges they lie in; O(256 + distinct ranges) operations on sets of bits.

    Bytes in `spellable` (those that are a token of their own) are preferred as representatives, so that a shortest way
    is one that the vocabulary can write.
    """
    borders = [0] * 257  # the ranges that begin or end at a byte, as a set of bits
    spans = np.unique(nfa.edge_lo.astype(np.int32) * 256 + nfa.edge_hi).tolist()
    for number, span in enumerate(spans):
        borders[span >> 8] ^= 1 << number
        borders[(span & 255) + 1] ^= 1 << number
    inside = list(accumulate(borders[:256], xor))  # of each byte: the ranges that it lies in
    number_of: dict[int, int] = {}
    class_of = np.empty(256, np.uint8)
    representative: list[int] = []
    for byte in sorted(PREFERENCE, key=lambda byte: byte not in spellable):
        known = number_of.setdefault(inside[byte], len(number_of))
        if known == len(representative):
            representative.append(byte)
        class_of[byte] = known
    return Alphabet(class_of, np.array(representative, np.uint8), np.bincount(class_of).astype(np.int32))
