"""Listed values: `enum` and `const`, of any JSON type.

In: the facets of a subschema that lists values. Out: the listed values that keep all its other keywords, and their
texts. An independent validator (jsonschema-rs) decides, so that every keyword beside a list is exact, whatever the
front end can enforce on open sets. Cost: one validator per list that has neighbours, one call per value.

Values that are equal count once: `1` and `1.0` are, `1` and `true` are not. Numbers are written as `json.dumps` writes
them, objects in the order of their keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import jsonschema_rs

from schemas_cache.grammar import Expr, Member, concat, literal, mark
from schemas_cache.schema.document import Json
from schemas_cache.schema.layout import layout
from schemas_cache.schema.loops import has_loop_in_place
from schemas_cache.schema.merge import Enumeration, Facets, Schemas
from schemas_cache.schema.options import Whitespace
from schemas_cache.schema.reading import Keywords
from schemas_cache.spelling import Characters, string_literal

_IN_PLACE = frozenset({"$ref", "anyOf"})
_WITH_SUBSCHEMAS = frozenset({"properties", "items", "additionalProperties"})


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


def value_text(value: Json, depth: int, whitespace: Whitespace, characters: Characters) -> Expr:
    """The text of one value that stands inside `depth` brackets."""
    if isinstance(value, str):
        return string_literal(value, characters)
    if not isinstance(value, list | dict):
        return literal(json.dumps(value))
    around = layout(whitespace, depth)
    if not value:
        return around.empty("{}" if isinstance(value, dict) else "[]")
    if isinstance(value, list):
        texts = [mark(None, value_text(member, depth + 1, whitespace, characters)) for member in value]
        separated = [part for text in texts for part in (around.comma, text)][1:]
        return around.bracketed("[]", concat(*separated), may_be_empty=False)
    members = [
        Member(
            concat(
                string_literal(key, characters),
                around.colon,
                mark(key, value_text(member, depth + 1, whitespace, characters)),
            ),
            required=True,
        )
        for key, member in value.items()
    ]
    return around.braced(members)


@dataclass(frozen=True)
class Judge:
    """Filters listed values by the keywords that stand beside the list."""

    schemas: Schemas

    def allowed(self, facets: Facets) -> list[Json]:
        """The values of the first list that satisfy every other keyword; raises ValueError if the validator refuses."""
        listed = facets.enumerations[0]
        rest = [self._beside(pointer, listed) for pointer in facets.members]
        branches = [keywords for keywords in rest if keywords]
        values = distinct(listed.values)
        if not branches:
            return values
        schema: Keywords = {"allOf": branches}
        if any(_WITH_SUBSCHEMAS & keywords.keys() for keywords in branches):
            if has_loop_in_place(self.schemas):
                raise ValueError("some anyOf leads back to itself, which no validator survives")
            schema["$defs"] = self._definitions
        validator = jsonschema_rs.Draft202012Validator(schema)
        return [value for value in values if validator.is_valid(value)]

    def _beside(self, pointer: str, listed: Enumeration) -> Keywords:
        """A member's keywords without the list itself; what applies in place is a member of its own."""
        schema = self.schemas[pointer]
        left_out = _IN_PLACE | ({listed.keyword} if pointer == listed.pointer else set())
        return self._flat({k: v for k, v in schema.items() if k not in left_out}) if isinstance(schema, dict) else {}

    @cached_property
    def _definitions(self) -> dict[str, Keywords | bool]:
        return {
            self._names[pointer]: self._flat(schema) if isinstance(schema, dict) else schema
            for pointer, schema in self.schemas.items()
        }

    @cached_property
    def _names(self) -> Mapping[str, str]:
        return {pointer: str(i) for i, pointer in enumerate(self.schemas)}

    def _flat(self, keywords: Keywords) -> Keywords:
        """Keywords as a document again, subschemas as references into one flat list of definitions."""
        return {word: self._flat_value(word, value) for word, value in keywords.items()}

    def _flat_value(self, word: str, value: Any) -> Any:
        match word:
            case "$ref":
                return f"#/$defs/{self._names[value]}"
            case "items" | "additionalProperties":
                return {"$ref": f"#/$defs/{self._names[value]}"}
            case "properties":
                return {name: {"$ref": f"#/$defs/{self._names[pointer]}"} for name, pointer in value.items()}
            case "anyOf":
                return [{"$ref": f"#/$defs/{self._names[pointer]}"} for pointer in value]
            case _:
                return value
