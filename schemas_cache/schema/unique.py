"""`uniqueItems`: elements of which no two are equal.

In: `Elements` and bounds. Out: a text expression, or None where no two elements can be equal anyway. Cost: one copy of
each choice; which of them are used is in the frame.

Two kinds of arrays: those of finitely many values (listed ones, booleans, a small range, a finite pattern), which are
members in any order, each at most once; and those of a bounded length whose positions are disjoint or have few values.
No finite automaton can tell whether two strings of any length are equal, so all others are refused. Equal numbers are
one choice: 1 and 1.0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from schemas_cache.errors import PatternError
from schemas_cache.grammar import EMPTY, NEVER, Expr, Member, alt, concat, mark, picks
from schemas_cache.limits import MAX_UNIQUE_CHOICES
from schemas_cache.machines import MachineTooLargeError
from schemas_cache.schema.containing import Wanted
from schemas_cache.schema.document import Json
from schemas_cache.schema.elements import Element, Elements, with_also
from schemas_cache.schema.facets import Enumeration, Facets
from schemas_cache.schema.key_schemas import schema_keys
from schemas_cache.schema.keys import listed
from schemas_cache.schema.nodes import Node
from schemas_cache.schema.values import distinct, identity, value_text

_ENDLESS = "whether two elements are equal can be enforced for finitely many values only"


class NotFiniteError(Exception):
    """The elements are too many values; says why in words."""


def unique_elements(elements: Elements, low: int, high: int | None, wanted: Sequence[Wanted]) -> Expr | None:
    """From `low`, which is 1 at least, to `high` different elements; raises `NotFiniteError`."""
    if high is not None and high <= len(elements.prefix):
        return None if _are_apart(elements, high) else _in_turn(elements, low, high, wanted)
    if elements.prefix:
        raise NotFiniteError('behind "prefixItems" it can be enforced only where no element can stand there')
    values = _values(elements, elements.rest or ())
    matching = [_values(elements, with_also(elements.rest, want.schema)) for want in wanted]
    texts = {identity(value): _text(elements, value, None) for value in values}
    required: list[frozenset[object]] = [frozenset()]
    for want, match in zip(wanted, matching, strict=True):
        if want.least != 1 or want.most is not None or len(wanted) > 1:
            raise NotFiniteError('beside "contains" only one match can be asked for')
        if len(match) < len(values):
            required = [frozenset([identity(value)]) for value in match]
    if len(required) * len(values) > MAX_UNIQUE_CHOICES:
        raise NotFiniteError(f'beside "contains" the elements may have {math.isqrt(MAX_UNIQUE_CHOICES)} values or so')
    ways = (
        picks([Member(text, key in asked) for key, text in texts.items()], elements.comma, minimum=low, maximum=high)
        for asked in required
    )
    return alt(*ways)


def _are_apart(elements: Elements, count: int) -> bool:
    """Whether no two positions can hold the same value, for certain."""
    pairs = combinations(elements.prefix[:count], 2)
    return all(elements.writing.never((*a, *b)) for one, other in pairs for a in one for b in other)


def _in_turn(elements: Elements, low: int, high: int, wanted: Sequence[Wanted]) -> Expr:
    """Positions of few values: every sequence of different ones."""
    if wanted:
        raise NotFiniteError(
            'beside "prefixItems" and "contains" it can be enforced only where the positions are disjoint'
        )
    choices = [_values(elements, one) for one in elements.prefix[:high]]
    if math.prod(map(len, choices)) > MAX_UNIQUE_CHOICES:
        raise NotFiniteError(f"the positions have more than {MAX_UNIQUE_CHOICES} combinations of values")
    return _different(elements, choices, low, ())


def _different(elements: Elements, choices: list[list[Json]], low: int, used: tuple[Json, ...]) -> Expr:
    """All positions from one on, none with a value of those before; `low` of them or more, one at least."""
    ways = []
    for value in choices[0]:
        if identity(value) not in used:
            may_end = EMPTY if low <= 1 else NEVER
            behind: Expr = NEVER
            if choices[1:]:
                further = _different(elements, choices[1:], low - 1, (*used, identity(value)))
                behind = concat(elements.comma, further)
            ways.append(concat(_text(elements, value, str(len(used))), alt(may_end, behind)))
    return alt(*ways)


def _values(elements: Elements, one: Element) -> list[Json]:
    """All values of an element, equal ones once."""
    found: list[Json] = []
    for node in one:
        for facets in elements.writing.alternatives(node):
            found += _values_of(elements, facets, node)
    values = distinct(found)
    if len(values) > MAX_UNIQUE_CHOICES:
        raise NotFiniteError(f"the elements have more than {MAX_UNIQUE_CHOICES} values")
    return values


def _values_of(elements: Elements, facets: Facets, node: Node) -> list[Json]:
    if facets.enumerations:
        return elements.writing.listed(facets)
    candidates = facets.fork()
    values = [value for atom in sorted(facets.types) for value in _of_type(atom, elements, facets, node)]
    candidates.enumerations = [Enumeration("enum", values, elements.owner)]
    return elements.writing.listed(candidates)


def _of_type(atom: str, elements: Elements, facets: Facets, node: Node) -> Sequence[Json]:
    """All values of a type, or some more."""
    match atom:
        case "null":
            return [None]
        case "boolean":
            return [False, True]
        case "integer":
            return _integers(facets)
        case "string":
            return _strings(elements, node)
        case _:
            raise NotFiniteError(_ENDLESS)


def _strings(elements: Elements, node: Node) -> list[str]:
    """Strings of the node, where patterns and lengths leave few."""
    try:
        strings = listed(schema_keys(elements.writing, node))
    except (MachineTooLargeError, PatternError) as error:
        raise NotFiniteError(_ENDLESS) from error
    if strings is None:
        raise NotFiniteError(_ENDLESS)
    return strings


def _integers(facets: Facets) -> range:
    """Integers within the bounds, or some more."""
    least = [math.ceil(bound.value) for bound in facets.bounds if bound.keyword in ("minimum", "exclusiveMinimum")]
    greatest = [math.floor(bound.value) for bound in facets.bounds if bound.keyword in ("maximum", "exclusiveMaximum")]
    if not least or not greatest or min(greatest) - max(least) > MAX_UNIQUE_CHOICES:
        raise NotFiniteError(f"the elements have more than {MAX_UNIQUE_CHOICES} values")
    return range(max(least), min(greatest) + 1)


def _text(elements: Elements, value: Json, index: str | None) -> Expr:
    options, characters = elements.writing.options, elements.writing.characters
    return mark(index, value_text(value, elements.depth, options, characters))
