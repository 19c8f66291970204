"""`contains` with `minContains` and `maxContains`: elements of which some have to match.

In: `Elements`, and what is wanted. Out: a text expression. Cost: a copy of the element for each that is counted, and of
all positions of a prefix for each number of matches so far.

No complement is needed where only a minimum is asked for: so many elements match, and any others stand among them. For
a maximum the others are those that do not match. Where the length is bounded as well, both are counted at once, as
members in any order. Elements that have to match several `contains` may be one element or different ones: every way to
share is an alternative. Rejected: an automaton over elements, since an element can be a document with recursion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from schemas_cache.grammar import EMPTY, NEVER, Expr, Member, alt, concat, picks, repeat
from schemas_cache.limits import MAX_CONTAINS, MAX_COUNTED_ELEMENTS, MAX_POSITIONS_BESIDE_CONTAINS
from schemas_cache.schema.complements import NoComplementError
from schemas_cache.schema.elements import ANY_INDEX, Element, Elements, sequence, with_also
from schemas_cache.schema.facets import Facets, least
from schemas_cache.schema.nodes import Schemas


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many elements match a subschema; `most` None: no bound."""

    schema: str
    least: int
    most: int | None
    pointer: str

    def met(self) -> Wanted:
        """What is wanted of the elements behind one that matches."""
        return replace(self, least=max(self.least - 1, 0), most=None if self.most is None else self.most - 1)


class UncountedElementsError(Exception):
    """A combination of counts that cannot be written."""

    def __init__(self, wanted: Wanted, keyword: str, reason: str) -> None:
        self.pointer, self.keyword = wanted.pointer, keyword
        super().__init__(reason)


def wanted_of(facets: Facets, schemas: Schemas) -> tuple[int, int | None, list[Wanted]]:
    """Bounds of the length, and what has to be counted besides: a `contains` of anything is a bound itself."""
    low, high, wanted = facets.min_items, facets.max_items, []
    for pointer, layer in facets.arrays.items():
        if layer.contains is None or (layer.least == 0 and layer.most is None):
            continue
        if schemas[layer.contains] in (True, {}):
            low, high = max(low, layer.least), least(high, layer.most)
        else:
            wanted.append(Wanted(layer.contains, layer.least, layer.most, pointer))
    return low, high, wanted


def elements_among(elements: Elements, low: int, high: int | None, wanted: Sequence[Wanted]) -> Expr:
    """From `low`, which is 1 at least, to `high` elements, with what is wanted; raises `UncountedElementsError`."""
    wanted = [one for one in (_bounded(one, high) for one in wanted) if one.least or one.most is not None]
    if (high is not None and low > high) or any(one.most is not None and one.least > one.most for one in wanted):
        return NEVER
    if not wanted:
        return sequence(elements, low, high)
    if not elements.prefix:
        return _one_kind(elements, low, high, wanted) if elements.rest else NEVER
    if len(elements.prefix) > MAX_POSITIONS_BESIDE_CONTAINS:
        reason = f"beside more than {MAX_POSITIONS_BESIDE_CONTAINS} positions it cannot be enforced"
        raise UncountedElementsError(wanted[0], "contains", reason)
    return alt(*_first_then(elements, low, high, wanted))


def _first_then(elements: Elements, low: int, high: int | None, wanted: Sequence[Wanted]) -> Iterator[Expr]:
    """The first position, by what it matches, and all behind it."""
    for met in product((True, False), repeat=len(wanted)):
        if any(is_met and one.most == 0 for is_met, one in zip(met, wanted, strict=True)):
            continue
        left = [one.met() if is_met else one for is_met, one in zip(met, wanted, strict=True)]
        first = elements.text(_classified(elements, elements.prefix[0], wanted, met), ANY_INDEX, is_shared=True)
        may_end = low <= 1 and not any(one.least for one in left)
        behind: Expr = NEVER
        if high is None or high > 1:
            fewer = None if high is None else high - 1
            behind = concat(elements.comma, elements_among(elements.behind(1), max(low - 1, 1), fewer, left))
        yield concat(first, alt(EMPTY if may_end else NEVER, behind))


def _classified(elements: Elements, one: Element, wanted: Sequence[Wanted], met: Sequence[bool]) -> Element:
    """An element that matches what is met; what is counted exactly and not met it does not match."""
    for want, is_met in zip(wanted, met, strict=True):
        if is_met:
            one = with_also(one, want.schema)
        elif want.most is not None:
            one = _without(elements, one, want)
    return one


def _without(elements: Elements, one: Element, want: Wanted) -> Element:
    try:
        return with_also(one, elements.writing.complement(want.schema))
    except NoComplementError as error:
        raise UncountedElementsError(want, "maxContains", f'"maxContains" cannot be enforced: {error}') from error


def _one_kind(elements: Elements, low: int, high: int | None, wanted: Sequence[Wanted]) -> Expr:
    """Elements of one kind, among them what is wanted."""
    if len(wanted) > 1:
        return _several(elements, low, high, wanted)
    want = wanted[0]
    rest = elements.rest or ()
    others = elements.rest if want.most is None else _without(elements, rest, want)
    if want.most == 0:
        return repeat(elements.text(others, None), low, high, elements.comma)
    if high is None and low <= max(want.least, 1):
        return _in_groups(elements, with_also(rest, want.schema), others, want)
    number = want.least if want.most is None else want.most
    if number > MAX_COUNTED_ELEMENTS:
        reason = f"beside a bound on the length, no more than {MAX_COUNTED_ELEMENTS} elements can be counted"
        raise UncountedElementsError(want, "contains", reason)
    match = elements.text(with_also(rest, want.schema), None, is_shared=True)
    members = [Member(match, required=i < want.least) for i in range(number)]
    return picks(members, elements.comma, elements.text(others, None, is_shared=True), low, high)


def _in_groups(elements: Elements, match: Element, others: Element | None, want: Wanted) -> Expr:
    """An element that matches and any others behind it, so many times; others before the first."""
    comma = elements.comma
    other = elements.text(others, ANY_INDEX, is_shared=True)
    group = concat(elements.text(match, ANY_INDEX, is_shared=True), repeat(concat(comma, other), 0, None))
    some = concat(repeat(concat(other, comma), 0, None), repeat(group, max(want.least, 1), want.most, comma))
    return some if want.least else alt(some, repeat(other, 1, None, comma))


def _several(elements: Elements, low: int, high: int | None, wanted: Sequence[Wanted]) -> Expr:
    """One element for each that is wanted, or one for several."""
    for want in wanted:
        if want.most is not None or want.least > 1 or len(wanted) > MAX_CONTAINS:
            reason = f'beside another "contains" only one match can be asked for, and {MAX_CONTAINS} of them in all'
            raise UncountedElementsError(want, "contains", reason)
    rest = elements.rest or ()
    other = elements.text(rest, None, is_shared=True)
    ways = []
    for blocks in _partitions([want.schema for want in wanted]):
        kinds = []
        for block in blocks:
            kind = rest
            for schema in block:
                kind = with_also(kind, schema)
            kinds.append(Member(elements.text(kind, None, is_shared=True), required=True))
        ways.append(picks(kinds, elements.comma, other, low, high))
    return alt(*ways)


def _partitions(items: list[str]) -> Iterator[list[list[str]]]:
    """All ways to put items into groups."""
    if not items:
        yield []
        return
    for groups in _partitions(items[1:]):
        yield [[items[0]], *groups]
        for i in range(len(groups)):
            yield [*groups[:i], [items[0], *groups[i]], *groups[i + 1 :]]


def _bounded(want: Wanted, high: int | None) -> Wanted:
    """A maximum that the length keeps anyway is none."""
    return replace(want, most=None) if want.most is not None and high is not None and want.most >= high else want
