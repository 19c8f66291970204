"""Arrays: how many elements, what each of them is, and which of them have to be there.

In: facets. Out: a text expression, brackets included. Cost: one copy of the element behind all prefixes whatever the
bounds; n log n copies of n positions, since an array may end behind any of them; for `contains` see `containing`.
"""

from __future__ import annotations

from schemas_cache.errors import Finding
from schemas_cache.grammar import NEVER, Expr, Never
from schemas_cache.schema import free
from schemas_cache.schema.containing import UncountedElementsError, Wanted, elements_among, wanted_of
from schemas_cache.schema.elements import Elements, element, prefix_length, sequence
from schemas_cache.schema.facets import Facets
from schemas_cache.schema.layout import layout
from schemas_cache.schema.unique import NotFiniteError, unique_elements
from schemas_cache.schema.writing import Writing, owner_of


def write_array(writing: Writing, facets: Facets, depth: int) -> Expr:
    """Arrays of these elements."""
    if "array" not in facets.types:
        return NEVER
    owner, low, high = owner_of(facets), facets.min_items, facets.max_items
    if not (facets.arrays or facets.unevaluated_items or facets.unique_items) and low == 0 and high is None:
        return writing.free(free.ARRAY, owner)
    low, high, wanted = wanted_of(facets, writing.schemas)
    elements = _elements(writing, facets, depth, high)
    high = elements.most(high)
    if high is not None and max(low, *(one.least for one in wanted), 0) > high:
        writing.dead_end(owner, "maxItems", f"no array has at least {low} and at most {high} elements")
        return NEVER
    members = _members(elements, facets, max(low, 1), high, wanted) if high != 0 else NEVER
    may_be_empty = low == 0 and all(one.least == 0 for one in wanted)
    return layout(writing.options.whitespace, depth).bracketed("[]", members, may_be_empty=may_be_empty)


def _elements(writing: Writing, facets: Facets, depth: int, high: int | None) -> Elements:
    """Positions up to the first impossible one."""
    positions = range(prefix_length(facets) if high is None else min(prefix_length(facets), high))
    prefix = [element(facets, writing.schemas, i) for i in positions]
    elements = Elements(writing, prefix, element(facets, writing.schemas, None), depth + 1, owner_of(facets))
    texts = elements.texts()
    end = next((i for i, text in enumerate(texts) if isinstance(text, Never)), None)
    return elements if end is None else elements.ending_at(end)


def _members(elements: Elements, facets: Facets, low: int, high: int | None, wanted: list[Wanted]) -> Expr:
    """Elements, one at least; what cannot be counted or kept apart is noted, and left out where that is allowed."""
    if facets.unique_items and (high is None or high > 1):
        try:
            unique = unique_elements(elements, low, high, wanted)
        except NotFiniteError as error:
            pointer = next(iter(facets.unique_items))
            elements.writing.cannot(Finding(pointer, "uniqueItems", str(error), "list the choices with enum"))
        else:
            if unique is not None:
                return unique
    try:
        return elements_among(elements, low, high, wanted)
    except UncountedElementsError as error:
        elements.writing.cannot(Finding(error.pointer, error.keyword, str(error), "ask for fewer things at once"))
        return sequence(elements, low, high)
