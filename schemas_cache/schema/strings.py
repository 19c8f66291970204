"""Strings: lengths and patterns of the value.

In: facets. Out: a text expression, quotes included. Cost: linear in the pattern. Lengths count the code points of the
value, patterns constrain the value; how it is spelled comes after.
"""

from __future__ import annotations

from schemas_cache.errors import Finding, PatternError
from schemas_cache.grammar import NEVER, Expr, concat, literal
from schemas_cache.pattern import search_language
from schemas_cache.schema.merge import Facets
from schemas_cache.schema.writing import Writing
from schemas_cache.spelling import free_string, json_string

QUOTE = literal('"')


def write_string(writing: Writing, facets: Facets, depth: int) -> Expr:
    """Strings of these lengths and patterns."""
    del depth
    if "string" not in facets.types:
        return NEVER
    if facets.patterns:
        return concat(QUOTE, _pattern(writing, facets), QUOTE)
    low, high = facets.min_length, facets.max_length
    if high is not None and low > high:
        pointer, keyword = facets.lengths_at[-1]
        writing.dead_end(pointer, keyword, f"no string has at least {low} and at most {high} characters")
    return concat(QUOTE, free_string(low, high, writing.characters), QUOTE)


def _pattern(writing: Writing, facets: Facets) -> Expr:
    (pattern, pointer), *others = facets.patterns.items()
    for _, other in others:
        reason = f"a second pattern for the same value, beside {pointer}/pattern, cannot be enforced yet"
        writing.cannot(Finding(other, "pattern", reason, "write both as one pattern"))
    for at, keyword in facets.lengths_at:
        reason = f'"{keyword}" together with "pattern" cannot be enforced yet'
        writing.cannot(Finding(at, keyword, reason, "put the length into the pattern: ^.{2,4}$"))
    try:
        return json_string(search_language(pattern), writing.characters)
    except PatternError as error:
        reason = f'{error.reason}: "{error.construct}" at character {error.position}'
        writing.cannot(Finding(pointer, "pattern", reason, error.hint))
        return free_string(0, None, writing.characters)
