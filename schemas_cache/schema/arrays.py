"""Arrays: how many elements, and what each of them is.

In: facets. Out: a text expression, brackets included, with one copy of the element whatever the bounds. Cost: linear.
"""

from __future__ import annotations

from schemas_cache.grammar import NEVER, Expr, mark, repeat
from schemas_cache.schema import free
from schemas_cache.schema.layout import layout
from schemas_cache.schema.merge import Facets
from schemas_cache.schema.writing import Writing, owner_of


def write_array(writing: Writing, facets: Facets, depth: int) -> Expr:
    """Arrays of these elements."""
    if "array" not in facets.types:
        return NEVER
    low, high, owner = facets.min_items, facets.max_items, owner_of(facets)
    if not facets.items and low == 0 and high is None:
        return writing.free(free.ARRAY, owner)
    if high is not None and low > high:
        writing.dead_end(owner, "maxItems", f"no array has at least {low} and at most {high} elements")
        return NEVER
    around = layout(writing.options.whitespace, depth)
    element = NEVER if high == 0 else mark(None, writing.value(tuple(facets.items), depth + 1, owner))
    elements = repeat(element, max(low, 1), high, around.comma)
    return around.bracketed("[]", elements, may_be_empty=low == 0)
