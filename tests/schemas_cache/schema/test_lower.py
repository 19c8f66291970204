"""Rules, marks, what the vocabulary can spell, and texts without a schema."""

import string
from collections.abc import Iterator
from typing import Any

import pytest

from schemas_cache.errors import SchemaError, UnsatisfiableSchemaError
from schemas_cache.grammar import Alt, Concat, Expr, Joined, Mark, Repeat
from schemas_cache.schema import SchemaOptions, choice_grammar, json_object_grammar, lower
from schemas_cache.schema.prune import references
from tests.schemas_cache.schema.documents import accepts, grammar

ASCII = frozenset(string.printable)


def segments(expr: Expr) -> Iterator[str | None]:
    """Pointer segments that are marked in an expression, from the outside in."""
    match expr:
        case Mark(segment, body):
            yield segment
            yield from segments(body)
        case Concat(parts) | Alt(parts):
            for part in parts:
                yield from segments(part)
        case Joined(members):
            for member in members:
                yield from segments(member.body)
        case Repeat(body):
            yield from segments(body)
        case _:
            return


def test_values_are_marked_with_their_pointer_segments() -> None:
    """Property values with their name, array elements with None; in constants too."""
    schema = {
        "properties": {"a": {"type": "array", "items": {"type": "null"}}, "b": {"const": {"c": [1]}}},
        "type": "object",
    }
    rules = grammar(schema, SchemaOptions())
    expected = ["a", None, "b", "c", None]
    assert expected == list(segments(rules.rules[rules.start]))


def test_a_definition_is_one_rule_however_often_it_is_used() -> None:
    """References are calls: no copy of the definition is written."""
    definition = {"type": "object", "properties": {"x": {"type": "string"}}}
    names = [f"p{i}" for i in range(50)]
    schema = {"$defs": {"d": definition}, "properties": {n: {"$ref": "#/$defs/d"} for n in names}, "type": "object"}
    rules = grammar(schema, SchemaOptions())
    assert {"#", "#/$defs/d", "json.string"} == set(rules.rules)
    assert names == list(segments(rules.rules["#"]))


def test_recursion_through_merged_references_stays_small() -> None:
    """Each merged subschema is a rule too; written inside each other they would be three to the power of the depth."""
    own = {"$ref": "#/$defs/s", "required": ["x"]}
    properties = {"x": {"type": "null"}, "a": own, "b": own, "c": own}
    schema = {
        "$defs": {"s": {"type": "object", "properties": properties, "additionalProperties": False}},
        "$ref": "#/$defs/s",
    }
    rules = grammar(schema)
    assert {"#/$defs/s", *(f"#/$defs/s/properties/{name}" for name in "abc")} == set(rules.rules)
    assert accepts(rules, '{"a": {"x": null, "c": {"x": null}}}')
    assert not accepts(rules, '{"a": {"x": null, "c": {}}}')


def test_every_rule_of_a_grammar_is_used_and_defined() -> None:
    """No reference dangles and nothing is left over, after impossible rules were cut out."""
    schema = {
        "$defs": {"endless": {"type": "array", "items": {"$ref": "#/$defs/endless"}, "minItems": 1}, "free": {}},
        "anyOf": [{"$ref": "#/$defs/endless"}, {"type": "array", "items": {"$ref": "#/$defs/free"}, "minItems": 1}],
    }
    rules = grammar(schema)
    assert {"#", *(f"json.{name}" for name in ("value", "array", "object", "string", "number"))} == set(rules.rules)
    used = {name for rule in rules.rules.values() for name in references(rule)}
    assert set(rules.rules) == used | {rules.start}


def test_deep_schemas_are_written_in_pieces() -> None:
    """At the limit of nesting the grammar is exact and its expressions stay shallow."""
    schema: Any = {"type": "null"}
    for _ in range(63):
        schema = {"type": "array", "items": schema, "minItems": 1}
    rules = grammar(schema)
    assert len(rules.rules) > 4
    assert accepts(rules, "[" * 63 + "null" + "]" * 63)
    assert not accepts(rules, "[" * 62 + "null" + "]" * 62)


@pytest.mark.parametrize(
    ("expected", "lacking", "schema", "text"),
    [
        (True, "", {"type": "number"}, "1e5"),
        (False, "e", {"type": "number"}, "1e5"),
        (True, "e", {"type": "number"}, "1.5"),
        (False, "7", {"type": "integer", "minimum": 70}, "78"),
        (True, "7", {"type": "integer", "minimum": 70}, "80"),
        (True, "t", {"type": ["boolean", "null"]}, "false"),
        (False, "t", {"type": ["boolean", "null"]}, "true"),
        (True, ",", {"properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "type": "object"}, '{"b": null}'),
        (True, ",", {"type": "array", "items": {"type": "null"}}, "[null]"),
        (False, ",", {"type": "array", "items": {"type": "null"}}, "[null, null]"),
    ],
)
def test_only_what_can_be_spelled_is_left(expected: bool, lacking: str, schema: Any, text: str) -> None:
    """Bytes that no token has cannot be waited for: literals, digits and separators go with them."""
    rules, _ = lower(schema, SchemaOptions(), ASCII - frozenset(lacking))
    assert expected == accepts(rules, text)


@pytest.mark.parametrize(
    ("lacking", "schema"),
    [
        ("n", {"type": "null"}),
        (",", {"type": "array", "items": {"const": 1}, "minItems": 2}),
        (",", {"type": "object", "required": ["a", "b"]}),
        ('"', {"type": "string"}),
    ],
)
def test_what_cannot_be_spelled_at_all_is_unsatisfiable(lacking: str, schema: Any) -> None:
    """A vocabulary without the characters that every document needs."""
    with pytest.raises(UnsatisfiableSchemaError, match="spell"):
        lower(schema, SchemaOptions(), ASCII - frozenset(lacking))


def test_any_json_object() -> None:
    """`json_object` takes every object and nothing else."""
    rules = json_object_grammar(SchemaOptions(), None)
    assert all(accepts(rules, text) for text in ("{}", '{"a": [1, {"b": null}], "": "\\n"}'))
    assert not any(accepts(rules, text) for text in ("[]", "1", '{"a"}', "{} ", '{"a": 1,}'))


def test_choices_are_plain_texts() -> None:
    """Without quotes and escapes, one of them as a whole."""
    rules = choice_grammar(["yes", "no", 'a "b"\n', "はい", "yes"], None)
    assert all(accepts(rules, text) for text in ("yes", "no", 'a "b"\n', "はい"))
    assert not any(accepts(rules, text) for text in ("", "ye", "yesno", '"yes"', "は"))


def test_choices_that_cannot_be_spelled_are_left_out() -> None:
    """The others stay; if there are none the error says so."""
    assert not accepts(choice_grammar(["はい", "no"], ASCII), "はい")
    with pytest.raises(UnsatisfiableSchemaError):
        choice_grammar(["はい"], ASCII)


@pytest.mark.parametrize(
    ("pointers", "choices"), [(["#"], []), (["#/1"], ["a", ""]), (["#/0", "#/2"], [1, "a", "\ud800"])]
)
def test_broken_choices_are_all_named(pointers: list[str], choices: list[Any]) -> None:
    """Empty ones, other types, half characters."""
    with pytest.raises(SchemaError) as raised:
        choice_grammar(choices, None)
    assert pointers == [finding.pointer for finding in raised.value.findings]
