"""Sets of characters as ranges of code points, and the Unicode properties that the standard library answers exactly.

In: ranges, or the name of a property as ECMA-262 spells it. Out: sorted, disjoint, inclusive ranges of Unicode scalar
values. Cost: a property's first use scans all of Unicode once (about 0.2 s) and is kept.

Source: ECMA-262 2024, 22.2.2.9 (character class escapes) and tables 66 to 69 (properties); UAX #44 for the derivations.
Scripts, and binary properties that need tables which Python does not carry (`Alphabetic`, `Emoji`), are left out rather
than approximated. The Unicode version is that of the running Python (`unicodedata.unidata_version`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import groupby

from schemas_cache.grammar import MAX_CODE_POINT, merge_ranges

Ranges = tuple[tuple[int, int], ...]

SURROGATES = (0xD800, 0xDFFF)


def complement(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """All Unicode scalar values outside `ranges`."""
    gaps, start = [], 0
    for low, high in merge_ranges([*ranges, SURROGATES]):
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    return (*gaps, (start, MAX_CODE_POINT)) if start <= MAX_CODE_POINT else tuple(gaps)


def scalars(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The Unicode scalar values in `ranges`: sorted, merged, without surrogates."""
    return complement(complement(ranges))


ANY = complement(())
DIGIT: Ranges = ((0x30, 0x39),)
WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
LINE_END: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
BLANK = scalars((point, point) for point in (0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000))
SPACE = scalars([(0x09, 0x0D), *BLANK, (0x2028, 0x2029), (0xFEFF, 0xFEFF)])
HEX_DIGIT: Ranges = ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))

_CATEGORY_NAMES = """
C Other; Cc Control cntrl; Cf Format; Cn Unassigned; Co Private_Use; Cs Surrogate;
L Letter; LC Cased_Letter; Ll Lowercase_Letter; Lm Modifier_Letter; Lo Other_Letter; Lt Titlecase_Letter;
Lu Uppercase_Letter; M Mark Combining_Mark; Mc Spacing_Mark; Me Enclosing_Mark; Mn Nonspacing_Mark;
N Number; Nd Decimal_Number digit; Nl Letter_Number; No Other_Number;
P Punctuation punct; Pc Connector_Punctuation; Pd Dash_Punctuation; Pe Close_Punctuation; Pf Final_Punctuation;
Pi Initial_Punctuation; Po Other_Punctuation; Ps Open_Punctuation;
S Symbol; Sc Currency_Symbol; Sk Modifier_Symbol; Sm Math_Symbol; So Other_Symbol;
Z Separator; Zl Line_Separator; Zp Paragraph_Separator; Zs Space_Separator
"""
CATEGORIES = {name: line.split()[0] for line in _CATEGORY_NAMES.split(";") for name in line.split()}


def _is_cased(char: str) -> bool:
    # UAX #44 derives Cased from Lowercase, Uppercase and Lt; str.islower and str.isupper on one character read the
    # first two from the same tables.
    return char.islower() or char.isupper() or unicodedata.category(char) == "Lt"


_BINARY: dict[str, Ranges | Callable[[str], bool]] = {
    "Any": ANY,
    "ASCII": ((0, 0x7F),),
    "ASCII_Hex_Digit": HEX_DIGIT,
    "Assigned": lambda char: unicodedata.category(char) != "Cn",
    "Cased": _is_cased,
    "Lowercase": str.islower,
    "Uppercase": str.isupper,
    "White_Space": scalars([(0x09, 0x0D), (0x85, 0x85), *BLANK, (0x2028, 0x2029)]),
    # An identifier of one character is XID_Start or the underscore; any later character is XID_Continue.
    "XID_Start": lambda char: char != "_" and char.isidentifier(),
    "XID_Continue": lambda char: f"_{char}".isidentifier(),
}
_SHORT_NAMES = {
    "AHex": "ASCII_Hex_Digit",
    "Lower": "Lowercase",
    "Upper": "Uppercase",
    "space": "White_Space",
    "XIDS": "XID_Start",
    "XIDC": "XID_Continue",
}


@lru_cache(maxsize=64)
def category(name: str) -> Ranges:
    """Code points of a general category, by its long or short name; `KeyError` for an unknown one."""
    short = CATEGORIES[name]
    keys = ("Lu", "Ll", "Lt") if short == "LC" else (short,)
    members = (ranges for key, ranges in _by_category().items() if key.startswith(keys))
    return scalars(pair for ranges in members for pair in ranges)


@lru_cache(maxsize=64)
def binary_property(name: str) -> Ranges:
    """Code points that have a binary property, by its long or short name; `KeyError` for one not known exactly."""
    found = _BINARY[_SHORT_NAMES.get(name, name)]
    if isinstance(found, tuple):
        return found
    return scalars((point, point) for low, high in ANY for point in range(low, high + 1) if found(chr(point)))


@lru_cache(maxsize=1)
def _by_category() -> dict[str, list[tuple[int, int]]]:
    """Ranges of every two-letter general category, in one pass over Unicode."""
    table: dict[str, list[tuple[int, int]]] = {}
    start = 0
    for key, run in groupby(map(unicodedata.category, map(chr, range(MAX_CODE_POINT + 1)))):
        length = sum(1 for _ in run)
        table.setdefault(key, []).append((start, start + length - 1))
        start += length
    return table
