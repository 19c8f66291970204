r"""From the value of a string to the bytes that spell it, raw or inside JSON quotes.

In: a value-level `Expr`, and the characters that the vocabulary can spell (None: all). Out: a text-level `Expr`. Cost:
linear in the tree; every distinct class is spelled once per call.

There are two spellings inside JSON. The *canonical* one (`json_string`, `string_literal`) is what `json.dumps` writes
with `ensure_ascii=False`: one text per value, for constants and patterns, where a second spelling would only split the
model's probability. The *free* one (`free_string`) takes every escape, for strings that only have a length.

A class that has a spellable ASCII character keeps all its characters beyond ASCII, spellable or not: a vocabulary made
of whole characters never gets into the middle of one that it lacks, there is always a way on, and the shortest way is
over ASCII. Any other class is cut down to what can be spelled, since it could be a dead end.

Source: RFC 8259, section 7. Rejected: escapes as a filter behind the automaton (lengths would count escapes).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache

from schemas_cache.code_points import ANY, Ranges, complement
from schemas_cache.escapes import SHORT_ESCAPES, spell_machine
from schemas_cache.grammar import (
    NEVER,
    Alt,
    CharClass,
    Concat,
    Empty,
    Expr,
    Joined,
    Literal,
    Machine,
    Mark,
    Never,
    Other,
    Picks,
    Repeat,
    alt,
    byte_class,
    concat,
    joined,
    literal,
    mark,
    merge_ranges,
    picks,
    repeat,
)
from schemas_cache.utf8 import utf8_class

Characters = frozenset[str] | None
"""What the vocabulary can spell; None stands for every character."""

ESCAPED: Ranges = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
RAW = complement(ESCAPED)

_ASCII_END = 0x80
_REMEMBERED = 1 << 14  # spellings kept, of characters and classes: enumerations repeat the same ones
_HEX = "0123456789abcdefABCDEF"


def utf8(expr: Expr, characters: Characters) -> Expr:
    """Spell a value-level expression as it is, in UTF-8."""
    return _spell(expr, lambda ranges: _raw(ranges, characters), lambda machine: machine)


def json_string(expr: Expr, characters: Characters) -> Expr:
    """Spell a value-level expression as the inside of a JSON string, canonically; the quotes are not included."""
    return _spell(
        expr, lambda ranges: _canonical(ranges, characters), lambda machine: spell_machine(machine, characters)
    )


@lru_cache(maxsize=8)
def free_character(characters: Characters) -> Expr:
    r"""One character of a JSON string that may be anything, in any of its spellings.

    A pair of surrogates, `\ud83d\ude00`, is one character; half a pair is none.
    """
    return alt(_raw(RAW, characters), _escape('"\\/bfnrt', _free_unicode_escape(characters), characters))


def free_string(minimum: int, maximum: int | None, characters: Characters) -> Expr:
    """The inside of a JSON string of `minimum` to `maximum` characters (None: no bound), counted in code points."""
    return repeat(free_character(characters), minimum, maximum, free_text=True)


def string_literal(text: str, characters: Characters) -> Expr:
    r"""The canonical JSON string of `text`, with quotes.

    A character that cannot be spelled so is spelled `\uXXXX`, where that is possible. Otherwise the result is `NEVER`,
    as it is for a lone surrogate, which is no character.
    """
    written = json.dumps(text, ensure_ascii=False)
    if characters is None or characters.issuperset(written):
        try:
            return Literal(written.encode())
        except UnicodeEncodeError:  # a lone surrogate
            return NEVER
    quote = _allowed('"', characters)
    return concat(quote, *(_constant_character(ord(char), characters) for char in text), quote)


def other_string(texts: Iterable[str]) -> Expr:
    """The inside of every JSON string but these, canonically, for vocabularies that can spell everything."""
    literals = (string_literal(text, None) for text in texts)
    return Other(tuple(sorted({text.data[1:-1] for text in literals if isinstance(text, Literal)})))


def _spell(expr: Expr, spell_class: Callable[[Ranges], Expr], spell_automaton: Callable[[Machine], Machine]) -> Expr:
    """Replace every class and every automaton in `expr` by its spelling."""
    known: dict[Ranges, Expr] = {}

    def spelled(expr: Expr) -> Expr:
        match expr:
            case CharClass(ranges):
                if ranges not in known:
                    known[ranges] = spell_class(ranges)
                return known[ranges]
            case Never() | Empty():
                return expr
            case Concat(parts):
                return concat(*map(spelled, parts))
            case Alt(choices):
                return alt(*map(spelled, choices))
            case Repeat(body, minimum, maximum, separator, free_text):
                is_free = free_text or body == CharClass(ANY)
                return repeat(spelled(body), minimum, maximum, spelled(separator), free_text=is_free)
            case Joined() | Picks():
                build = joined if isinstance(expr, Joined) else picks
                members = [replace(member, body=spelled(member.body)) for member in expr.members]
                return build(members, spelled(expr.separator), spelled(expr.more), expr.minimum, expr.maximum)
            case Mark(segment, body):
                return mark(segment, spelled(body))
            case Machine():
                return spell_automaton(expr)
            case _:
                raise TypeError(f"not an expression about values: {expr!r}")

    return spelled(expr)


def _raw(ranges: Ranges, characters: Characters) -> Expr:
    """UTF-8 of one character out of `ranges`, or of those that can be spelled."""
    return utf8_class(ranges if characters is None else _spellable(ranges, characters))


def _spellable(ranges: Ranges, characters: frozenset[str]) -> Ranges:
    """What to keep of a class: see the module's docstring."""
    points = merge_ranges((ord(char), ord(char)) for char in characters)
    kept = _common(ranges, points)
    if kept and kept[0][0] < _ASCII_END:
        return (*_common(kept, ((0, _ASCII_END - 1),)), *_common(ranges, ((_ASCII_END, 0x10FFFF),)))
    return kept


def _common(left: Ranges, right: Ranges) -> Ranges:
    """What is in both; one pass over both."""
    found, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        low, high = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if low <= high:
            found.append((low, high))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


@lru_cache(maxsize=_REMEMBERED)
def _canonical(ranges: Ranges, characters: Characters) -> Expr:
    """One character out of `ranges`, raw where JSON allows it, else by its shortest escape."""
    points = [point for low, high in _common(ranges, ESCAPED) for point in range(low, high + 1)]
    letters = [SHORT_ESCAPES[point] for point in points if point in SHORT_ESCAPES]
    others = [point for point in points if point not in SHORT_ESCAPES]
    return alt(_raw(_common(ranges, RAW), characters), _escape(letters, _control_code(others, characters), characters))


def _control_code(points: list[int], characters: Characters) -> Expr:
    """`u00XX` for one of these control characters, without the backslash."""
    rows = (
        concat(
            _allowed(f"{row:x}", characters),
            _allowed([f"{point % 16:x}" for point in points if point // 16 == row], characters),
        )
        for row in (0, 1)
    )
    return concat(_spelled_out("u00", characters), alt(*rows))


def _escape(letters: Iterable[str], code: Expr, characters: Characters) -> Expr:
    """A backslash and one of `letters` or a `code`; one branch, since all begin alike."""
    return concat(_allowed("\\", characters), alt(_allowed(letters, characters), code))


def _free_unicode_escape(characters: Characters) -> Expr:
    """`uXXXX` for all but surrogates, and `uXXXX` twice for a pair of them, without the first backslash."""

    def digit(values: str) -> Expr:
        return _allowed([char for char in _HEX if char.lower() in values], characters)

    any_digit = digit("0123456789abcdef")
    low_half = concat(_spelled_out("\\u", characters), digit("d"), digit("cdef"), any_digit, any_digit)
    after_d = alt(
        concat(digit("01234567"), any_digit, any_digit),
        concat(digit("89ab"), any_digit, any_digit, low_half),
    )
    plain = concat(digit("0123456789abcef"), any_digit, any_digit, any_digit)
    return concat(_allowed("u", characters), alt(plain, concat(digit("d"), after_d)))


@lru_cache(maxsize=_REMEMBERED)
def _constant_character(point: int, characters: Characters) -> Expr:
    """The first spelling of one character that is possible."""
    found = _canonical(_common(((point, point),), ANY), characters)
    if not isinstance(found, Never) or 0xD800 <= point <= 0xDFFF:
        return found
    units = chr(point).encode("utf-16-be")
    code = "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
    return next((s for s in (_spelled_out(c, characters) for c in (code, _upper(code))) if s != NEVER), NEVER)


def _upper(code: str) -> str:
    return code.upper().replace("U", "u")


def _spelled_out(text: str, characters: Characters) -> Expr:
    """These ASCII characters in a row, `NEVER` where one of them is lacking."""
    return literal(text) if characters is None or characters.issuperset(text) else NEVER


def _allowed(options: Iterable[str], characters: Characters) -> Expr:
    """One of these ASCII characters, as far as they can be spelled."""
    return byte_class((ord(char), ord(char)) for char in options if characters is None or char in characters)
