"""Integers between bounds of any size, as expressions over digits.

In: bounds. Out: text expressions: plain digits, without `-0`. Cost: linear in the number of digits (a digit string is
halved, so expressions nest only as deep as its logarithm), microseconds where an automaton would take milliseconds.

Rejected: one alternative per digit position with the common prefix spelled out (quadratic in the digits), and a chain
(nests as deep as the number has digits).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from schemas_cache.grammar import NEVER, Expr, alt, byte_class, concat, literal, repeat

DIGIT = byte_class([(0x30, 0x39)])
NONZERO = byte_class([(0x31, 0x39)])


def integer_range(bounds: Iterable[tuple[str, Fraction]]) -> tuple[int | None, int | None]:
    """Least and greatest integer that keep all bounds; None where there is none."""
    low: int | None = None
    high: int | None = None
    for keyword, value in bounds:
        match keyword:
            case "minimum":
                low = _greatest(low, math.ceil(value))
            case "exclusiveMinimum":
                low = _greatest(low, math.floor(value) + 1)
            case "maximum":
                high = _least(high, math.floor(value))
            case _:
                high = _least(high, math.ceil(value) - 1)
    return low, high


def integers(low: int | None, high: int | None) -> Expr:
    """The integers from `low` to `high`, both included; None: no bound."""
    if low is not None and high is not None and low > high:
        return NEVER
    negative: Expr = NEVER
    zero: Expr = NEVER
    positive: Expr = NEVER
    if low is None or low < 0:
        nearest = 1 if high is None or high >= 0 else -high
        negative = concat(literal("-"), _positive(nearest, None if low is None else -low))
    if (low is None or low <= 0) and (high is None or high >= 0):
        zero = literal("0")
    if high is None or high > 0:
        positive = _positive(1 if low is None or low <= 0 else low, high)
    return alt(negative, zero, positive)


def _positive(low: int, high: int | None) -> Expr:
    """The integers from `low` (at least 1) to `high`: the shortest ones, all of the lengths between, the longest."""
    first, last = str(low), None if high is None else str(high)
    if last is not None and len(first) == len(last):
        return _same_length(first, last)
    whole = len(first) if first == _least_of_length(len(first)) else len(first) + 1
    shortest = NEVER if whole == len(first) else _same_length(first, "9" * len(first))
    if last is None:
        return alt(shortest, _of_lengths(whole, None))
    full = len(last) if set(last) == {"9"} else len(last) - 1
    longest = NEVER if full == len(last) else _same_length(_least_of_length(len(last)), last)
    return alt(shortest, _of_lengths(whole, full), longest)


def _least_of_length(digits: int) -> str:
    return "1" + "0" * (digits - 1)


def _of_lengths(low: int, high: int | None) -> Expr:
    """All numbers of `low` to `high` digits, no leading zero."""
    if high is not None and high < low:
        return NEVER
    return concat(NONZERO, repeat(DIGIT, low - 1, None if high is None else high - 1))


def _same_length(low: str, high: str) -> Expr:
    """Digit strings from `low` to `high`, which are equally long."""
    common = next((i for i, (a, b) in enumerate(zip(low, high, strict=True)) if a != b), len(low))
    if common == len(low):
        return literal(low)
    first, last, rest = low[common], high[common], len(low) - common - 1
    tail_low, tail_high = low[common + 1 :], high[common + 1 :]
    whole_first, whole_last = set(tail_low) <= {"0"}, set(tail_high) <= {"9"}
    middle = _between(chr(ord(first) + (not whole_first)), chr(ord(last) - (not whole_last)))
    return concat(
        literal(low[:common]),
        alt(
            NEVER if whole_first else concat(literal(first), _beyond(tail_low, "9", strict=False)),
            concat(middle, repeat(DIGIT, rest, rest)),
            NEVER if whole_last else concat(literal(last), _beyond(tail_high, "0", strict=False)),
        ),
    )


def _beyond(digits: str, end: str, *, strict: bool) -> Expr:
    """Equally long digit strings from `digits` on towards all `end` ("9": up, "0": down); `strict`: not itself."""
    if set(digits) <= {end}:
        return NEVER if strict else literal(digits)
    if len(digits) == 1:
        step = (1 if end == "9" else -1) if strict else 0
        return _between(*sorted((chr(ord(digits) + step), end)))
    half = len(digits) // 2
    head, tail = digits[:half], digits[half:]
    rest = len(tail)
    return alt(
        concat(_beyond(head, end, strict=True), repeat(DIGIT, rest, rest)),
        concat(literal(head), _beyond(tail, end, strict=strict)),
    )


def _between(first: str, last: str) -> Expr:
    return byte_class([(ord(first), ord(last))]) if first <= last else NEVER


def _greatest(one: int | None, other: int) -> int:
    return other if one is None else max(one, other)


def _least(one: int | None, other: int) -> int:
    return other if one is None else min(one, other)
