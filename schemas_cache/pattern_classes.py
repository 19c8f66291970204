r"""Escapes and character classes of ECMA-262 regular expressions: the part of a pattern that names sets of characters.

In: a `Cursor` at a backslash or a bracket. Out: a code point or ranges of code points, the cursor behind it. Cost:
linear in the pattern, and the scan of Unicode that a `\p{...}` may cause (see `code_points`).

Source: ECMA-262 2024, 22.2.1 with the `u` flag, and annex B.1.2 where the `u` grammar has no reading and annex B gives
a literal one that nobody could mean otherwise: `\-`, `\_`, `\@` (never letters or digits), and `[\w-.]`.
"""

from __future__ import annotations

import re

from schemas_cache.code_points import (
    CATEGORIES,
    DIGIT,
    SPACE,
    WORD,
    Ranges,
    binary_property,
    category,
    complement,
    scalars,
)
from schemas_cache.errors import PatternError

_SETS = {
    "d": DIGIT,
    "D": complement(DIGIT),
    "w": WORD,
    "W": complement(WORD),
    "s": SPACE,
    "S": complement(SPACE),
}
_CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D}
_LITERAL_HINT = "a backslash before an ASCII letter needs a meaning in ECMA-262; write the letter alone"
_ANCHOR_HINT = "write ^ for the start of the value and $ for its end"
_HINTS = {
    "A": _ANCHOR_HINT,
    "Z": _ANCHOR_HINT,
    "z": _ANCHOR_HINT,
    "a": r"write \x07",
    "e": r"write \x1b",
    "h": r"write [ \t]",
    "R": r"write (\r\n|\n|\r)",
    "Q": "escape each character",
}
_BOUNDARY_HINT = "spell out what may stand beside the word, such as (^|[^A-Za-z0-9_])"
_BACK_REFERENCE_HINT = "repeat the group's own pattern; that the texts are equal cannot be enforced"
_PROPERTY = re.compile(r"\{(?:(\w+)=)?(\w+)\}", re.ASCII)
_PROPERTY_HINT = (
    "known are the general categories (such as L, Lu, Nd), Any, ASCII, ASCII_Hex_Digit, Assigned, Cased, Lowercase, "
    r"Uppercase, White_Space, XID_Start and XID_Continue; for a script write its ranges, such as [\u3041-\u309f]"
)
_DIGITS = frozenset("0123456789")
_DECIMAL = re.compile(r"[0-9]*")
_BRACED = re.compile(r"\{([0-9A-Fa-f]+)\}")
_HEX = {2: re.compile(r"[0-9A-Fa-f]{2}"), 4: re.compile(r"[0-9A-Fa-f]{4}")}
_POSIX = re.compile(r"\[:\^?[a-z]+:\]\]?")

_LONGEST_CONSTRUCT = 60

HIGH_SURROGATES = range(0xD800, 0xDC00)
LOW_SURROGATES = range(0xDC00, 0xE000)


class Cursor:
    """A pattern and the position that reading has reached."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def peek(self, offset: int = 0) -> str:
        """The character `offset` further on, empty beyond the end."""
        return self.text[self.at + offset : self.at + offset + 1]

    def next(self) -> str:
        """The character here, which is stepped over; empty at the end."""
        char = self.peek()
        self.at += len(char)
        return char

    def take(self, expected: str) -> bool:
        """Step over `expected` if it stands here."""
        found = self.text.startswith(expected, self.at)
        self.at += len(expected) if found else 0
        return found

    def match(self, shape: re.Pattern[str]) -> re.Match[str] | None:
        """Step over what `shape` matches here, if it does."""
        found = shape.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found

    def error(self, reason: str, start: int, hint: str = "", *, is_malformed: bool = False) -> PatternError:
        """The error about the text from `start` to here; of a long one only the beginning is shown."""
        construct = self.text[start : min(self.at, start + _LONGEST_CONSTRUCT)]
        return PatternError(reason, position=start, construct=construct, hint=hint, is_malformed=is_malformed)

    def malformed(self, reason: str, start: int, hint: str = "") -> PatternError:
        """As `error`, about what is no pattern in any reading of ECMA-262."""
        return self.error(reason, start, hint, is_malformed=True)


def read_escape(cursor: Cursor, *, in_class: bool) -> int | Ranges:
    """What stands at a backslash: one code point (perhaps a lone surrogate), or a set.

    Raises
    ------
    PatternError
        For escapes that are malformed, unknown, or mean something other than characters.
    """
    start = cursor.at
    cursor.at += 1
    letter = cursor.next()
    if letter in _SETS:
        return _SETS[letter]
    if letter in _CONTROLS:
        return _CONTROLS[letter]
    if in_class and letter == "b":
        return 0x08
    if letter in ("p", "P"):
        return _property(cursor, start, negated=letter == "P")
    if letter in ("x", "u", "c"):
        return _coded(cursor, start, letter)
    if letter == "0" and cursor.peek() not in _DIGITS:
        return 0
    if not letter or (letter.isascii() and letter.isalnum()):
        raise _refusal(cursor, start, letter)
    return ord(letter)


def read_class(cursor: Cursor) -> Ranges:
    """The set that stands at a bracket.

    Raises
    ------
    PatternError
        For a class that does not end, ranges out of order, and what `read_escape` refuses.
    """
    start = cursor.at
    cursor.at += 1
    negated = cursor.take("^")
    found: list[tuple[int, int]] = []
    while not cursor.take("]"):
        if not cursor.peek():
            raise PatternError("class without its closing bracket", position=start, construct="[", is_malformed=True)
        found += _class_item(cursor)
    return complement(found) if negated else scalars(found)


def _class_item(cursor: Cursor) -> Ranges:
    """One character, set or range of a class."""
    start = cursor.at
    if cursor.match(_POSIX):
        raise cursor.error("POSIX character class", start, r"write the characters, such as [A-Za-z], or \p{L}")
    low = _class_atom(cursor)
    if cursor.peek() != "-" or cursor.peek(1) in ("", "]"):
        return _as_ranges(low)
    cursor.at += 1
    high = _class_atom(cursor)
    if isinstance(low, int) and isinstance(high, int):
        if high < low:
            raise cursor.malformed("range out of order", start)
        return ((low, high),)
    if cursor.peek() == "-" and cursor.peek(1) not in ("", "]"):
        raise cursor.error("range that starts or ends with a set", start, r"write \- for the hyphen itself")
    return (*_as_ranges(low), (0x2D, 0x2D), *_as_ranges(high))


def _class_atom(cursor: Cursor) -> int | Ranges:
    return read_escape(cursor, in_class=True) if cursor.peek() == "\\" else ord(cursor.next())


def _as_ranges(atom: int | Ranges) -> Ranges:
    return ((atom, atom),) if isinstance(atom, int) else atom


def _coded(cursor: Cursor, start: int, letter: str) -> int:
    r"""The code point of `\xHH`, `\uHHHH`, `\u{...}`, a surrogate pair or `\cX`, whose letter has been read."""
    if letter == "c":
        control = cursor.next()
        if control.isascii() and control.isalpha():
            return ord(control) % 32
        raise cursor.error("malformed control escape", start, r"write \x01 to \x1f")
    if letter == "u" and (braced := cursor.match(_BRACED)):
        point = int(braced[1], 16)
        if point > 0x10FFFF:
            raise cursor.error("code point beyond Unicode", start)
        return point
    unit = _hex(cursor, 2 if letter == "x" else 4)
    if unit is None:
        raise cursor.error("malformed hexadecimal escape", start, r"write \xHH, \uHHHH or \u{H...}")
    return _joined_pair(cursor, unit) if letter == "u" and unit in HIGH_SURROGATES else unit


def _hex(cursor: Cursor, digits: int) -> int | None:
    found = cursor.match(_HEX[digits])
    return int(found[0], 16) if found else None


def _joined_pair(cursor: Cursor, high: int) -> int:
    r"""The code point of a pair whose `high` half has been read; the half itself where no low one follows."""
    start = cursor.at
    low = _hex(cursor, 4) if cursor.take(r"\u") else None
    if low is not None and low in LOW_SURROGATES:
        return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
    cursor.at = start
    return high


def _property(cursor: Cursor, start: int, *, negated: bool) -> Ranges:
    found = cursor.match(_PROPERTY)
    if not found:
        raise cursor.error("malformed property escape", start, r"write \p{Name} or \p{Name=Value}")
    name, value = found.groups()
    try:
        if name in ("General_Category", "gc") or (name is None and value in CATEGORIES):
            ranges = category(value)
        else:
            ranges = binary_property(value if name is None else f"{name}=")
    except KeyError:
        raise cursor.error("Unicode property that is not supported", start, _PROPERTY_HINT) from None
    return complement(ranges) if negated else ranges


def _refusal(cursor: Cursor, start: int, letter: str) -> PatternError:
    """The error about an escape that names no character."""
    if not letter:
        return cursor.malformed("backslash at the end of the pattern", start, r"write \\ for a backslash")
    if letter in ("b", "B"):
        return cursor.error("word boundary", start, _BOUNDARY_HINT)
    if letter == "k":
        return cursor.error("back-reference", start, _BACK_REFERENCE_HINT)
    if letter == "0":
        return cursor.error("octal escape", start, r"write \xHH")
    if letter.isdigit():
        cursor.match(_DECIMAL)
        return cursor.error("back-reference", start, _BACK_REFERENCE_HINT)
    return cursor.error("unknown escape", start, _HINTS.get(letter, _LITERAL_HINT))
