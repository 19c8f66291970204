"""`allOf`, `oneOf`, `not`, `if`: exact against an independent validator, or refused by name."""

import json
from itertools import product
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from schemas_cache import Vocabulary, compile_schema
from schemas_cache.automaton import START
from schemas_cache.errors import Finding, SchemaError, UnsatisfiableSchemaError
from schemas_cache.grammar import Grammar
from schemas_cache.schema import SchemaOptions, lower
from schemas_cache.schema.disjoint import Prover
from schemas_cache.schema.document import read_document
from schemas_cache.schema.logic import Complements, rewrite
from schemas_cache.schema.loops import has_loop_in_place
from schemas_cache.schema.lowering import Lowering
from schemas_cache.schema.reading import read
from tests.schemas_cache.schema.documents import OPEN, accepts, grammar, orders

BYTES = Vocabulary([bytes([byte]) for byte in range(256)], [])
NAMES = st.sampled_from("abk")
BOUNDS = st.sampled_from([-1, 0, 0.5, 1, 2, 3])
COUNTS = st.integers(0, 2)
VALUES = st.sampled_from([None, True, False, 0, 1, 2, 0.5, "", "a", "ab", "b", [], [1], {}, {"a": 1}, {"a": 1, "b": 2}])
DOCUMENTS: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 3, 0.5, 1.5, "", "a", "b", "ab", "abc"),
    *([], [1], ["a"], [1, 1], [1, "a"], [None, 2, 0]),
    *(
        dict(zip(names, values, strict=True))
        for n in range(3)
        for names in ["", "a", "b", "k", "ab", "ak"]
        if len(names) == n
        for values in product([1, "a", None], repeat=n)
    ),
    {"a": 1, "b": "a", "k": 0},
]


def optionally(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these keywords, one at least."""
    return st.fixed_dictionaries({}, optional=keywords).filter(bool)


def typed(name: str, **keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these keywords, with their type more often than not."""
    found = st.fixed_dictionaries({}, optional=keywords)
    return found.map(lambda some: {"type": name} | some) | found


TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
SCALARS = st.one_of(
    st.booleans(),
    TYPES.map(lambda name: {"type": name}),
    st.lists(TYPES, min_size=1, max_size=3, unique=True).map(lambda names: {"type": names}),
    VALUES.map(lambda value: {"const": value}),
    st.lists(VALUES, min_size=1, max_size=3).map(lambda values: {"enum": values}),
    typed("integer", minimum=BOUNDS, exclusiveMaximum=BOUNDS),
    typed("number", maximum=BOUNDS, exclusiveMinimum=BOUNDS),
    typed("string", minLength=COUNTS, maxLength=COUNTS, pattern=st.sampled_from(["a", "^a", "b$", "^[ab]$"])),
)


def logical(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Logic around `inner` schemas, objects and arrays of them, and combinations."""
    branches = st.lists(inner, min_size=1, max_size=3)
    parts = st.one_of(
        branches.map(lambda found: {"oneOf": found}),
        branches.map(lambda found: {"allOf": found}),
        branches.map(lambda found: {"anyOf": found}),
        inner.map(lambda found: {"not": found}),
        st.fixed_dictionaries({"if": inner}, optional={"then": inner, "else": inner}),
        typed(
            "object",
            properties=st.dictionaries(NAMES, inner, max_size=2),
            required=st.lists(NAMES, max_size=2, unique=True),
            additionalProperties=st.booleans(),
        ),
        typed("array", items=inner, minItems=COUNTS, maxItems=COUNTS),
        SCALARS.filter(lambda schema: isinstance(schema, dict)),
    )
    return st.lists(parts, min_size=1, max_size=2).map(lambda some: {k: v for part in some for k, v in part.items()})


SCHEMAS = st.recursive(SCALARS, logical, max_leaves=6).filter(lambda schema: isinstance(schema, dict))


def is_refusal(finding: Finding) -> bool:
    """Whether it says what cannot be done and names the keyword."""
    said = ("cannot be enforced", "may both hold", "are more than")
    return bool(finding.keyword) and any(words in finding.reason for words in said)


def test_positions_and_values_of_documents() -> None:
    """The sample has every type and every small object."""
    assert len(DOCUMENTS) == len({json.dumps(document) for document in DOCUMENTS}) > 40


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCHEMAS)
def test_accepted_exactly_if_valid_or_refused(schema: dict[str, Any]) -> None:
    """In some order of keys the language has a document exactly if the standard allows it."""
    rules: Grammar | None = None
    refused: tuple[Finding, ...] = ()
    try:
        rules = lower(schema, OPEN, None)[0]
    except UnsatisfiableSchemaError:
        pass
    except SchemaError as error:
        refused = error.findings
    assert [] == [finding for finding in refused if not is_refusal(finding)]
    if refused:
        return
    validator = jsonschema.Draft202012Validator(schema)
    for document in DOCUMENTS:
        texts = (json.dumps(order) for order in orders(document))
        assert validator.is_valid(document) == any(rules is not None and accepts(rules, text) for text in texts), (
            document
        )


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCHEMAS)
def test_the_automaton_is_never_looser(schema: dict[str, Any]) -> None:
    """Closed objects too: what the compiled automaton accepts is valid."""
    try:
        automaton = compile_schema(schema, BYTES).tokens.automaton
    except SchemaError:
        assume(False)
    accepted = [d for d in DOCUMENTS if automaton.accepting[automaton.walk(START, json.dumps(d).encode())]]
    assert accepted == [d for d in accepted if jsonschema.Draft202012Validator(schema).is_valid(d)]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCHEMAS)
def test_a_complement_is_one(schema: dict[str, Any]) -> None:
    """A document satisfies either a schema or what stands in for `not` of it, and never both."""
    schemas = read(read_document({"$defs": {"s": schema}, "not": {"$ref": "#/$defs/s"}}), strict=True).schemas
    assume("^refused" not in str(rewrite(schemas).schemas["#"]))
    try:
        rules = lower({"not": schema}, OPEN, None)[0]
    except UnsatisfiableSchemaError:
        rules = None
    except SchemaError:
        assume(False)
    validator = jsonschema.Draft202012Validator(schema)
    for document in DOCUMENTS:
        texts = (json.dumps(order) for order in orders(document))
        assert validator.is_valid(document) != any(rules is not None and accepts(rules, text) for text in texts), (
            document
        )


def prover_of(schema: dict[str, Any]) -> Prover:
    """The prover for one document."""
    complements = rewrite(read(read_document(schema), strict=True).schemas)
    return Prover(Lowering(complements, SchemaOptions(additional_properties="open"), None))


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(SCHEMAS, SCHEMAS)
def test_what_is_proved_disjoint_is(one: dict[str, Any], other: dict[str, Any]) -> None:
    """No document is valid by both of two schemas that are said never to hold together."""
    prover = prover_of({"anyOf": [one, other]})
    if prover.never(("#/anyOf/0", "#/anyOf/1")):
        validators = jsonschema.Draft202012Validator(one), jsonschema.Draft202012Validator(other)
        assert [] == [d for d in DOCUMENTS if all(validator.is_valid(d) for validator in validators)]


def union_member(**keywords: Any) -> dict[str, Any]:
    """An object with a required `kind`."""
    return {"type": "object", "properties": {"kind": keywords}, "required": ["kind"]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"type": "string"}, {"type": ["null", "number"]}),
        ({"const": 1}, {"const": 2}),
        ({"enum": ["a", "b"]}, {"enum": ["c"]}),
        ({"const": 1}, {"type": "string"}),
        ({"type": "integer", "maximum": 3}, {"type": "number", "exclusiveMinimum": 3}),
        ({"type": "integer"}, {"type": "number", "minimum": 0.1, "maximum": 0.9}),
        ({"type": "string", "maxLength": 2}, {"type": "string", "minLength": 3}),
        ({"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}),
        ({"type": "string", "pattern": "^[0-9]+$"}, {"type": "string", "format": "ipv4"}),
        ({"type": "string", "pattern": "^a"}, {"type": "string", "not": {"pattern": "a"}}),
        ({"type": "array", "maxItems": 1}, {"type": "array", "minItems": 2}),
        ({"type": "array", "items": {"type": "null"}}, {"type": "array", "items": {"type": "string"}, "minItems": 1}),
        ({"type": "object", "required": ["a"]}, {"type": "object", "maxProperties": 0}),
        ({"type": "object", "required": ["a"]}, {"type": "object", "not": {"required": ["a"]}}),
        ({"type": "object", "required": ["a"]}, {"type": "object", "properties": {"a": False}}),
        (
            {"type": "object", "required": ["a"]},
            {"type": "object", "properties": {"b": {}}, "additionalProperties": False},
        ),
        (union_member(const="x"), union_member(const="y")),
        (union_member(type="string"), union_member(type="integer")),
        (union_member(**union_member(const=1)), union_member(**union_member(const=2))),
        ({"allOf": [{"type": "string"}]}, {"anyOf": [{"type": "null"}, {"type": "integer"}]}),
        ({"not": {"type": "string"}}, {"type": "string"}),
    ],
)
def test_disjoint_subschemas_are_proved_to_be(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Types, values, ranges, languages, counts, discriminators, required and forbidden names."""
    assert prover_of({"anyOf": [one, other]}).never(("#/anyOf/0", "#/anyOf/1"))


@pytest.mark.parametrize(
    ("pointer", "keyword", "reason", "schema"),
    [
        (
            *("#", "oneOf", 'branches 0 and 2 may both hold, so far as can be proved, and what "uniqueItems"'),
            {
                "oneOf": [
                    {"type": "array", "minItems": 1},
                    {"type": "null"},
                    {"type": "array", "uniqueItems": True, "items": {"type": "boolean"}},
                ]
            },
        ),
        ("#", "not", 'what "propertyNames" at #/not forbids', {"not": {"propertyNames": {"maxLength": 3}}}),
        ("#", "not", "some element behind a prefix", {"not": {"prefixItems": [{}], "items": {"type": "null"}}}),
        (
            "#/items",
            "not",
            'what "multipleOf" at #/items/not/anyOf/1',
            {"items": {"not": {"anyOf": [{"const": 1}, {"multipleOf": 2}]}}},
        ),
        ("#", "if", 'what "uniqueItems" at #/if', {"if": {"uniqueItems": True}, "then": {"maxItems": 1}}),
        ("#", "not", "more than 8 branches", {"not": {"oneOf": [{"const": i} for i in range(9)]}}),
    ],
)
def test_what_has_no_complement_is_named(pointer: str, keyword: str, reason: str, schema: Any) -> None:
    """Where it is, which keyword, and what stands in the way."""
    with pytest.raises(SchemaError) as raised:
        grammar(schema)
    (finding,) = raised.value.findings
    assert (pointer, keyword) == (finding.pointer, finding.keyword)
    assert reason in finding.reason
    assert finding.hint


def test_many_conditions_on_one_name_stay_linear() -> None:
    """Forty conditions by constants of one name: contradictions are dropped as soon as they show."""
    kinds = [f"kind{i}" for i in range(40)]
    conditions = [
        {"if": {"properties": {"k": {"const": kind}}, "required": ["k"]}, "then": {"required": [f"f{i}"]}}
        for i, kind in enumerate(kinds)
    ]
    names = {"k": {"enum": kinds}} | {f"f{i}": {"type": "integer"} for i in range(40)}
    rules = grammar({"type": "object", "properties": names, "required": ["k"], "allOf": conditions})
    assert [accepts(rules, text) for text in ('{"k": "kind7", "f7": 1}', '{"k": "kind7", "f8": 1}')] == [True, False]


def test_many_branches_with_constants() -> None:
    """A discriminated union of sixty objects: each pair is proved disjoint."""
    branches = [union_member(const=f"kind{i}") for i in range(60)]
    rules = grammar({"oneOf": branches})
    assert [accepts(rules, text) for text in ('{"kind": "kind59"}', '{"kind": "kind60"}')] == [True, False]


def test_conditions_do_not_close_an_object() -> None:
    """A name that only a condition knows is not declared by it, but written where it is required."""
    schema = {"type": "object", "properties": {"a": {}}, "not": {"properties": {"b": {"const": 1}}, "required": ["b"]}}
    closed = grammar(schema, SchemaOptions())
    assert [accepts(closed, text) for text in ('{"a": 1}', "{}", '{"c": 1}')] == [True, True, False]
    alone = grammar({"type": "object", "not": {"required": ["b"]}}, SchemaOptions())
    assert [accepts(alone, text) for text in ('{"a": 1}', '{"b": 1}')] == [True, False]


def test_loops_in_place_have_no_complement() -> None:
    """The complement of a subschema that applies itself to the same value has no end."""
    schema = {"$defs": {"t": {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}}, "not": {"$ref": "#/$defs/t"}}
    assert has_loop_in_place(read(read_document(schema), strict=True).schemas)
    with pytest.raises(SchemaError, match="leads back to itself in place"):
        grammar(schema)


def test_a_complement_is_made_once() -> None:
    """Also where others are refused in between, nothing of those is left."""
    schemas = read(
        read_document({"anyOf": [{"type": "string"}, {"items": {"uniqueItems": True}}]}), strict=True
    ).schemas
    complements = Complements(dict(schemas))
    first = complements.of("#/anyOf/0")
    before = dict(complements.schemas)
    with pytest.raises(Exception, match="uniqueItems"):
        complements.of("#/anyOf/1")
    assert (first, before) == (complements.of("#/anyOf/0"), complements.schemas)
