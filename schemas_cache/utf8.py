"""Sets of characters as bytes: the well-formed UTF-8 of every code point in a class, and no other bytes.

In: ranges of Unicode scalar values. Out: a text-level `Expr` that is deterministic by its first byte, at every level,
where all first bytes with the same continuations share one branch. Cost: at most 64 branches to look at per block of a
range that is not whole; a class is built once and kept.

Source: Unicode 15, table 3-7; RFC 3629. Rejected: one sequence of byte ranges per range of code points (the usual
splitting), since its branches overlap in the first byte and double what the subset construction has to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from schemas_cache.code_points import Ranges
from schemas_cache.grammar import Expr, alt, byte_class, concat

_LENGTHS = ((0x0, 0x7F, 0x00), (0x80, 0x7FF, 0xC0), (0x800, 0xFFFF, 0xE0), (0x10000, 0x10FFFF, 0xF0))
"""First and last code point of each encoded length, and the bits that mark its first byte."""


@lru_cache(maxsize=1024)
def utf8_class(ranges: Ranges) -> Expr:
    """The UTF-8 of one character out of `ranges`, which hold no surrogates."""
    return alt(
        *(
            _bytes(tuple(_clip(ranges, first, last)), lead, continuations)
            for continuations, (first, last, lead) in enumerate(_LENGTHS)
        )
    )


def _bytes(ranges: Ranges, lead: int, continuations: int) -> Expr:
    """One byte, `lead` plus the high bits, and the continuation bytes that may follow it."""
    if continuations == 0:
        return byte_class((lead + low, lead + high) for low, high in ranges)
    branches: dict[Ranges, list[int]] = {}
    for block, inside in _blocks(ranges, 64**continuations):
        branches.setdefault(inside, []).append(lead + block)
    return alt(
        *(
            concat(byte_class((byte, byte) for byte in leads), _bytes(inside, 0x80, continuations - 1))
            for inside, leads in branches.items()
        )
    )


def _blocks(ranges: Ranges, size: int) -> Iterator[tuple[int, Ranges]]:
    """The blocks of `size` values that `ranges` touch: number, and the ranges in it from its start."""
    found: dict[int, list[tuple[int, int]]] = {}
    for low, high in ranges:
        for block in range(low // size, high // size + 1):
            start = block * size
            found.setdefault(block, []).append((max(low - start, 0), min(high - start, size - 1)))
    return ((block, tuple(inside)) for block, inside in found.items())


def _clip(ranges: Ranges, first: int, last: int) -> Iterator[tuple[int, int]]:
    return ((max(low, first), min(high, last)) for low, high in ranges if low <= last and high >= first)
