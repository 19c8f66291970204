"""Where `^` and `$` may hold: anchors resolved out of a pattern while it is put together.

In: the pieces of a pattern, each as `Variants`. Out: an `Expr` without anchors, for a match somewhere or of the whole
value. Cost: linear for pieces without anchors; n log n in a row of pieces whose anchors are optional, and a power of
the depth where repeats of such pieces are nested (`tree_size` lets the parser bound that).
Bounded repeats of parts that may be empty, one in another, double with every level: a count needs bodies that consume.

A piece that matches a span of the value may need that the span starts at the value's start (`^` was crossed before
anything was consumed), that it ends at the value's end, or both. So a piece is up to four expressions, one per need.
Putting two pieces together is then plain algebra: what stands before a piece that needs the start, and after one that
needs the end, can only be the empty text. A repeat is the same algebra over many pieces: a need for the start can only
be met by the first iteration that consumes anything, a need for the end by the last, and iterations that consume
nothing only help to reach the minimum.

Rejected: anchors as zero-width edges of the NFA (every later product and count would have to know of them).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from schemas_cache.code_points import ANY
from schemas_cache.grammar import (
    EMPTY,
    NEVER,
    Alt,
    Concat,
    Empty,
    Expr,
    Never,
    Repeat,
    alt,
    char_class,
    concat,
    nullable,
    repeat,
    without_empty,
)

Need = tuple[bool, bool]
"""Whether a span must start at the value's start, and whether it must end at its end."""

Variants = dict[Need, Expr]
"""What a piece matches under each need; a need under which it matches nothing is absent."""

FREE, START, END, BOTH = (False, False), (True, False), (False, True), (True, True)
ANY_TEXT = repeat(char_class(ANY), 0, None)


def plain(expr: Expr) -> Variants:
    """A piece that matches wherever it stands."""
    return _variants([(FREE, expr)])


def at_start() -> Variants:
    """The anchor `^`."""
    return {START: EMPTY}


def at_end() -> Variants:
    """The anchor `$`."""
    return {END: EMPTY}


def choice(pieces: Iterable[Variants]) -> Variants:
    """Any one of the pieces."""
    return _variants(item for piece in pieces for item in piece.items())


def sequence(pieces: Iterable[Variants]) -> Variants:
    """The pieces one after another; neighbours without anchors are joined at once, to stay linear."""
    runs = groupby(pieces, key=is_plain)
    joined = [[plain(concat(*(p.get(FREE, NEVER) for p in run)))] if free else list(run) for free, run in runs]
    return _row([piece for run in joined for piece in run])


def repeated(body: Variants, minimum: int, maximum: int | None) -> Variants:
    """`body` from `minimum` to `maximum` times (None: no bound)."""
    if is_plain(body):
        return plain(_counted(body.get(FREE, NEVER), minimum, maximum))
    consuming = {need: without_empty(expr) for need, expr in body.items()}
    paddings = _weakest(need for need, expr in body.items() if nullable(expr))
    found = []
    for need in (FREE, START, END, BOTH):
        if minimum == 0 or any(_both_needs(padding, need) == need for padding in paddings):
            found.append((need, _run(consuming, need, 0, maximum)))
        else:
            found.append((need, _run(consuming, need, minimum, maximum)))
            short = _run(consuming, need, 0, minimum - 1)
            found += [(_both_needs(padding, need), short) for padding in paddings]
    return _variants(found)


def somewhere(piece: Variants) -> Expr:
    """The values in which the piece matches at some place."""
    if any(nullable(expr) for need, expr in piece.items() if need != BOTH):
        return ANY_TEXT
    return alt(
        *(
            concat(EMPTY if start else ANY_TEXT, expr, EMPTY if end else ANY_TEXT)
            for (start, end), expr in piece.items()
        )
    )


def whole(piece: Variants) -> Expr:
    """The values that the piece matches from start to end."""
    return alt(*piece.values())


def is_plain(piece: Variants) -> bool:
    """Whether the piece matches wherever it stands, or nowhere."""
    return piece.keys() <= {FREE}


def tree_size(piece: Variants) -> int:
    """Nodes in all of a piece's expressions, each counted as often as it stands there."""
    return sum(map(_nodes, piece.values()))


def _nodes(expr: Expr) -> int:
    match expr:
        case Alt(parts) | Concat(parts):
            return 1 + sum(map(_nodes, parts))
        case Repeat(body):
            return 1 + _nodes(body)
        case _:
            return 1


def _variants(items: Iterable[tuple[Need, Expr]]) -> Variants:
    """Collect the expressions of each need into one."""
    found: dict[Need, list[Expr]] = {}
    for need, expr in items:
        if not isinstance(expr, Never):
            found.setdefault(need, []).append(expr)
    return {need: alt(*exprs) for need, exprs in found.items()}


def _both_needs(one: Need, other: Need) -> Need:
    return (one[0] or other[0], one[1] or other[1])


def _empty_part(expr: Expr) -> Expr:
    return EMPTY if nullable(expr) else NEVER


def _pair(left: Variants, right: Variants) -> Variants:
    """Two pieces one after the other."""
    return _variants(
        (
            _both_needs(left_need, right_need),
            concat(_empty_part(before) if right_need[0] else before, _empty_part(after) if left_need[1] else after),
        )
        for left_need, before in left.items()
        for right_need, after in right.items()
    )


def _row(pieces: list[Variants]) -> Variants:
    """Pieces one after another, paired in halves: the tree's depth grows with the logarithm of their number."""
    if len(pieces) <= 1:
        return pieces[0] if pieces else plain(EMPTY)
    half = len(pieces) // 2
    return _pair(_row(pieces[:half]), _row(pieces[half:]))


def _weakest(needs: Iterable[Need]) -> list[Need]:
    """The needs that do not include another of them."""
    every = set(needs)
    return [need for need in every if not any(other != need and _both_needs(other, need) == need for other in every)]


def _run(body: Variants, need: Need, low: int, high: int | None) -> Expr:
    """From `low` to `high` iterations in a row, each of which consumes something, that have `need` together."""

    def free(others: int) -> Expr:
        """The iterations without a need, beside `others` that have one."""
        if high is not None and high < others:
            return NEVER
        return _counted(body.get(FREE, NEVER), max(0, low - others), None if high is None else high - others)

    first, last = body.get(START, NEVER), body.get(END, NEVER)
    if need == FREE:
        return free(0)
    if need == START:
        return concat(first, free(1))
    if need == END:
        return concat(free(1), last)
    alone = body.get(BOTH, NEVER) if low <= 1 and high != 0 else NEVER
    return alt(concat(first, free(2), last), alone)


def _counted(body: Expr, minimum: int, maximum: int | None) -> Expr:
    """`repeat`, but an unbounded repeat of repeats or of optional parts becomes a repeat of a flat choice.

    `(a*b?)*` is `(a|b)*`: fewer states, no ambiguity, and no growth with the depth of nesting.
    """
    if nullable(body):
        if maximum == 1:
            return body  # nothing to count, and no need for the rewriting below, which doubles what it takes apart
        minimum = 0
    if maximum is None and minimum <= 1:
        body = alt(*_pieces(body))
    return repeat(body, minimum, maximum)


def _pieces(expr: Expr) -> Iterator[Expr]:
    """Texts, none empty, whose repetitions are the repetitions of `expr`."""
    match expr:
        case Empty():
            return
        case Alt(choices):
            for piece in choices:
                yield from _pieces(piece)
        case Concat(parts) if nullable(expr):
            for piece in parts:
                yield from _pieces(piece)
        case Repeat() if expr.minimum <= 1:
            yield from _pieces(expr.body)
        case _:
            yield expr
