"""Whole errors: for each schema every finding, with its place, keyword, reason and way out."""

from __future__ import annotations

from typing import Any

import pytest

from schemas_cache import Finding, SchemaError, Vocabulary, compile_schema

BYTES = Vocabulary([bytes([byte]) for byte in range(256)], [])
UNESCAPED = Vocabulary([bytes([byte]) for byte in range(128) if byte != 0x5C], [])  # no backslash
LOOK = "say what the value may be, instead of what must stand beside it; several patterns can be combined by allOf"
UNIQUE = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
NOT_FINITE = "whether two elements are equal can be enforced for finitely many values only"


def unsayable(word: str, keyword: str, pointer: str) -> str:
    """The reason why a keyword that needs a complement cannot be enforced."""
    return f'"{word}" cannot be enforced: what "{keyword}" at {pointer} forbids cannot be said otherwise'


BROKEN: list[tuple[Any, list[Finding]]] = [
    (
        {"properties": {"a": {"type": "strng"}}, "requird": ["a"], "additionalProperty": False},
        [
            Finding("#", "requird", '"requird" is no JSON Schema keyword', 'did you mean "required"?'),
            Finding(
                "#",
                "additionalProperty",
                '"additionalProperty" is no JSON Schema keyword',
                'did you mean "additionalProperties"?',
            ),
            Finding("#/properties/a", "type", 'expected a type name, found "strng"', 'did you mean "string"?'),
        ],
    ),
    (
        {"if": {"type": "string"}, "then": {"$ref": "#/$defs/gone"}, "else": {"type": "nul"}, "$defs": {"went": {}}},
        [
            Finding(
                "#/then",
                "$ref",
                '"#/$defs/gone" points to nothing: there is no "gone" at #/$defs',
                "present there: went",
            ),
            Finding("#/else", "type", 'expected a type name, found "nul"', 'did you mean "null"?'),
        ],
    ),
    (
        {"$schema": "http://json-schema.org/draft-03/schema#", "type": "any"},
        [
            Finding(
                "#",
                "$schema",
                "draft-03 cannot be enforced",
                "name a newer draft in $schema, and list required names beside properties",
            ),
            Finding(
                "#",
                "type",
                'expected a type name, found "any"',
                "one of null, boolean, integer, number, string, array, object",
            ),
        ],
    ),
    (
        {"$ref": "#nodes", "$defs": {"n": {"$anchor": "node"}}},
        [Finding("#", "$ref", '"#nodes" points to nothing: there is no anchor "nodes"', "anchors there: node")],
    ),
    (
        {"items": {"$ref": "https://example.org/x.json"}},
        [
            Finding(
                "#/items",
                "$ref",
                '"https://example.org/x.json" points outside of the document; nothing is ever fetched',
                'copy the definition into "$defs" and write "#/$defs/name"',
            )
        ],
    ),
    (
        {"properties": {"a": {"pattern": "(?=a)b"}, "b": {"pattern": "(a)\\1"}}},
        [
            Finding("#/properties/a", "pattern", 'look-ahead: "(?=" at character 0', LOOK),
            Finding(
                "#/properties/b",
                "pattern",
                'back-reference: "\\1" at character 3',
                "repeat the group's own pattern; that the texts are equal cannot be enforced",
            ),
        ],
    ),
    (
        {"propertyNames": {"pattern": "(?<=a)b"}},
        [Finding("#/propertyNames", "pattern", 'look-behind: "(?<=" at character 0', LOOK)],
    ),
    (
        {"patternProperties": {"(?!x)y": {}}},
        [Finding("#", "patternProperties", 'negative look-ahead: "(?!" at character 0 of "(?!x)y"', LOOK)],
    ),
    (UNIQUE, [Finding("#", "uniqueItems", NOT_FINITE, "list the choices with enum")]),
    (
        {"oneOf": [UNIQUE, {"type": "array", "minItems": 1}]},
        [
            Finding(
                "#",
                "oneOf",
                "branches 0 and 1 may both hold, so far as can be proved, "
                'and what "uniqueItems" at #/oneOf/0 forbids cannot be said otherwise',
                "give both a required property with different constants, or write anyOf if no value satisfies both",
            ),
            Finding("#/oneOf/0", "uniqueItems", NOT_FINITE, "list the choices with enum"),
        ],
    ),
    (
        {"not": {"uniqueItems": True}},
        [Finding("#", "not", unsayable("not", "uniqueItems", "#/not"), "list what is allowed")],
    ),
    (
        {"items": {"type": "number", "not": {"multipleOf": 3}}},
        [Finding("#/items", "not", unsayable("not", "multipleOf", "#/items/not"), "list what is allowed")],
    ),
    (
        {"not": {"properties": {"a": {"type": "string"}}, "unevaluatedProperties": False}},
        [Finding("#", "not", unsayable("not", "unevaluatedProperties", "#/not"), "list what is allowed")],
    ),
    (
        {"if": {"uniqueItems": True}, "then": {"maxItems": 3}},
        [
            Finding(
                "#",
                "if",
                unsayable("if", "uniqueItems", "#/if"),
                "write anyOf, with the condition in each branch",
            )
        ],
    ),
    (
        {"type": "array", "contains": {"type": "array", "uniqueItems": True}, "maxContains": 1},
        [
            Finding(
                "#",
                "maxContains",
                unsayable("maxContains", "uniqueItems", "#/contains"),
                "ask for fewer things at once",
            )
        ],
    ),
    (
        {"type": "array", "allOf": [{"contains": {"const": value}} for value in range(5)]},
        [
            Finding(
                "#/allOf/0",
                "contains",
                'beside another "contains" only one match can be asked for, and 4 of them in all',
                "ask for fewer things at once",
            )
        ],
    ),
]
TOO_COMPLEX: list[tuple[Any, Finding]] = [
    (
        {"patternProperties": {key: {} for key in "abcdef"}},
        Finding(
            "#",
            "patternProperties",
            "further keys cannot be told from the declared ones: the patterns overlap in more than 32 combinations",
            "declare the names as properties",
            is_limit=True,
        ),
    ),
    (
        {"type": "integer", "multipleOf": 123456789},
        Finding(
            "#",
            "multipleOf",
            "it needs more than 20000 states of an automaton, which is the limit",
            "ask for multiples of a rounder number",
            is_limit=True,
        ),
    ),
    (
        {"type": "string", "minLength": 70_000},
        Finding(
            "#",
            "",
            "the shortest document has 70002 bytes, and the limit is 65536",
            "ask for shorter strings and fewer elements",
        ),
    ),
    (
        {"properties": {str(number): {} for number in range(10_001)}},
        Finding("#", "", "the schema has 10001 properties, the limit is 10000", "split the schema into smaller ones"),
    ),
    (
        {"allOf": [{"anyOf": [{"minLength": n, "maxLength": 90 - m} for n in range(9)]} for m in range(5)]},
        Finding(
            "#/allOf/4",
            "anyOf",
            "the combinations of anyOf are more than 4096",
            "move common keywords into the branches",
        ),
    ),
]
IMPOSSIBLE: list[tuple[Any, list[Finding]]] = [
    (
        {"type": "object", "required": ["a"], "additionalProperties": False},
        [
            Finding("#", "required", 'the property "a" is required and cannot have a value'),
            Finding("#", "", "no value satisfies all that is asked for here"),
        ],
    ),
    (
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "items": False, "$ref": "#/$defs/a"},
        [
            Finding(
                "#/$defs/a",
                "$ref",
                "the reference only leads back to itself: #/$defs/a -> #/$defs/b -> #/$defs/a",
            )
        ],
    ),
    (
        {"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]},
        [Finding("#", "", "no document is both finite and valid, or none that the vocabulary can spell")],
    ),
]
ALL = [
    *(("invalid_json_schema", schema, findings) for schema, findings in BROKEN),
    *(("schema_too_complex", schema, [finding]) for schema, finding in TOO_COMPLEX),
    *(("unsatisfiable_schema", schema, findings) for schema, findings in IMPOSSIBLE),
]


@pytest.mark.parametrize(("code", "schema", "findings"), ALL)
def test_the_whole_error(code: str, schema: Any, findings: list[Finding]) -> None:
    """Its code, and every finding in full; for what nothing satisfies there is no other way to write it."""
    with pytest.raises(SchemaError) as raised:
        compile_schema(schema, BYTES)
    assert (code, findings) == (raised.value.code, list(raised.value.findings))


@pytest.mark.parametrize(
    ("schema", "findings"),
    [
        ({"const": "é"}, [Finding("#", "const", "the vocabulary lacks characters of the value")]),
        ({"enum": ["é", {"ü": 1}]}, [Finding("#", "enum", "the vocabulary lacks characters of every value")]),
        (
            {"properties": {"é": {"const": 1}}, "required": ["é"], "type": "object"},
            [Finding("#", "required", 'the property "é" is required and has a name that the vocabulary cannot spell')],
        ),
    ],
)
def test_what_the_vocabulary_cannot_spell(schema: Any, findings: list[Finding]) -> None:
    """It is the vocabulary's fault and not the schema's, so the first finding says so; no text holds it otherwise."""
    with pytest.raises(SchemaError) as raised:
        compile_schema(schema, UNESCAPED)
    assert [*findings, Finding("#", "", "no value satisfies all that is asked for here")] == list(raised.value.findings)
    assert compile_schema(schema, BYTES).minimum_tokens > 0


def test_the_text_of_a_finding() -> None:
    """Place, reason and way out in one line, and how many findings there are besides."""
    with pytest.raises(SchemaError) as raised:
        compile_schema(BROKEN[1][0], BYTES)
    expected = (
        'at #/then/$ref: "#/$defs/gone" points to nothing: there is no "gone" at #/$defs; present there: went'
        " (and 1 more)"
    )
    assert expected == str(raised.value)
