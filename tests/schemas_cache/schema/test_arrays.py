"""Arrays: random keywords against an independent validator, by the slow referee and by the automaton."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from schemas_cache import (
    CompiledSchema,
    Finding,
    SchemaError,
    UnsatisfiableSchemaError,
    Vocabulary,
    compile_schema,
)
from schemas_cache.automaton import START
from schemas_cache.limits import MAX_COUNTED_ELEMENTS, MAX_UNIQUE_CHOICES, Limits
from tests.schemas_cache.schema.documents import accepts, grammar

BYTES = Vocabulary([bytes([byte]) for byte in range(256)], [])
COUNTS = st.integers(0, 3)
VALUES = st.none() | st.booleans() | st.integers(0, 4) | st.sampled_from(["", "a", "b", "ab"])
DOCUMENTS = st.lists(VALUES | st.lists(st.integers(0, 2), max_size=2), max_size=5)
SCALARS = st.sampled_from(
    [
        *(True, False, {"type": "integer"}, {"type": "string"}, {"type": ["boolean", "null"]}, {"minimum": 2}),
        *({"enum": [1, 2, "a"]}, {"enum": [1.0, 3, None]}, {"const": 2}, {"maxLength": 1}, {"multipleOf": 2}),
        *({"type": "integer", "minimum": 1, "maximum": 3}, {"type": "array", "items": {"type": "integer"}}),
        {"anyOf": [{"type": "string"}, {"const": 1}]},
    ]
)


def optionally(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these keywords."""
    return st.fixed_dictionaries({}, optional=keywords)


BOUNDS = optionally(minItems=COUNTS, maxItems=st.integers(0, 4))
SHAPES = optionally(prefixItems=st.lists(SCALARS, min_size=1, max_size=3), items=SCALARS)
CONTAINS: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.fixed_dictionaries(
    {"contains": SCALARS}, optional={"minContains": COUNTS, "maxContains": COUNTS}
)
LAYERS = st.builds(lambda *parts: {k: v for part in parts for k, v in part.items()}, BOUNDS, SHAPES, CONTAINS)
WHOLE = optionally(uniqueItems=st.booleans(), unevaluatedItems=SCALARS)
APPLIED: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.fixed_dictionaries(
    {},
    optional={
        "allOf": st.lists(LAYERS, min_size=1, max_size=2),
        "anyOf": st.lists(LAYERS, min_size=2, max_size=2),
        "not": LAYERS,
    },
)
SCHEMAS = st.builds(
    lambda *parts: {"type": "array"} | {k: v for part in parts for k, v in part.items()}, LAYERS, WHOLE, APPLIED
)


def compiled(schema: dict[str, Any]) -> CompiledSchema | None:
    """The schema; None where nothing satisfies it; refused ones are left out."""
    try:
        return compile_schema(schema, BYTES, limits=Limits(max_dense_entries=0))
    except UnsatisfiableSchemaError:
        return None
    except SchemaError as error:
        refused = {finding.keyword for finding in error.findings}
    assume(not refused & {"uniqueItems", "contains", "maxContains", "not"})
    raise AssertionError(f"refused for {refused}")


def takes(schema: CompiledSchema | None, text: str) -> bool:
    """Whether the automaton takes a whole text."""
    if schema is None:
        return False
    automaton = schema.tokens.automaton
    return automaton.accepting[automaton.walk(START, text.encode())]


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCHEMAS, st.lists(DOCUMENTS, min_size=1, max_size=8))
def test_accepted_exactly_if_valid(schema: dict[str, Any], documents: list[Any]) -> None:
    """What the automaton takes is what an independent validator says is valid."""
    made, validator = compiled(schema), jsonschema.Draft202012Validator(schema)
    verdicts = {json.dumps(document): validator.is_valid(document) for document in documents}
    assert verdicts == {text: takes(made, text) for text in verdicts}


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCHEMAS, st.lists(DOCUMENTS, min_size=1, max_size=4))
def test_the_referee_agrees(schema: dict[str, Any], documents: list[Any]) -> None:
    """The expression means the same without an automaton."""
    made = compiled(schema)
    assume(made is not None)
    rules = grammar(schema)
    texts = [json.dumps(document) for document in documents]
    assert [accepts(rules, text) for text in texts] == [takes(made, text) for text in texts]


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"),
    [
        ({"items": [{"type": "integer"}]}, ["[]", "[1]", '[1, "a"]'], ['["a"]']),
        ({"items": [{"type": "integer"}], "additionalItems": False}, ["[]", "[1]"], ["[1, 1]", '["a"]']),
        ({"items": [{"type": "integer"}], "additionalItems": {"type": "null"}}, ["[1, null]"], ["[1, 1]"]),
        ({"items": {"type": "integer"}, "additionalItems": False}, ["[]", "[1, 1]"], ["[null]"]),
        ({"additionalItems": False}, ["[]", "[1, null]"], []),
        ({"items": [], "additionalItems": {"type": "null"}}, ["[]", "[null]"], ["[1]"]),
        (
            {"items": [{"type": "null"}], "additionalItems": {"$ref": "#/items/0"}},
            ["[]", "[null, null]"],
            ["[null, 1]"],
        ),
    ],
)
@pytest.mark.parametrize("draft", ["http://json-schema.org/draft-07/schema#", None])
def test_older_form_of_items(
    draft: str | None, schema: dict[str, Any], accepted: list[str], refused: list[str]
) -> None:
    """A list of schemas under `items` is a prefix, and `additionalItems` is what stands behind it, in every draft."""
    made = compile_schema({"type": "array"} | schema | ({"$schema": draft} if draft else {}), BYTES)
    assert [text for text in [*accepted, *refused] if takes(made, text)] == accepted


@pytest.mark.parametrize(
    ("keyword", "schema"),
    [
        ("uniqueItems", {"items": {"type": "string"}, "uniqueItems": True}),
        ("uniqueItems", {"items": {"enum": list(range(MAX_UNIQUE_CHOICES + 1))}, "uniqueItems": True}),
        ("uniqueItems", {"prefixItems": [{"enum": [1, 2]}], "items": {"enum": [1, 3]}, "uniqueItems": True}),
        ("contains", {"contains": {"const": 1}, "minContains": MAX_COUNTED_ELEMENTS + 1, "maxItems": 20}),
        ("contains", {"allOf": [{"contains": {"const": i}, "minContains": 2} for i in (1, 2)]}),
        ("maxContains", {"contains": {"uniqueItems": True}, "maxContains": 1}),
        ("minContains", {"minContains": -1}),
        ("uniqueItems", {"uniqueItems": "yes"}),
        ("prefixItems", {"prefixItems": {}}),
    ],
)
def test_refused_by_name(keyword: str, schema: dict[str, Any]) -> None:
    """What cannot be enforced or is malformed is refused, and the finding says where and why."""
    with pytest.raises(SchemaError) as caught:
        compile_schema({"type": "array"} | schema, BYTES)
    finding: Finding = caught.value.findings[0]
    assert keyword == finding.keyword
    assert finding.reason


def test_dropped_where_asked_for() -> None:
    """Without `strict` what cannot be enforced is a warning, and the rest is enforced."""
    schema = compile_schema({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, BYTES, strict=False)
    assert ("partial", ["uniqueItems"]) == (schema.enforced, [warning.keyword for warning in schema.warnings])
    assert [True, False] == [takes(schema, text) for text in ('["a", "a"]', "[1]")]


def test_contains_of_the_draft_that_leaves_elements_unevaluated() -> None:
    """In 2019-09 `unevaluatedItems` does not see `contains`: both in one document are refused."""
    draft = "https://json-schema.org/draft/2019-09/schema"
    with pytest.raises(SchemaError) as caught:
        compile_schema({"$schema": draft, "contains": {"const": 1}, "unevaluatedItems": False}, BYTES)
    assert ["unevaluatedItems"] == [finding.keyword for finding in caught.value.findings]


@pytest.mark.parametrize(
    ("schema", "text", "pointer"),
    [
        ({"prefixItems": [{"type": "integer"}, {"const": "long"}], "minItems": 2}, '[1, "lo', "/1"),
        ({"prefixItems": [{"type": "null"}], "items": {"const": "long"}, "maxItems": 9}, '[null, "long", "lo', "/*"),
        ({"items": {"enum": ["long", "longer"]}, "uniqueItems": True}, '["long", "lo', "/1"),
    ],
)
def test_pointers(schema: dict[str, Any], text: str, pointer: str) -> None:
    """The place of an element is its position, or `*` where nothing counts it."""
    automaton = compile_schema({"type": "array"} | schema, BYTES).tokens.automaton
    assert pointer == automaton.pointer(automaton.walk(START, text.encode()))


def test_many_positions_stay_small() -> None:
    """Three hundred positions, each of which may be the last: neither deep nor quadratic."""
    schema = compile_schema({"type": "array", "prefixItems": [{"const": i} for i in range(300)], "items": False}, BYTES)
    assert schema.tokens.automaton.nfa.states < 60_000
    assert [True, True, False] == [
        takes(schema, json.dumps(list(range(n)) + m)) for n, m in ((7, []), (300, []), (7, [9]))
    ]


def test_long_unique_arrays() -> None:
    """A hundred choices in any order, none of them twice."""
    choices = [f"choice {i}" for i in range(100)]
    schema = compile_schema({"type": "array", "items": {"enum": choices}, "uniqueItems": True, "maxItems": 99}, BYTES)
    shuffled = choices[::-1][::2] + choices[::2]
    texts = [json.dumps(some) for some in (shuffled[1:], shuffled, [*shuffled[2:], shuffled[3]])]
    assert [True, False, False] == [takes(schema, text) for text in texts]


@pytest.mark.parametrize(
    "schema",
    [
        {"prefixItems": [{"type": "null"}, {"type": "integer"}], "items": {"type": "integer"}},
        {"items": {"type": ["integer", "null"]}, "contains": {"type": "null"}, "maxItems": 4},
        {"items": {"enum": [None, 1, 2]}, "uniqueItems": True},
    ],
)
def test_indented(schema: dict[str, Any]) -> None:
    """Under `pretty` an array in an object is what `json.dumps` writes with an indent of two."""
    made = compile_schema(
        {"type": "object", "properties": {"a": {"type": "array"} | schema}}, BYTES, whitespace="pretty"
    )
    texts = [json.dumps({"a": value}, indent=2) for value in ([None], [None, 1, 2], ["a"])]
    assert [True, True, False] == [takes(made, text) for text in texts]
