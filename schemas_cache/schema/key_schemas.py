"""`propertyNames`: what a schema says of keys, as a language of keys.

In: positions that every key has to satisfy. Out: a `FiniteAutomaton` over values. Cost: that of the schema's strings as
automata, once for each of its alternatives. A key is a string, so whatever the schema says of other types is void.
"""

from __future__ import annotations

from functools import reduce

from schemas_cache.finite import FiniteAutomaton
from schemas_cache.machines import any_text, intersect, subtract, unite, with_length
from schemas_cache.schema.facets import Facets
from schemas_cache.schema.keys import tree
from schemas_cache.schema.nodes import Node
from schemas_cache.schema.strings import string_demands, string_lengths
from schemas_cache.schema.writing import Writing


def schema_keys(writing: Writing, node: Node) -> FiniteAutomaton:
    """All strings that satisfy all of `node`; raises `MachineTooLargeError`."""
    found = [tree(())]
    for facets in writing.alternatives(node):
        if facets.enumerations:
            found.append(tree(value for value in writing.listed(facets) if isinstance(value, str)))
        elif "string" in facets.types:
            found.append(_strings(writing, facets))
    return reduce(unite, found)


def _strings(writing: Writing, facets: Facets) -> FiniteAutomaton:
    """All strings of these facets."""
    found = any_text()
    for demand in string_demands(writing, facets):
        found = (subtract if demand.is_excluded else intersect)(found, demand.machine())
    low, high = string_lengths(facets)
    return with_length(found, low, high) if low or high is not None else found
