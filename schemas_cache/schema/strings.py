"""Strings: lengths, patterns, formats, and what must not match.

In: facets. Out: a text expression, quotes included. All that is asked of a string is asked of its value, in code
points; how it is spelled comes after.

Cost: linear in the pattern where one pattern or format stands alone, with or without lengths that counts can say: such
an expression is determinised as far as it is visited. Everything else is a product of automata, exact or refused, kept
for the next schema and written once in each grammar.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial

from schemas_cache.errors import Finding, PatternError
from schemas_cache.escapes import ESCAPES
from schemas_cache.finite import FiniteAutomaton
from schemas_cache.grammar import NEVER, Expr, Never, concat, literal
from schemas_cache.lengths import bounded, of_length
from schemas_cache.limits import MAX_NAME_NESTING
from schemas_cache.machines import MachineTooLargeError, any_text, expr_of, intersect, machine_of, subtract, texts_of
from schemas_cache.pattern import search_language
from schemas_cache.schema.facets import Facets
from schemas_cache.schema.formats import FORMATS, format_language, format_machine
from schemas_cache.schema.names import names_among, names_other_than, nesting
from schemas_cache.schema.writing import Writing, note_pattern, owner_of
from schemas_cache.spelling import Characters, free_string, json_string

QUOTE = literal('"')
FREE = "json.string"
"""The rule of all strings."""

_language = lru_cache(maxsize=256)(search_language)
_intersect = lru_cache(maxsize=32)(intersect)
_subtract = lru_cache(maxsize=32)(subtract)
_of_length = lru_cache(maxsize=32)(of_length)
_spelled = lru_cache(maxsize=64)(json_string)


@dataclass(frozen=True, slots=True)
class Demand:
    """One thing that is asked of a string, beside its length.

    Attributes
    ----------
    pointer, keyword : str
        Where it is asked.
    text : str
        What is asked; with `keyword`, all that `language` and `machine` depend on.
    language : Expr or None
        The strings that are meant, as an expression; None where only the automaton is to be had.
    machine : callable
        Makes their automaton; raises `MachineTooLargeError`.
    is_excluded : bool
        These strings are the ones that are not allowed.
    """

    pointer: str
    keyword: str
    text: str
    language: Expr | None
    machine: Callable[[], FiniteAutomaton]
    is_excluded: bool = False


def write_string(writing: Writing, facets: Facets, depth: int) -> Expr:
    """Strings of these lengths, patterns and formats."""
    del depth
    if "string" not in facets.types:
        return NEVER
    low, high = string_lengths(facets)
    if high is not None and low > high:
        pointer, keyword = facets.lengths_at[-1]
        writing.dead_end(pointer, keyword, f"no string has at least {low} and at most {high} characters")
        return NEVER
    demands = list(string_demands(writing, facets))
    if not demands:
        text = concat(QUOTE, free_string(low, high, writing.characters), QUOTE)
        return writing.once(FREE, text) if (low, high) == (0, None) else text
    simple = _simple(demands, low, high, writing.characters)
    value = _product(writing, facets, demands, low, high) if simple is None else simple
    if isinstance(value, Never):
        writing.dead_end(demands[-1].pointer, demands[-1].keyword, "no string satisfies all that is asked for here")
        return NEVER
    text = concat(QUOTE, _spelled(value, writing.characters), QUOTE)
    return text if _is_light(demands, simple) else writing.once(_name(demands, low, high), text)


def string_lengths(facets: Facets) -> tuple[int, int | None]:
    """Fewest and most characters (None: no bound), those of the formats included."""
    limits = [FORMATS[name].max_length for name in facets.formats] + [facets.max_length]
    return facets.min_length, min((limit for limit in limits if limit is not None), default=None)


def string_demands(writing: Writing, facets: Facets) -> Iterator[Demand]:
    """All that is asked of a string but its length; what cannot be read is noted."""
    for pattern, pointer in facets.patterns.items():
        yield from _pattern(writing, pattern, pointer, "pattern")
    for name, pointer in facets.formats.items():
        yield Demand(pointer, "format", name, format_language(name), partial(format_machine, name))
    for pattern, pointer in facets.excluded_patterns.items():
        yield from _pattern(writing, pattern, pointer, "not")
    low, high = string_lengths(facets)
    values = [
        v for v in facets.excluded_values if isinstance(v, str) and low <= len(v) <= (len(v) if high is None else high)
    ]
    if values:
        texts = tuple(sorted(set(values)))
        is_shallow = nesting(texts) <= MAX_NAME_NESTING
        language = names_other_than(texts) if is_shallow else None
        yield Demand(owner_of(facets), "not", json.dumps(texts), language, partial(_other_than, texts))


def _pattern(writing: Writing, pattern: str, pointer: str, keyword: str) -> Iterator[Demand]:
    try:
        language = _language(pattern)
    except PatternError as error:
        note_pattern(writing, error, pointer, keyword)
        return
    yield Demand(pointer, keyword, pattern, language, partial(pattern_machine, pattern), keyword == "not")


@lru_cache(maxsize=64)
def pattern_machine(pattern: str) -> FiniteAutomaton:
    """The automaton of all values that a pattern matches somewhere; raises as `search_language`, `machine_of` do."""
    return machine_of(_language(pattern))


@lru_cache(maxsize=32)
def _other_than(texts: tuple[str, ...]) -> FiniteAutomaton:
    return subtract(any_text(), machine_of(names_among(texts)))


def _simple(demands: list[Demand], low: int, high: int | None, characters: Characters) -> Expr | None:
    """One demand alone, if counts can say the lengths; None where it takes a product.

    Formats may have an automaton inside, which only a product cuts down to the characters that there are.
    """
    only = demands[0]
    if len(demands) > 1 or only.is_excluded or only.language is None:
        return None
    if only.keyword == "format" and characters is not None:
        return None
    return bounded(only.language, low, high)


def _is_light(demands: list[Demand], simple: Expr | None) -> bool:
    return simple is not None and demands[0].keyword != "format"


def _product(writing: Writing, facets: Facets, demands: list[Demand], low: int, high: int | None) -> Expr:
    """All demands and lengths at once; what makes it too large is reported and left out."""
    found: FiniteAutomaton | None = None
    for demand in demands:
        try:
            found = _with_demand(found, demand)
        except MachineTooLargeError as error:
            writing.cannot(_too_large(demand.pointer, demand.keyword, error))
    found = any_text() if found is None else found
    try:
        return _of_length(restricted(found, writing.characters), low, high)
    except MachineTooLargeError as error:
        for pointer, keyword in facets.lengths_at or [(demand.pointer, demand.keyword) for demand in demands]:
            writing.cannot(_too_large(pointer, keyword, error))
        return expr_of(found)


def _with_demand(found: FiniteAutomaton | None, demand: Demand) -> FiniteAutomaton:
    machine = demand.machine()
    if demand.is_excluded:
        return _subtract(found or any_text(), machine)
    return machine if found is None else _intersect(found, machine)


def restricted(machine: FiniteAutomaton, characters: Characters) -> FiniteAutomaton:
    """The strings of `machine` that can be spelled; raises `MachineTooLargeError`."""
    return machine if characters is None else _intersect(machine, texts_of(_spellable(characters)))


def _too_large(pointer: str, keyword: str, error: MachineTooLargeError) -> Finding:
    reason = f'"{keyword}" cannot be enforced with the other keywords beside it: {error}'
    return Finding(pointer, keyword, reason, "ask for less: shorter lengths, or a simpler pattern", is_limit=True)


@lru_cache(maxsize=8)
def _spellable(characters: frozenset[str]) -> frozenset[str]:
    """The characters that a value may have: those that stand raw in JSON, and those whose escape can be spelled."""
    raw = (char for char in characters if ord(char) not in ESCAPES)
    return frozenset((*raw, *(chr(code) for code, text in ESCAPES.items() if characters.issuperset(text))))


def _name(demands: list[Demand], low: int, high: int | None) -> str:
    """A rule's name, different for different strings."""
    asked = [f"{demand.keyword} {json.dumps(demand.text, ensure_ascii=False)}" for demand in demands]
    lengths = [f"{low}..{'' if high is None else high}"] if low or high is not None else []
    return " & ".join(["string", *asked, *lengths])
