"""Complements: `not`, and `if` with `then` and `else`, as subschemas that say what is allowed.

In: subschemas by position. Out: the same, with `^not` and `^if` beside `not` and `if`, and with derived positions for
all complements that those need; `Complements.of` gives more of them later, where `oneOf` asks. Merging knows the `^`
words and no negation. Cost: linear in the negated subschemas: a complement is made once, its children are references.

A subschema is a conjunction of keywords, so its complement is an alternation of complements of keywords, each with the
type that the keyword is about: not `{minimum: 5}` is a number below 5. `if` is `anyOf: [if and then, not if and else]`.
Objects and arrays take part: not `{properties: {a: S}}` is an object with an `a` that is not S, not `{items: S}` has an
element that is not S. What has no such complement (`uniqueItems`, `propertyNames`, ...) is refused by name.

Rejected: one complement per place of use (a recursive subschema has no end then), and subtracting grammars
(context-free languages are not closed under it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, count
from typing import Any

from schemas_cache.errors import Finding
from schemas_cache.limits import MAX_NEGATED_BRANCHES, MAX_NEGATED_NAMES
from schemas_cache.schema.document import Json
from schemas_cache.schema.loops import has_loop_in_place
from schemas_cache.schema.merge import ATOMS, COMPLEMENT
from schemas_cache.schema.reading import Keywords

UNEVALUATED = frozenset({"unevaluatedProperties", "unevaluatedItems"})
NOTHING, ANYTHING = "^false", "^true"
Complement = Callable[["Complements", Any, Keywords], Iterator[Keywords]]


class NoComplementError(Exception):
    """A keyword that no other keywords are the complement of: its position, itself and why."""

    def __init__(self, pointer: str, keyword: str, reason: str = "") -> None:
        self.pointer, self.keyword = pointer, keyword
        self.reason = reason or f'what "{keyword}" at {pointer} forbids cannot be said otherwise'
        super().__init__(self.reason)


@dataclass(slots=True)
class Complements:
    """Subschemas by position, and a growing number of derived ones.

    Attributes
    ----------
    schemas : dict
        By position; grows. A derived position has a `^` in its name.
    refused : dict
        What has no complement, and why.
    """

    schemas: dict[str, Keywords | bool]
    refused: dict[str, NoComplementError] = field(default_factory=dict)
    made: dict[str, Keywords | bool] = field(default_factory=dict)
    pending: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)
    has_loop: bool = field(init=False)

    def __post_init__(self) -> None:
        self.has_loop = has_loop_in_place(self.schemas)
        self.schemas |= {NOTHING: False, ANYTHING: True}

    def of(self, pointer: str) -> str:
        """The position of the complement.

        Raises
        ------
        NoComplementError
            When there is none, or only one that has no end.
        """
        if pointer in self.refused:
            raise self.refused[pointer]
        self.made.clear()
        name = self.no(pointer)
        try:
            while self.pending:
                self._make(self.pending.pop())
        except NoComplementError as error:
            self.pending.clear()
            self.refused[pointer] = error
            raise
        self.schemas |= self.made
        return name

    def no(self, pointer: str) -> str:
        """The name of a complement, made later where it is new."""
        schema = self._at(pointer)
        if isinstance(schema, bool) or not schema:
            return NOTHING if schema is not False else ANYTHING
        name = pointer + COMPLEMENT
        if name not in self.schemas and name not in self.made:
            self.made[name] = True
            self.pending.append(pointer)
        return name

    def put(self, name: str, schema: Keywords | bool) -> str:
        """A derived position with these keywords."""
        self.made[name] = schema
        return name

    def either(self, name: str, choices: list[Keywords]) -> Keywords | bool:
        """One of these."""
        if len(choices) < 2:
            return choices[0] if choices else False
        return {"anyOf": [self.put(f"{name}^{i}", choice) for i, choice in enumerate(choices)]}

    def _at(self, pointer: str) -> Keywords | bool:
        return self.made[pointer] if pointer in self.made else self.schemas[pointer]

    def _make(self, pointer: str) -> None:
        schema = self._at(pointer)
        keywords = schema if isinstance(schema, dict) else {}
        if self.has_loop:
            raise NoComplementError(pointer, "", "some subschema of the document leads back to itself in place")
        choices: list[Keywords] = []
        for keyword, value in keywords.items():
            if keyword not in COMPLEMENTS:
                raise NoComplementError(pointer, keyword)
            try:
                choices += COMPLEMENTS[keyword](self, value, keywords)
            except NoComplementError as error:
                raise NoComplementError(pointer, keyword, error.reason) from error
        self.made[pointer + COMPLEMENT] = self.either(pointer + COMPLEMENT, choices)


def rewrite(schemas: dict[str, Keywords | bool]) -> Complements:
    """Add to every `not` and `if` what merging understands; `schemas` itself is left alone."""
    complements = Complements(dict(schemas))
    needed = {"then", "else"}
    if any(isinstance(schema, dict) and not UNEVALUATED.isdisjoint(schema) for schema in schemas.values()):
        needed.add("if")  # one that stands alone evaluates
    for pointer, schema in schemas.items():
        if isinstance(schema, dict):
            matters = "if" in schema and not needed.isdisjoint(schema)
            rewritten = _rewritten(complements, pointer, schema, {"not"} | ({"if"} if matters else set()))
            complements.schemas[pointer] = schema | rewritten
    return complements


def _rewritten(complements: Complements, pointer: str, schema: Keywords, words: set[str]) -> Keywords:
    rewritten: Keywords = {}
    for keyword in sorted(schema.keys() & words):
        try:
            otherwise = complements.of(schema[keyword])
        except NoComplementError as error:
            hint = "list what is allowed" if keyword == "not" else "write anyOf, with the condition in each branch"
            finding = Finding(pointer, keyword, f'"{keyword}" cannot be enforced: {error}', hint)
            rewritten["^refused"] = [*rewritten.get("^refused", ()), finding]
            continue
        if keyword == "not":
            rewritten["^not"] = otherwise
        else:
            rewritten["^if"] = [
                (schema["if"], *([schema["then"]] if "then" in schema else ())),
                (otherwise, *([schema["else"]] if "else" in schema else ())),
            ]
    return rewritten


def not_type(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """Any other type; a number that is no integer is a fraction."""
    del complements, beside
    names = {value} if isinstance(value, str) else set(value)
    others = set(ATOMS) - names - ({"integer", "fraction"} if "number" in names else set())
    if others:
        yield {"^types": frozenset(others)}


def not_listed(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """None of the values: scalars as they are, the others by what they are made of."""
    del beside
    scalars = [v for v in value if not isinstance(v, list | dict)]
    parts = [_unlike(complements, v) for v in value if isinstance(v, list | dict)]
    yield ({"^values": scalars} if scalars else {}) | ({"allOf": parts} if parts else {})


def not_const(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """As a list of one value."""
    return not_listed(complements, [value], beside)


def _unlike(complements: Complements, value: Json) -> str:
    """Everything but one value."""
    name = f"^unlike^{next(complements.numbers)}"
    if isinstance(value, dict):
        choices = list(_unlike_object(complements, value))
    elif isinstance(value, list):
        choices = list(_unlike_array(complements, value))
    else:
        choices = [{"^values": [value]}]
    return complements.put(name, complements.either(name, choices))


def _unlike_array(complements: Complements, value: list[Json]) -> Iterator[Keywords]:
    yield {"^types": frozenset(ATOMS) - {"array"}}
    yield {"type": "array", "minItems": len(value) + 1}
    if value:
        yield {"type": "array", "maxItems": len(value) - 1}
    for i, element in enumerate(value):
        yield {"type": "array", "minItems": i + 1, "prefixItems": [*[ANYTHING] * i, _unlike(complements, element)]}


def _unlike_object(complements: Complements, value: dict[str, Json]) -> Iterator[Keywords]:
    yield {"^types": frozenset(ATOMS) - {"object"}}
    yield {"type": "object", "minProperties": len(value) + 1}
    for name, member in value.items():
        yield {"type": "object", "^absent": [name]}
        yield {"type": "object", "properties": {name: _unlike(complements, member)}, "required": [name]}


def not_at_least(kind: str, opposite: str) -> Complement:
    """A count from 0, of values of one type."""

    def complement(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
        del complements, beside
        if value > 0:
            yield {"type": kind, opposite: int(value) - 1}

    return complement


def not_at_most(kind: str, opposite: str) -> Complement:
    """A count, of values of one type."""

    def complement(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
        del complements, beside
        yield {"type": kind, opposite: int(value) + 1}

    return complement


def not_bound(opposite: str) -> Complement:
    """A number on the other side."""

    def complement(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
        del complements, beside
        yield {"type": "number", opposite: value}

    return complement


def not_pattern(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """A string without a match."""
    del complements, beside
    yield {"type": "string", "^pattern": value}


def not_required(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An object that lacks one of the names."""
    del complements, beside
    for name in value:
        yield {"type": "object", "^absent": [name]}


def not_properties(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An object with one of the names, and not such a value."""
    del beside
    for name, pointer in value.items():
        otherwise = complements.no(pointer)
        if otherwise != NOTHING:
            yield {"type": "object", "properties": {name: otherwise}, "required": [name]}


def not_additional_properties(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An object with a name beside the declared ones: whichever of those are there, it has one member more."""
    if complements.no(value) == NOTHING:
        return
    optional = sorted(beside.get("properties", {}).keys() - set(beside.get("required", ())))
    always = sorted(beside.get("properties", {}).keys() & set(beside.get("required", ())))
    if complements.no(value) != ANYTHING or beside.get("patternProperties") or len(optional) > MAX_NEGATED_NAMES:
        raise NoComplementError("", "additionalProperties", "an object with some further name cannot be asked for")
    for count in range(len(optional) + 1):
        for there in combinations(optional, count):
            absent = [name for name in optional if name not in there]
            required = [*always, *there]
            yield {"type": "object", "^absent": absent, "required": required, "minProperties": len(required) + 1}


def not_items(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An array with such an element; behind a prefix only where none is allowed."""
    otherwise, before = complements.no(value), len(beside.get("prefixItems", ()))
    if otherwise == ANYTHING:
        yield {"type": "array", "minItems": before + 1}
    elif before and otherwise != NOTHING:
        raise NoComplementError("", "items", "some element behind a prefix cannot be asked for")
    elif otherwise != NOTHING:
        yield {"type": "array", "contains": otherwise}


def not_prefix_items(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An array with another element at one of the positions."""
    del beside
    for i, pointer in enumerate(value):
        otherwise = complements.no(pointer)
        if otherwise != NOTHING:
            yield {"type": "array", "minItems": i + 1, "prefixItems": [*[ANYTHING] * i, otherwise]}


def not_contains(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An array without such an element."""
    if not beside.keys().isdisjoint({"minContains", "maxContains"}):
        raise NoComplementError("", "contains", "a number of elements cannot be forbidden")
    otherwise = complements.no(value)
    yield {"type": "array"} | ({"maxItems": 0} if otherwise == NOTHING else {"items": otherwise})


def not_dependent_required(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An object with a name, and without one that this asks for."""
    del complements, beside
    for name, others in value.items():
        for other in others:
            yield {"type": "object", "required": [name], "^absent": [other]}


def not_dependent_schemas(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """An object with a name that is not what this asks for."""
    del beside
    for name, pointer in value.items():
        yield {"type": "object", "required": [name], "allOf": [complements.no(pointer)]}


def not_dependencies(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """Either of the two, by what is asked for."""
    names = {name: asked for name, asked in value.items() if isinstance(asked, list)}
    yield from not_dependent_required(complements, names, beside)
    yield from not_dependent_schemas(complements, {n: v for n, v in value.items() if n not in names}, beside)


def not_reference(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """The complement of the target."""
    del beside
    yield {"allOf": [complements.no(value)]}


def not_all_of(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """The complement of one of them."""
    del beside
    for pointer in value:
        yield {"allOf": [complements.no(pointer)]}


def not_any_of(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """The complements of all."""
    del beside
    yield {"allOf": [complements.no(pointer) for pointer in value]}


def not_one_of(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """The complements of all, or two that hold together."""
    if len(value) > MAX_NEGATED_BRANCHES:
        raise NoComplementError("", "oneOf", f'a "oneOf" of more than {MAX_NEGATED_BRANCHES} branches is not negated')
    yield from not_any_of(complements, value, beside)
    for pair in combinations(value, 2):
        yield {"allOf": list(pair)}


def not_not(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """The subschema itself."""
    del complements, beside
    yield {"allOf": [value]}


def not_if(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """The condition without what follows from it, or its complement without what follows from that."""
    if "then" in beside:
        yield {"allOf": [value, complements.no(beside["then"])]}
    if "else" in beside:
        yield {"allOf": [complements.no(value), complements.no(beside["else"])]}


def nothing_more(complements: Complements, value: Any, beside: Keywords) -> Iterator[Keywords]:
    """What another keyword's complement speaks for."""
    del complements, value, beside
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
