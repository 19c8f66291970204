"""Random schemas of odd keywords and odd combinations of them.

In: a seeded `random.Random`. Out: schemas of draft 2020-12, mostly ones that something satisfies. Cost: microseconds.
Equal seeds give equal schemas.

References in place lead to later definitions only, those inside members and elements to any: recursion is common, and
no schema sends a validator round in circles. Patterns keep to what ECMA-262, Rust and Python read alike, but for `$`
and `.`. Rejected: hypothesis-jsonschema, which makes values of schemas; schemas it makes only for its own tests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

Schema = dict[str, Any]
Value = Any

NAMES = ["a", "b", "c", "ab", "abc", "日本", 'q"', "x-1", "", "k\\", "é"]
WORDS = ["", "a", "b", "ab", "abab", "日本", 'q"\\', "\n", "é", "12", "a-b", "x" * 9]
TEXT_PATTERNS = ["a", "^a", "b$", "^[a-c]*$", "^(ab)+$", "^.$", "^[^ ]+$", "^(a|ab)(c|bcd)?$", "[0-9]{2}", "日|é"]
KEY_PATTERNS = ["^a", "b$", "^x-", "^[a-c]$", "[0-9]", "^.{3}$", "日"]
FORMATS = ["date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uri-reference", "uuid"]
FORMATS += ["json-pointer", "relative-json-pointer", "iri", "uri-template", "idn-email"]
BOUNDS: list[float] = [
    -(2**53) - 1,
    -1000,
    -7,
    -1.5,
    -1,
    -0.1,
    0,
    0.1,
    0.25,
    1,
    3,
    9.99,
    10,
    99,
    1e6,
    2**53 + 1,
    10**20,
]
STEPS: list[float] = [1, 2, 3, 7, 10, 64, 10**9, 0.5, 0.25, 0.1, 0.01, 1.5, 0.003]
SCALARS: list[Value] = [None, True, False, 0, 1, -1, 1.0, 0.5, 12, 1e20, "", "a", "日本", 'q"\\']
LEAVES: list[Any] = [{"type": "integer"}, {"type": "boolean"}, {"const": 1}, {"enum": ["a", "b", None]}, True]
DEFINITIONS = ("s", "t", "u")
MAX_DEPTH = 3


def random_schema(rng: Random) -> Schema:
    """One schema with three definitions that it may refer to."""
    root = Maker(rng, DEFINITIONS).schema(MAX_DEPTH)
    later = (DEFINITIONS[i + 1 :] for i in range(len(DEFINITIONS)))
    definitions = {
        name: Maker(rng, names).schema(MAX_DEPTH - 1) for name, names in zip(DEFINITIONS, later, strict=True)
    }
    return {"$defs": definitions, **(root if isinstance(root, dict) else {"not": {"type": "null"}})}


@dataclass(frozen=True)
class Maker:
    """Makes subschemas; `in_place` are the definitions that may be referred to without a member or element between."""

    rng: Random
    in_place: tuple[str, ...]

    def schema(self, depth: int) -> Schema | bool:
        """Any subschema, of one type more often than not."""
        kind = self.rng.random()
        if kind < 0.03:
            return True
        if kind < 0.15 and self.in_place:
            return self._reference(depth)
        if kind < 0.25:
            return self._values()
        if kind < 0.32 and depth:
            return self._untyped(depth)
        names = ["string", "integer", "number"] + ["array", "object"] * 2 * (depth > 0)
        name = self.rng.choice(names)
        schema = self._typed(name, depth)
        return self._with_logic(schema, name, depth) if depth and self.rng.random() < 0.35 else schema

    def facets(self, name: str, depth: int) -> Schema:
        """Keywords about one type, without the type."""
        makers: dict[str, Callable[[int], Schema]] = {
            "string": self._string,
            "integer": self._number,
            "number": self._number,
            "array": self._array,
            "object": self._object,
        }
        return makers[name](depth)

    def _inside(self, depth: int) -> Schema | bool:
        """A subschema of a member or an element: every definition may be referred to."""
        if depth:
            return Maker(self.rng, DEFINITIONS).schema(depth - 1)
        leaf: Schema | bool = self.rng.choice(LEAVES)
        return leaf

    def _some(self, chance: float, **keywords: Callable[[], Any]) -> Schema:
        """Each of these keywords with a chance."""
        return {word: make() for word, make in keywords.items() if self.rng.random() < chance}

    def _typed(self, name: str, depth: int) -> Schema:
        types: Any = [name, "null"] if self.rng.random() < 0.1 else name
        return {"type": types, **self.facets(name, depth)}

    def _untyped(self, depth: int) -> Schema:
        """Keywords about different types beside each other."""
        names = self.rng.sample(["string", "integer", "array", "object"], 2)
        mixed = self.facets(names[0], depth - 1) | self.facets(names[1], depth - 1)
        return mixed | ({"type": [*names, "boolean"]} if self.rng.random() < 0.7 else {})

    def _reference(self, depth: int) -> Schema:
        target = {"$ref": f"#/$defs/{self.rng.choice(self.in_place)}"}
        if self.rng.random() < 0.7 or not depth:
            return target
        return target | self.facets(self.rng.choice(["object", "array", "string"]), depth - 1)

    def _values(self) -> Schema:
        if self.rng.random() < 0.3:
            return {"const": self._constant(1)}
        values = {repr(value): value for value in (self._constant(1) for _ in range(self.rng.randint(1, 5)))}
        beside = self.facets(self.rng.choice(["number", "string"]), 0) if self.rng.random() < 0.4 else {}
        return {"enum": list(values.values()), **beside}

    def _constant(self, depth: int) -> Value:
        kind = self.rng.random() if depth else 0.0
        if kind < 0.8:
            return self.rng.choice([*SCALARS, *WORDS])
        inner = [self._constant(depth - 1) for _ in range(self.rng.randint(0, 2))]
        return inner if kind < 0.9 else dict(zip(self.rng.sample(NAMES, len(inner)), inner, strict=True))

    def _string(self, _depth: int) -> Schema:
        least = self.rng.randint(0, 4)
        lengths = self._some(0.35, minLength=lambda: least, maxLength=lambda: least + self.rng.choice([0, 1, 3, 40]))
        pattern = self._some(0.35, pattern=lambda: self.rng.choice(TEXT_PATTERNS))
        return lengths | pattern | self._some(0.25, format=lambda: self.rng.choice(FORMATS))

    def _number(self, _depth: int) -> Schema:
        low, high = sorted(self.rng.sample(BOUNDS, 2))
        lower = self.rng.choice(["minimum", "exclusiveMinimum"])
        upper = self.rng.choice(["maximum", "exclusiveMaximum"])
        bounds = self._some(0.5, **{lower: lambda: low, upper: lambda: high})
        return bounds | self._some(0.35, multipleOf=lambda: self.rng.choice(STEPS))

    def _array(self, depth: int) -> Schema:
        least = self.rng.randint(0, 2)
        schema = self._some(
            0.4,
            items=lambda: False if self.rng.random() < 0.1 else self._inside(depth),
            minItems=lambda: least,
            maxItems=lambda: least + self.rng.randint(0, 3),
        )
        schema |= self._some(0.25, prefixItems=lambda: [self._inside(depth) for _ in range(self.rng.randint(1, 3))])
        schema |= self._some(0.15, contains=lambda: self._inside(depth), uniqueItems=lambda: True)
        if "contains" in schema:
            schema |= self._some(0.4, minContains=lambda: self.rng.randint(0, 2), maxContains=lambda: 2)
        if schema.get("uniqueItems") and self.rng.random() < 0.8:
            schema["items"] = {"enum": self.rng.sample(["a", "b", 1, 2, None, "日本"], 4)}
        return schema | self._some(0.06, unevaluatedItems=lambda: False)

    def _object(self, depth: int) -> Schema:
        names = self.rng.sample(NAMES, self.rng.randint(0, 4))
        known = [*names, self.rng.choice(NAMES)] if self.rng.random() < 0.15 else names
        schema: Schema = {"properties": {name: self._inside(depth) for name in names}} if names else {}
        schema |= self._some(
            0.45,
            required=lambda: sorted({name for name in known if self.rng.random() < 0.6}),
            additionalProperties=lambda: self.rng.choice([False, False, True, self._inside(depth)]),
        )
        return schema | self._about_keys(depth) | self._dependents(names or NAMES[:2], depth)

    def _about_keys(self, depth: int) -> Schema:
        patterns = self.rng.sample(KEY_PATTERNS, self.rng.randint(1, 2))
        languages: list[Schema] = [{"maxLength": 3}, {"pattern": "^[a-c]*$"}, {"enum": NAMES[:5]}, {"minLength": 1}]
        return self._some(
            0.15,
            patternProperties=lambda: {pattern: self._inside(depth) for pattern in patterns},
            propertyNames=lambda: self.rng.choice(languages),
            minProperties=lambda: self.rng.randint(0, 2),
            maxProperties=lambda: self.rng.randint(1, 4),
        )

    def _dependents(self, names: list[str], depth: int) -> Schema:
        return self._some(
            0.08,
            dependentRequired=lambda: {self.rng.choice(names): [self.rng.choice(names)]},
            dependentSchemas=lambda: {self.rng.choice(names): self._object(max(depth - 1, 0))},
            unevaluatedProperties=lambda: self.rng.choice([False, {"type": "integer"}]),
        )

    def _with_logic(self, schema: Schema, name: str, depth: int) -> Schema:
        """One keyword of logic beside the keywords of a type."""
        branches = [self.facets(name, depth - 1) for _ in range(self.rng.randint(2, 3))]
        word = self.rng.choice(["allOf", "anyOf", "anyOf", "oneOf", "oneOf", "not", "not", "if"])
        if word == "oneOf" and self.rng.random() < 0.7:
            return schema | {"oneOf": self._apart(name, branches, depth)}
        if word == "not":
            return schema | {"not": self._condition(name)}
        if word == "if":
            ways = self._some(0.7, **{"then": lambda: branches[0], "else": lambda: branches[1]})
            return schema | {"if": self._condition(name), **ways}
        return schema | {word: branches}

    def _apart(self, name: str, branches: list[Schema], depth: int) -> list[Schema]:
        """Branches of which no two hold together."""
        if name == "object":
            tag, values = self.rng.choice(NAMES[:3]), self.rng.sample(["a", 1, None, "日本"], len(branches))
            return [
                branch | {"properties": branch.get("properties", {}) | {tag: {"const": value}}, "required": [tag]}
                for branch, value in zip(branches, values, strict=True)
            ]
        if name == "string":
            return [{"pattern": "^a"}, {"pattern": "^[^a]", "maxLength": self.rng.randint(1, 5)}, {"const": ""}]
        if name == "array":
            return [{"maxItems": 1}, {"minItems": 2, "items": self._inside(depth - 1)}]
        return [{"maximum": 3}, {"exclusiveMinimum": 3, "multipleOf": self.rng.choice(STEPS)}]

    def _condition(self, name: str) -> Schema:
        """What stands under `not` or `if`."""
        key = self.rng.choice(NAMES[:4])
        about: dict[str, list[Schema]] = {
            "object": [
                {"required": [key]},
                {"properties": {key: {"const": 1}}, "required": [key]},
                {"properties": {key: {"type": "integer"}}},
                {"minProperties": 2},
            ],
            "array": [{"minItems": 2}, {"contains": {"const": "a"}}, {"items": {"type": "integer"}}, {"const": []}],
            "string": [{"pattern": "^a"}, {"enum": ["", "a", "ab"]}, {"maxLength": 2}, {"const": "日本"}],
            "integer": [{"minimum": 3}, {"const": 1}, {"multipleOf": 2}, {"enum": [0, 0.5, 10]}],
            "number": [{"exclusiveMaximum": 0.5}, {"const": 1}, {"enum": [0, 0.5, 10]}, {"type": "integer"}],
        }
        return self.rng.choice(about[name])
