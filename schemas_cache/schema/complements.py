"""The complement of each keyword: other keywords, of which one set holds exactly where the keyword does not.

In: a keyword's value and its neighbours; positions of subschemas. Out: sets of keywords, in today's words and a few of
our own that begin with `^`. Cost: linear in the value, but for a closed object (`MAX_NEGATED_NAMES`) and `oneOf`. A
keyword is about one type, so its complement names that type. What is missing here has no complement in keywords.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any, Protocol

from schemas_cache.limits import MAX_NEGATED_BRANCHES, MAX_NEGATED_NAMES
from schemas_cache.schema.document import Json
from schemas_cache.schema.facets import ATOMS
from schemas_cache.schema.nodes import ANYTHING, NOTHING
from schemas_cache.schema.reading import Keywords


class NoComplementError(Exception):
    """A keyword that no other keywords are the complement of: its position, itself and why."""

    def __init__(self, pointer: str, keyword: str, reason: str = "") -> None:
        self.pointer, self.keyword = pointer, keyword
        self.reason = reason or f'what "{keyword}" at {pointer} forbids cannot be said otherwise'
        super().__init__(self.reason)


class Making(Protocol):
    """What the complement of a keyword is made with."""

    def no(self, pointer: str) -> str:
        """The position of the complement of a subschema."""

    def put(self, name: str, schema: Keywords | bool) -> str:
        """A derived position with these keywords."""

    def either(self, name: str, choices: list[Keywords]) -> Keywords | bool:
        """One of these."""

    def number(self) -> int:
        """One that no name has yet."""


Complement = Callable[[Making, Any, Keywords], Iterator[Keywords]]


def not_type(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """Any other type; a number that is no integer is a fraction."""
    del making, beside
    names = {value} if isinstance(value, str) else set(value)
    others = set(ATOMS) - names - ({"integer", "fraction"} if "number" in names else set())
    if others:
        yield {"^types": frozenset(others)}


def not_listed(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """None of the values: scalars as they are, the others by what they are made of."""
    del beside
    scalars = [v for v in value if not isinstance(v, list | dict)]
    parts = [_unlike(making, v) for v in value if isinstance(v, list | dict)]
    yield ({"^values": scalars} if scalars else {}) | ({"allOf": parts} if parts else {})


def not_const(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """As a list of one value."""
    return not_listed(making, [value], beside)


def _unlike(making: Making, value: Json) -> str:
    """Everything but one value."""
    name = f"^unlike^{making.number()}"
    if isinstance(value, dict):
        choices = list(_unlike_object(making, value))
    elif isinstance(value, list):
        choices = list(_unlike_array(making, value))
    else:
        choices = [{"^values": [value]}]
    return making.put(name, making.either(name, choices))


def _unlike_array(making: Making, value: list[Json]) -> Iterator[Keywords]:
    yield {"^types": frozenset(ATOMS) - {"array"}}
    yield {"type": "array", "minItems": len(value) + 1}
    if value:
        yield {"type": "array", "maxItems": len(value) - 1}
    for i, element in enumerate(value):
        yield {"type": "array", "minItems": i + 1, "prefixItems": [*[ANYTHING] * i, _unlike(making, element)]}


def _unlike_object(making: Making, value: dict[str, Json]) -> Iterator[Keywords]:
    yield {"^types": frozenset(ATOMS) - {"object"}}
    yield {"type": "object", "minProperties": len(value) + 1}
    for name, member in value.items():
        yield {"type": "object", "^absent": [name]}
        yield {"type": "object", "properties": {name: _unlike(making, member)}, "required": [name]}


def not_at_least(kind: str, opposite: str) -> Complement:
    """A count from 0, of values of one type."""

    def complement(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
        del making, beside
        if value > 0:
            yield {"type": kind, opposite: int(value) - 1}

    return complement


def not_at_most(kind: str, opposite: str) -> Complement:
    """A count, of values of one type."""

    def complement(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
        del making, beside
        yield {"type": kind, opposite: int(value) + 1}

    return complement


def not_bound(opposite: str) -> Complement:
    """A number on the other side."""

    def complement(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
        del making, beside
        yield {"type": "number", opposite: value}

    return complement


def not_pattern(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """A string without a match."""
    del making, beside
    yield {"type": "string", "^pattern": value}


def not_required(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An object that lacks one of the names."""
    del making, beside
    for name in value:
        yield {"type": "object", "^absent": [name]}


def not_properties(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An object with one of the names, and not such a value."""
    del beside
    for name, pointer in value.items():
        otherwise = making.no(pointer)
        if otherwise != NOTHING:
            yield {"type": "object", "properties": {name: otherwise}, "required": [name]}


def not_additional_properties(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An object with a name beside the declared ones: whichever of those are there, it has one member more."""
    if making.no(value) == NOTHING:
        return
    optional = sorted(beside.get("properties", {}).keys() - set(beside.get("required", ())))
    always = sorted(beside.get("properties", {}).keys() & set(beside.get("required", ())))
    if making.no(value) != ANYTHING or beside.get("patternProperties") or len(optional) > MAX_NEGATED_NAMES:
        raise NoComplementError("", "additionalProperties", "an object with some further name cannot be asked for")
    for size in range(len(optional) + 1):
        for there in combinations(optional, size):
            absent = [name for name in optional if name not in there]
            required = [*always, *there]
            yield {"type": "object", "^absent": absent, "required": required, "minProperties": len(required) + 1}


def not_items(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An array with such an element; behind a prefix only where none is allowed."""
    otherwise, before = making.no(value), len(beside.get("prefixItems", ()))
    if otherwise == ANYTHING:
        yield {"type": "array", "minItems": before + 1}
    elif before and otherwise != NOTHING:
        raise NoComplementError("", "items", "some element behind a prefix cannot be asked for")
    elif otherwise != NOTHING:
        yield {"type": "array", "contains": otherwise}


def not_prefix_items(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An array with another element at one of the positions."""
    del beside
    for i, pointer in enumerate(value):
        otherwise = making.no(pointer)
        if otherwise != NOTHING:
            yield {"type": "array", "minItems": i + 1, "prefixItems": [*[ANYTHING] * i, otherwise]}


def not_contains(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An array without such an element."""
    if not beside.keys().isdisjoint({"minContains", "maxContains"}):
        raise NoComplementError("", "contains", "a number of elements cannot be forbidden")
    otherwise = making.no(value)
    yield {"type": "array"} | ({"maxItems": 0} if otherwise == NOTHING else {"items": otherwise})


def not_dependent_required(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An object with a name, and without one that this asks for."""
    del making, beside
    for name, others in value.items():
        for other in others:
            yield {"type": "object", "required": [name], "^absent": [other]}


def not_dependent_schemas(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An object with a name that is not what this asks for."""
    del beside
    for name, pointer in value.items():
        yield {"type": "object", "required": [name], "allOf": [making.no(pointer)]}


def not_dependencies(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """Either of the two, by what is asked for."""
    names = {name: asked for name, asked in value.items() if isinstance(asked, list)}
    yield from not_dependent_required(making, names, beside)
    yield from not_dependent_schemas(making, {n: v for n, v in value.items() if n not in names}, beside)


def not_reference(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """The complement of the target."""
    del beside
    yield {"allOf": [making.no(value)]}


def not_all_of(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """The complement of one of them."""
    del beside
    for pointer in value:
        yield {"allOf": [making.no(pointer)]}


def not_any_of(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """The complements of all."""
    del beside
    yield {"allOf": [making.no(pointer) for pointer in value]}


def not_one_of(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """The complements of all, or two that hold together."""
    if len(value) > MAX_NEGATED_BRANCHES:
        raise NoComplementError("", "oneOf", f'a "oneOf" of more than {MAX_NEGATED_BRANCHES} branches is not negated')
    yield from not_any_of(making, value, beside)
    for pair in combinations(value, 2):
        yield {"allOf": list(pair)}


def not_not(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """The subschema itself."""
    del making, beside
    yield {"allOf": [value]}


def not_if(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """The condition without what follows from it, or its complement without what follows from that."""
    if "then" in beside:
        yield {"allOf": [value, making.no(beside["then"])]}
    if "else" in beside:
        yield {"allOf": [making.no(value), making.no(beside["else"])]}


def nothing_more(making: Making, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """What another keyword's complement speaks for."""
    del making, value, beside
    yield from ()


COMPLEMENTS: dict[str, Complement] = {
    "type": not_type,
    "enum": not_listed,
    "const": not_const,
    "minLength": not_at_least("string", "maxLength"),
    "maxLength": not_at_most("string", "minLength"),
    "pattern": not_pattern,
    "minimum": not_bound("exclusiveMaximum"),
    "maximum": not_bound("exclusiveMinimum"),
    "exclusiveMinimum": not_bound("maximum"),
    "exclusiveMaximum": not_bound("minimum"),
    "minItems": not_at_least("array", "maxItems"),
    "maxItems": not_at_most("array", "minItems"),
    "items": not_items,
    "prefixItems": not_prefix_items,
    "contains": not_contains,
    "minProperties": not_at_least("object", "maxProperties"),
    "maxProperties": not_at_most("object", "minProperties"),
    "properties": not_properties,
    "additionalProperties": not_additional_properties,
    "required": not_required,
    "dependentRequired": not_dependent_required,
    "dependentSchemas": not_dependent_schemas,
    "dependencies": not_dependencies,
    "$ref": not_reference,
    "allOf": not_all_of,
    "anyOf": not_any_of,
    "oneOf": not_one_of,
    "not": not_not,
    "if": not_if,
    **dict.fromkeys(("then", "else", "minContains", "maxContains", "^digits", "^not", "^if", "^refused"), nothing_more),
}
"""Keyword to its complement: keywords of which one set holds exactly where the keyword does not."""
