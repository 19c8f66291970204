"""The expression type between the front ends and the NFA.

In: nothing; the front ends (`schema`, `pattern`) build expressions with the constructors below. Out: `Expr` trees and a
`Grammar`, a set of named rules with a start rule. Cost: linear in what is built; simplification happens in the
constructors, once, so that no later stage sees an empty concatenation or a choice of one.

One tree type serves two levels. *Value* expressions describe the value of a string in Unicode code points and use
`CharClass`; *text* expressions describe output bytes and use `ByteClass` and `Literal`. `spelling` turns the first into
the second, once per string, which keeps lengths and patterns about values and escapes about spelling.

Rejected: inlining references (recursion would need a second mechanism), and separate node types for arrays and strings
(a counted repeat with a separator and an ordered list of optional members cover both in size linear in the schema).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

MAX_CODE_POINT = 0x10FFFF
_FEW = 16


@dataclass(frozen=True, slots=True)
class Never:
    """Matches nothing."""


@dataclass(frozen=True, slots=True)
class Empty:
    """Matches the empty text only."""


@dataclass(frozen=True, slots=True)
class Literal:
    """Matches exactly these bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ByteClass:
    """Matches one byte out of sorted, disjoint, inclusive ranges."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CharClass:
    """Matches one code point out of sorted, disjoint, inclusive ranges; value level only."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Concat:
    """Matches the parts one after another."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """Matches any one of the choices."""

    choices: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Matches `body` from `minimum` to `maximum` times (None: no bound), `separator` between two of them.

    The body is never nullable: `repeat` rewrites it. `free_text` marks a body that takes every character which needs no
    escape, so that masks may allow all plain tokens as one block.
    """

    body: Expr
    minimum: int
    maximum: int | None
    separator: Expr = field(default_factory=Empty)
    free_text: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of `Joined`."""

    body: Expr
    required: bool


@dataclass(frozen=True, slots=True)
class Joined:
    """Matches members in order, optional ones may be left out, then `more` any number of times (`NEVER`: not at all).

    `separator` stands between two that are present; from `minimum` to `maximum` are present in all (None: no bound).
    Linear in the number of members, however many are optional. No member's body is nullable, nor is `more`.
    """

    members: tuple[Member, ...]
    separator: Expr
    more: Expr = field(default_factory=Never)
    minimum: int = 0
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class Picks:
    """Matches members in any order, each at most once, and `more` any number of times anywhere among them.

    Required members are all present, `separator` stands between two, from `minimum` to `maximum` are present in all.
    One copy of each member, whatever the order: which are used is in the frame.
    """

    members: tuple[Member, ...]
    separator: Expr
    more: Expr = field(default_factory=Never)
    minimum: int = 0
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class Ref:
    """Matches what the named rule matches. Rules are never nullable."""

    rule: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Matches `body`, and says that it is the value at JSON pointer segment `segment`.

    None stands for the index in the innermost enclosing `Repeat`: an array's element number.
    """

    segment: str | None
    body: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """Matches what a finite automaton over bytes accepts; at value level, over the UTF-8 of the value.

    State 0 is dead, state 1 the start. Every other state reaches acceptance. Where there are `counts`, only texts of
    `minimum` to `maximum` characters match (None: no bound): a transition from a state `between` two characters begins
    one more, and a state may be entered with a number of begun characters within its `counts` only.
    """

    class_of: NDArray[np.uint8]  # uint8 (256,)
    next_state: NDArray[np.int32]  # int32 (S, C)
    accepting: NDArray[np.bool_]  # bool (S,)
    counts: NDArray[np.int32] | None = None  # int32 (S, 2): least, greatest; the least is greater where none is allowed
    between: NDArray[np.bool_] | None = None  # bool (S,), with `counts`
    minimum: int = 0
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class Other:
    """Matches the inside of any JSON string in its canonical spelling, but for these `texts`, spelled so as well."""

    texts: tuple[bytes, ...]


Expr = (
    Never
    | Empty
    | Literal
    | ByteClass
    | CharClass
    | Concat
    | Alt
    | Repeat
    | Joined
    | Ref
    | Mark
    | Machine
    | Picks
    | Other
)

NEVER = Never()
EMPTY = Empty()


@dataclass(frozen=True, slots=True)
class Grammar:
    """Named rules and the name of the one to start with; text level throughout.

    Those in `common` are about texts that other schemas have as well, such as all numbers: worth to be remembered.
    """

    start: str
    rules: dict[str, Expr]
    common: frozenset[str] = frozenset()


def literal(data: bytes | str) -> Expr:
    """Text level: these bytes (a string stands for its UTF-8); the empty one is `EMPTY`."""
    raw = data.encode("utf-8") if isinstance(data, str) else data
    return Literal(raw) if raw else EMPTY


def char_class(ranges: Iterable[tuple[int, int]]) -> Expr:
    """Value level: one code point out of `ranges` (any order, may overlap); `NEVER` when there is none."""
    merged = merge_ranges(ranges)
    return CharClass(merged) if merged else NEVER


def byte_class(ranges: Iterable[tuple[int, int]]) -> Expr:
    """Text level: one byte out of `ranges` (any order, may overlap); `NEVER` when there is none."""
    merged = merge_ranges(ranges)
    if len(merged) == 1 and merged[0][0] == merged[0][1]:
        return Literal(bytes([merged[0][0]]))
    return ByteClass(merged) if merged else NEVER


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Sort inclusive ranges and join those that overlap or touch."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def concat(*parts: Expr) -> Expr:
    """One after another; flattens, joins neighbouring literals, drops `EMPTY`, is `NEVER` if a part is."""
    flat: list[Expr] = []
    for part in parts:
        for piece in part.parts if isinstance(part, Concat) else (part,):
            if isinstance(piece, Never):
                return NEVER
            if isinstance(piece, Literal) and flat and isinstance(flat[-1], Literal):
                flat[-1] = Literal(flat[-1].data + piece.data)
            elif not isinstance(piece, Empty):
                flat.append(piece)
    if not flat:
        return EMPTY
    return flat[0] if len(flat) == 1 else Concat(tuple(flat))


def alt(*choices: Expr) -> Expr:
    """Any one of these; flattens, drops `NEVER` and repetitions, keeps the order."""
    pieces = [
        piece
        for choice in choices
        for piece in (choice.choices if isinstance(choice, Alt) else (choice,))
        if not isinstance(piece, Never)
    ]
    flat: list[Expr] = []
    if len(pieces) > _FEW:
        flat = list(dict.fromkeys(pieces))
    else:  # a hash visits all of an expression, a comparison mostly ends at once
        for piece in pieces:
            if piece not in flat:
                flat.append(piece)
    if not flat:
        return NEVER
    return flat[0] if len(flat) == 1 else Alt(tuple(flat))


def optional(body: Expr) -> Expr:
    """`body` or nothing."""
    return alt(EMPTY, body)


def repeat(body: Expr, minimum: int, maximum: int | None, separator: Expr = EMPTY, *, free_text: bool = False) -> Expr:
    """Count the repeats of `body`.

    A nullable body is rewritten, as counting it would be ambiguous: `(a?){m,n}` is `(a){0,n}`.
    """
    if nullable(body):
        if not isinstance(separator, Empty):
            raise ValueError("a repeat with a separator needs a body that is never empty")
        body, minimum = without_empty(body), 0
    if maximum is not None and maximum < minimum:
        return NEVER
    if isinstance(body, Never):
        return EMPTY if minimum == 0 else NEVER
    if maximum == 0 or isinstance(body, Empty):
        return EMPTY
    if (minimum, maximum) == (1, 1):
        return body
    return Repeat(body, minimum, maximum, separator, free_text)


def joined(
    members: Iterable[Member], separator: Expr, more: Expr = NEVER, minimum: int = 0, maximum: int | None = None
) -> Expr:
    """Ordered members; impossible optional ones are dropped, an impossible required one makes it `NEVER`."""
    return _together(Joined, tuple(members), separator, more, minimum, maximum)


def picks(
    members: Iterable[Member], separator: Expr, more: Expr = NEVER, minimum: int = 0, maximum: int | None = None
) -> Expr:
    """Members in any order; simplified as `joined` does."""
    return _together(Picks, tuple(members), separator, more, minimum, maximum)


def _together(
    kind: type[Joined | Picks],
    members: tuple[Member, ...],
    separator: Expr,
    more: Expr,
    minimum: int,
    maximum: int | None,
) -> Expr:
    kept = _possible(members, more, minimum, maximum)
    if kept is None:
        return NEVER
    if maximum == 0 or (not kept and isinstance(more, Never)):
        return EMPTY
    return kind(kept, separator, more, minimum, maximum)


def _possible(members: Iterable[Member], more: Expr, minimum: int, maximum: int | None) -> tuple[Member, ...] | None:
    """Members that can be there; None where too few or too many of them would have to be."""
    listed = tuple(members)
    kept = tuple(member for member in listed if not isinstance(member.body, Never))
    required = sum(member.required for member in kept)
    lost = any(member.required and isinstance(member.body, Never) for member in listed)
    too_many = maximum is not None and max(required, minimum) > maximum
    too_few = isinstance(more, Never) and len(kept) < minimum
    return None if lost or too_many or too_few else kept


def mark(segment: str | None, body: Expr) -> Expr:
    """`body` as the value at one more pointer segment."""
    return body if isinstance(body, Never | Empty) else Mark(segment, body)


def nullable(expr: Expr) -> bool:
    """Whether the empty text matches."""
    match expr:
        case Empty():
            return True
        case Concat(parts):
            return all(map(nullable, parts))
        case Alt(choices):
            return any(map(nullable, choices))
        case Repeat():
            return expr.minimum == 0
        case Joined(members) | Picks(members):
            return expr.minimum == 0 and not any(member.required for member in members)
        case Mark(_, body):
            return nullable(body)
        case Machine(accepting=accepting):
            return bool(accepting[1]) and expr.minimum == 0
        case Other(texts):
            return b"" not in texts
        case _:
            return False


def without_empty(expr: Expr) -> Expr:
    """Same texts but the empty one."""
    match expr:
        case Empty():
            return NEVER
        case Alt(choices):
            return alt(*map(without_empty, choices))
        case Repeat() if expr.minimum == 0:
            return repeat(expr.body, 1, expr.maximum, expr.separator, free_text=expr.free_text)
        case Concat(parts) if nullable(expr):  # in halves: n log n where one part after another would be n squared
            head, tail = concat(*parts[: len(parts) // 2]), concat(*parts[len(parts) // 2 :])
            return alt(concat(without_empty(head), tail), without_empty(tail))
        case Joined() | Picks() | Machine() | Other() if nullable(expr):
            raise ValueError("what may be empty as a whole stands between brackets or quotes, never alone")
        case Mark(segment, body):
            return mark(segment, without_empty(body))
        case _:
            return expr
