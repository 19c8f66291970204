"""Listed values: `enum` and `const`, of any JSON type.

In: the facets of a subschema that lists values. Out: the listed values that keep all its other keywords, and their
texts. An independent validator (jsonschema-rs) decides, so that every keyword beside a list is exact, whatever the
front end can enforce on open sets. Cost: one validator per list that has neighbours, one call per value.

Values that are equal count once: `1` and `1.0` are, `1` and `true` are not. Numbers are written as `json.dumps` writes
them, those listed as `1.0` also as `1`, objects in the order of their keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import jsonschema_rs

from schemas_cache.grammar import Expr, Member, alt, concat, joined, literal, mark, picks
from schemas_cache.schema.document import LIST_OF_SCHEMAS, ONE_SCHEMA, SCHEMAS_BY_NAME, Json
from schemas_cache.schema.facets import Enumeration, Facets
from schemas_cache.schema.layout import layout
from schemas_cache.schema.loops import has_loop_in_place
from schemas_cache.schema.nodes import COMPLEMENT, DEPENDENTS, DERIVED, JUDGED, UNEVALUATED, Schemas
from schemas_cache.schema.options import SchemaOptions
from schemas_cache.schema.reading import Keywords
from schemas_cache.spelling import Characters, string_literal

_ABSORBED = frozenset({"$ref", "allOf", "anyOf"})
"""What these apply is among the facets' positions by itself."""
_WITH_SUBSCHEMAS = SCHEMAS_BY_NAME | ONE_SCHEMA | LIST_OF_SCHEMAS
_OF_PARTS = SCHEMAS_BY_NAME | (ONE_SCHEMA - JUDGED) | {"prefixItems"}
"""About members and elements, so void for scalars."""
_PLAIN_DIGITS = 1e16
"""From here on Python writes a float with an exponent."""


def distinct(values: Iterable[Json]) -> list[Json]:
    """The first of all values that are equal, in order."""
    return list({identity(value): value for value in reversed(list(values))}.values())[::-1]


def identity(value: Json) -> Any:
    """Something hashable that is equal for equal JSON values: numbers compare as numbers, objects without order."""
    match value:
        case bool() | None | str():
            return type(value), value
        case int() | float():
            return Fraction(value)
        case list():
            return tuple(map(identity, value))
        case _:
            return frozenset((key, identity(member)) for key, member in value.items())


def type_of(value: Json) -> str:
    """The name of a value's type among `ATOMS`."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "integer" if value == int(value) else "fraction"
        case str():
            return "string"
        case _:
            return "array" if isinstance(value, list) else "object"


def value_text(value: Json, depth: int, options: SchemaOptions, characters: Characters) -> Expr:
    """The text of one value that stands inside `depth` brackets."""
    if isinstance(value, str):
        return string_literal(value, characters)
    if isinstance(value, float) and value.is_integer() and abs(value) < _PLAIN_DIGITS:
        return alt(literal(json.dumps(int(value))), literal(json.dumps(value)))
    if not isinstance(value, list | dict):
        return literal(json.dumps(value))
    around = layout(options.whitespace, depth)
    if not value:
        return around.empty("{}" if isinstance(value, dict) else "[]")
    if isinstance(value, list):
        texts = [mark(None, value_text(member, depth + 1, options, characters)) for member in value]
        separated = [part for text in texts for part in (around.comma, text)][1:]
        return around.bracketed("[]", concat(*separated), may_be_empty=False)
    members = [
        Member(
            concat(
                string_literal(key, characters),
                around.colon,
                mark(key, value_text(member, depth + 1, options, characters)),
            ),
            required=True,
        )
        for key, member in value.items()
    ]
    together = picks if options.key_order == "any" else joined
    return around.bracketed("{}", together(members, around.comma), may_be_empty=False)


def _of_types(atoms: Iterable[str]) -> Keywords:
    """Our disjoint types in the standard's: a fraction is a number and no integer."""
    names = set(atoms)
    fraction = [{"type": "number", "not": {"type": "integer"}}] if "fraction" in names else []
    return {"anyOf": [*fraction, *({"type": name} for name in sorted(names - {"fraction"}))]}


_DERIVED_WORDS: dict[str, Callable[[Any], Keywords]] = {
    "^types": _of_types,
    "^values": lambda values: {"not": {"enum": values}},
    "^pattern": lambda pattern: {"not": {"type": "string", "pattern": pattern}},
    "^absent": lambda names: {"not": {"type": "object", "anyOf": [{"required": [name]} for name in names]}},
}
"""What complements are made of beside the standard's words, in those."""


@dataclass(frozen=True)
class Judge:
    """Filters listed values by the keywords that stand beside the list."""

    schemas: Schemas
    is_lenient: bool = False

    def allowed(self, facets: Facets) -> list[Json]:
        """The values of the first list that satisfy every other keyword; raises ValueError if the validator refuses.

        A lenient judge leaves out what asks which other subschemas hold besides, `oneOf` and `unevaluated...`, and all
        that might do so further in: it is for the branches of a `oneOf` that is among those positions.
        """
        listed = facets.enumerations[0]
        are_scalars = not any(isinstance(value, list | dict) for value in listed.values)
        rest = [
            self._beside(pointer, listed, _OF_PARTS if are_scalars else frozenset()) for pointer in facets.positions
        ]
        branches = [keywords for keywords in rest if keywords]
        values = distinct(listed.values)
        if not branches:
            return values
        schema: Keywords = {"allOf": branches}
        if any((_WITH_SUBSCHEMAS | {"$ref"}) & keywords.keys() for keywords in branches):
            if self._has_loop:
                raise ValueError("some anyOf leads back to itself, which no validator survives")
            schema["$defs"] = self._definitions
        validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
        return [value for value in values if validator.is_valid(value)]

    def _beside(self, pointer: str, listed: Enumeration, void: frozenset[str]) -> Keywords:
        """A subschema's keywords without the list itself and without what is absorbed."""
        schema = self.schemas[pointer]
        left_out = _ABSORBED | void | ({listed.keyword} if pointer == listed.pointer else set())
        if self.is_lenient:
            left_out |= UNEVALUATED | JUDGED | DEPENDENTS | {"oneOf"}
        elif isinstance(schema, dict) and not UNEVALUATED.isdisjoint(schema):  # about all of it
            return {"$ref": f"#/$defs/{self._names[pointer]}"}
        return self._flat({k: v for k, v in schema.items() if k not in left_out}) if isinstance(schema, dict) else {}

    @cached_property
    def _has_loop(self) -> bool:
        return has_loop_in_place(self.schemas)

    @cached_property
    def _definitions(self) -> dict[str, Keywords | bool]:
        return {
            self._names[pointer]: self._flat(schema) if isinstance(schema, dict) else schema
            for pointer, schema in self.schemas.items()
            if DERIVED not in pointer
        }

    @cached_property
    def _names(self) -> Mapping[str, str]:
        return {pointer: str(i) for i, pointer in enumerate(self.schemas)}

    def _flat(self, keywords: Keywords) -> Keywords:
        """Keywords as a document again, subschemas as references into one flat list of definitions."""
        flat = {word: self._flat_value(word, value) for word, value in keywords.items() if DERIVED not in word}
        derived = [_DERIVED_WORDS[word](value) for word, value in keywords.items() if word in _DERIVED_WORDS]
        return flat | {"allOf": [*flat.get("allOf", ()), *derived]} if derived else flat

    def _reference(self, pointer: str) -> Keywords | bool:
        """A subschema by reference; a derived one, of which there is no definition, as what it is made of."""
        if DERIVED not in pointer:
            return {"$ref": f"#/$defs/{self._names[pointer]}"}
        if pointer.endswith(COMPLEMENT):
            return {"not": self._reference(pointer.removesuffix(COMPLEMENT))}
        schema = self.schemas[pointer]
        return self._flat(schema) if isinstance(schema, dict) else schema

    def _flat_value(self, word: str, value: Any) -> Any:
        match word:
            case "$ref":
                return f"#/$defs/{self._names[value]}"
            case _ if word in ONE_SCHEMA:
                return self._reference(value)
            case _ if word in SCHEMAS_BY_NAME:
                return {
                    name: member if isinstance(member, list) else self._reference(member)
                    for name, member in value.items()
                }
            case _ if word in LIST_OF_SCHEMAS:
                return [self._reference(pointer) for pointer in value]
            case _:
                return value
