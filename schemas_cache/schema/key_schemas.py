"""`propertyNames`: what a schema says of keys, as a language of keys.

In: positions that every key has to satisfy. Out: a `FiniteAutomaton` over values. Cost: that of the schema's strings as
automata, once for each of its alternatives. A key is a string, so whatever the schema says of other types is void.
"""

from __future__ import annotations

from functools import reduce

from schemas_cache.finite import FiniteAutomaton
from schemas_cache.grammar import NEVER
from schemas_cache.machines import any_text, intersect, machine_of, subtract, unite, with_length
from schemas_cache.schema.formats import format_machine
from schemas_cache.schema.keys import pattern_keys
from schemas_cache.schema.merge import Facets, Node
from schemas_cache.schema.names import names_among
from schemas_cache.schema.strings import string_lengths
from schemas_cache.schema.writing import Writing


def schema_keys(writing: Writing, node: Node) -> FiniteAutomaton:
    """All strings that satisfy all of `node`; raises as `string_machine` does."""
    found = [machine_of(NEVER)]
    for facets in writing.alternatives(node):
        if facets.enumerations:
            found.append(machine_of(names_among(v for v in writing.listed(facets) if isinstance(v, str))))
        elif "string" in facets.types:
            found.append(_string_machine(facets))
    return reduce(unite, found)


def _string_machine(facets: Facets) -> FiniteAutomaton:
    found = reduce(intersect, map(pattern_keys, facets.patterns), any_text())
    found = reduce(subtract, map(pattern_keys, facets.excluded_patterns), found)
    others = [value for value in facets.excluded_values if isinstance(value, str)]
    found = subtract(found, machine_of(names_among(others))) if others else found
    found = reduce(intersect, map(format_machine, facets.formats), found)
    low, high = string_lengths(facets)
    return found if low == 0 and high is None else with_length(found, low, high)
