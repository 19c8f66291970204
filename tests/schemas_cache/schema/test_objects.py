"""Objects against an independent validator: every keyword about properties, on random schemas and documents."""

import json
from itertools import permutations
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas_cache import SchemaError, Vocabulary, compile_schema
from schemas_cache.automaton import START
from schemas_cache.errors import UnsatisfiableSchemaError
from schemas_cache.grammar import Grammar
from schemas_cache.schema import SchemaOptions, lower
from schemas_cache.thompson import build_nfa
from tests.schemas_cache.schema.documents import OPEN, accepts, grammar

BYTES = Vocabulary([bytes([byte]) for byte in range(256)], [])
ANY_ORDER = SchemaOptions(additional_properties="open", key_order="any")
Pairs = list[tuple[str, Any]]

NAMES = st.sampled_from(["a", "b", "ab", "x"])
KEYS = st.sampled_from(["a", "b", "ab", "ba", "x", "y", "xa", "", 'a"', "日"])
VALUES = st.sampled_from([1, 9, "s", None])
LEAVES = st.sampled_from(
    [True, False, {"type": "integer"}, {"type": ["integer", "string"], "maximum": 5}, {"const": 9}]
)
PATTERNS = st.sampled_from(["^a", "b$", "^(x|y)$", "a|b", ".", "^x?$", "^[^a]"])
COUNTS = st.integers(0, 3)
KEY_SCHEMAS = st.sampled_from(
    [
        *({"maxLength": 1}, {"pattern": "a"}, {"enum": ["a", "x", "y", 1]}, {"const": "ab"}, False, True),
        *({"type": "integer"}, {"pattern": "^[ab]", "minLength": 2}, {"anyOf": [{"const": "b"}, {"pattern": "^x"}]}),
    ]
)


def optionally(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these keywords."""
    return st.fixed_dictionaries({}, optional=keywords)


def lists_of_names() -> st.SearchStrategy[list[str]]:
    """Up to two different names."""
    return st.lists(NAMES, max_size=2, unique=True)


FLAT = optionally(
    properties=st.dictionaries(NAMES, LEAVES, max_size=3),
    patternProperties=st.dictionaries(PATTERNS, LEAVES, max_size=2),
    additionalProperties=LEAVES,
    propertyNames=KEY_SCHEMAS,
    minProperties=COUNTS,
    maxProperties=COUNTS,
    required=lists_of_names(),
    dependentRequired=st.dictionaries(NAMES, lists_of_names(), max_size=2),
)
LAYERED = st.builds(
    lambda own, layers: own | layers,
    FLAT,
    optionally(
        allOf=st.lists(FLAT, min_size=1, max_size=2),
        anyOf=st.lists(FLAT, min_size=1, max_size=2),
        dependentSchemas=st.dictionaries(NAMES, FLAT, max_size=2),
        unevaluatedProperties=LEAVES,
    ),
)
OBJECT_SCHEMAS = (FLAT | LAYERED).map(lambda schema: {"type": "object"} | schema)
DOCUMENTS = st.lists(st.dictionaries(KEYS, VALUES, max_size=4), min_size=1, max_size=6)


def is_valid(schema: Any, document: Any) -> bool:
    """By the standard."""
    return jsonschema.Draft202012Validator(schema).is_valid(document)


def lowered(schema: Any, options: SchemaOptions) -> Grammar | None:
    """The grammar of a schema; None: nothing satisfies it."""
    try:
        return lower(schema, options, None)[0]
    except UnsatisfiableSchemaError:
        return None


def counts_apart(schema: Any) -> bool:
    """Whether some minimum may depend on open keys, whose first characters then have to be apart."""
    if isinstance(schema, dict):
        return schema.get("minProperties", 0) > 1 or any(map(counts_apart, schema.values()))
    return isinstance(schema, list) and any(map(counts_apart, schema))


def text_of(pairs: Pairs) -> str:
    """An object as text, keys as often as they come."""
    return "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {json.dumps(v)}" for k, v in pairs) + "}"


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(OBJECT_SCHEMAS, DOCUMENTS)
def test_accepted_in_some_order_exactly_if_valid(schema: Any, documents: list[dict[str, Any]]) -> None:
    """Declared order: a document in all orders of its keys; only a minimum of open keys may be stricter."""
    rules = lowered(schema, OPEN)
    for document in documents:
        texts = [text_of(list(pairs)) for pairs in permutations(document.items())]
        accepted = rules is not None and any(accepts(rules, text) for text in texts)
        assert accepted == is_valid(schema, document) or (not accepted and counts_apart(schema))


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(OBJECT_SCHEMAS, DOCUMENTS)
def test_any_order_accepts_every_order(schema: Any, documents: list[dict[str, Any]]) -> None:
    """Whatever the order of the keys, a text is accepted exactly if it is valid."""
    rules = lowered(schema, ANY_ORDER)
    for document in documents:
        accepted = rules is not None and accepts(rules, text_of(list(document.items())))
        assert accepted == is_valid(schema, document) or (not accepted and counts_apart(schema))


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(OBJECT_SCHEMAS, st.lists(st.lists(st.tuples(KEYS, VALUES), max_size=5), min_size=1, max_size=6), st.booleans())
def test_what_is_accepted_is_valid_though_keys_repeat(schema: Any, many: list[Pairs], any_order: bool) -> None:
    """JSON keeps the last of two equal keys: what it then holds satisfies the schema, in the real automaton too."""
    try:
        order, reading = "any" if any_order else "declared", "open" if len(many) % 2 else "closed"
        compiled = compile_schema(schema, BYTES, additional_properties=reading, key_order=order)  # type: ignore[arg-type]
    except UnsatisfiableSchemaError:
        return
    automaton = compiled.tokens.automaton
    for text in map(text_of, many):
        if automaton.accepting[automaton.walk(START, text.encode())]:
            assert is_valid(schema, json.loads(text))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(OBJECT_SCHEMAS, DOCUMENTS, st.sampled_from(["declared", "any"]), st.sampled_from(["pretty", "compact"]))
def test_automaton_and_referee_agree(schema: Any, documents: list[Any], order: Any, whitespace: Any) -> None:
    """The slow matcher and the compiled automaton accept the same texts, with blanks inside empty objects too."""
    options = SchemaOptions(True, whitespace, "open", order)
    try:
        rules = lowered(schema | {"additionalProperties": {"type": "integer"}, "unevaluatedProperties": True}, options)
    except SchemaError:
        return  # free JSON under pretty
    if rules is None:
        return
    chosen = {"whitespace": whitespace, "additional_properties": "open", "key_order": order}
    closed = schema | {"additionalProperties": {"type": "integer"}, "unevaluatedProperties": True}
    automaton = compile_schema(closed, BYTES, **chosen).tokens.automaton
    for document in documents:
        blanks = {"indent": 2} if whitespace == "pretty" else {"separators": (",", ":")}
        text = json.dumps(document, ensure_ascii=False, **blanks)  # type: ignore[arg-type]
        assert accepts(rules, text) == automaton.accepting[automaton.walk(START, text.encode())]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(FLAT, st.dictionaries(NAMES, lists_of_names() | FLAT, max_size=2), DOCUMENTS)
def test_dependencies_of_older_drafts(schema: Any, dependencies: Any, documents: list[Any]) -> None:
    """Both forms, against a validator of draft-07."""
    schema = {k: v for k, v in schema.items() if k != "dependentRequired"} | {"dependencies": dependencies}
    schema = json.loads(json.dumps(schema).replace("dependentRequired", "x-ignored")) | {"type": "object"}
    rules = lowered(schema, ANY_ORDER)
    validator = jsonschema.Draft7Validator(schema)
    for document in documents:
        accepted = rules is not None and accepts(rules, text_of(list(document.items())))
        assert accepted == validator.is_valid(document) or (not accepted and counts_apart(schema))


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (True, '{"foo": 1, "bar": 2}'),
        (False, '{"foo": 1, "foo": 2}'),
        (False, '{"foo": 1, "f\\u006fo": 2}'),
        (False, '{"foo": 1, "far": 2}'),
        (True, '{"foo": 1, "bar": 2, "far": 3}'),
        (True, '{"foo": 1, "": 2}'),
    ],
)
def test_a_repeated_open_key_counts_once(expected: bool, text: str) -> None:
    """A minimum of two is met by two keys whose first characters are apart, and never by one key twice."""
    assert expected == accepts(grammar({"type": "object", "minProperties": 2}), text)


def test_listed_keys_never_repeat() -> None:
    """Keys of a finite language are written once at most, in any order behind the declared ones."""
    schema = {
        "type": "object",
        "properties": {"a": {}},
        "patternProperties": {"^[xy]$": {}},
        "additionalProperties": False,
    }
    rules = grammar(schema)
    assert [True, True, False, False] == [
        accepts(rules, text_of([(key, 1) for key in keys])) for keys in ("ayx", "x", "axx", "xa")
    ]


def test_closed_objects_keep_what_patterns_allow() -> None:
    """An absent `additionalProperties` closes for keys that no pattern matches."""
    rules = grammar({"type": "object", "patternProperties": {"^x": {"type": "integer"}}}, SchemaOptions())
    assert [True, False, False] == [accepts(rules, text) for text in ('{"xa": 1}', '{"xa": "s"}', '{"a": 1}')]


def test_constants_follow_the_key_order() -> None:
    """Members of a listed object come in its order, or in any."""
    schema = {"const": {"a": 1, "b": {"c": 2, "d": 3}}}
    text = '{"b": {"d": 3, "c": 2}, "a": 1}'
    assert [False, True] == [accepts(grammar(schema, options), text) for options in (OPEN, ANY_ORDER)]


@pytest.mark.parametrize(
    "patterns",
    [{"(?=a)b": True}, {letter: {"minimum": 2} for letter in "abcdefg"}],
)
def test_patterns_that_cannot_be_told_apart_are_refused(patterns: Any) -> None:
    """Look-ahead, and too many that overlap: by name; loosely they are dropped and listed."""
    schema = {"type": "object", "properties": {"n": {"type": "null"}}, "patternProperties": patterns}
    with pytest.raises(SchemaError) as raised:
        grammar(schema)
    assert {("#", "patternProperties")} == {(finding.pointer, finding.keyword) for finding in raised.value.findings}
    rules, warnings = lower(schema, SchemaOptions(strict=False), None)
    assert {"patternProperties"} == {finding.keyword for finding in warnings}
    assert [True, False] == [accepts(rules, text) for text in ('{"a": "x", "zzz": 1}', '{"n": 1}')]


@pytest.mark.parametrize("names", [["x" * length for length in range(200)], [f"name {i}" for i in range(400)]])
def test_open_objects_with_many_names_stay_small(names: list[str]) -> None:
    """Names that begin with each other, and many of them: states grow with their characters, not with their number."""
    rules = grammar({"type": "object", "properties": {name: {"type": "integer"} for name in names}})
    assert build_nfa(rules).states < 50 * sum(map(len, names))
    assert [True, False, True, True] == [
        accepts(rules, text_of([(key, value)])) for key, value in ((names[9], 1), (names[9], "s"), ("n", "s"), ("", 0))
    ]
