"""Whitespace modes: what is written between tokens, and that every run is bounded."""

import json
from typing import Any, get_args

import pytest

from schemas_cache.errors import SchemaError
from schemas_cache.schema import SchemaOptions
from schemas_cache.schema.options import Whitespace
from tests.schemas_cache.schema.documents import accepts, grammar

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "l": {"type": "array", "items": {"type": "array", "items": {"type": "null"}, "maxItems": 2}},
        "o": {"type": "object", "properties": {"x": {"type": "null"}, "y": {"type": "null"}}},
        "c": {"const": {"k": [1, {}], "m": []}},
    },
}
DOCUMENTS: list[Any] = [
    {},
    {"a": 1},
    {"l": []},
    {"l": [[], [None], [None, None]], "o": {}},
    {"a": 1, "o": {"x": None}},
    {"o": {"y": None}, "c": {"k": [1, {}], "m": []}},
    {"o": {"x": None, "y": None}},
]
WRITERS: dict[str, dict[str, Any]] = {
    "spaced": {},
    "compact": {"separators": (",", ":")},
    "pretty": {"indent": 2},
}
TREE = {"type": "object", "properties": {"t": {"$ref": "#"}}}


def mode(name: Any) -> SchemaOptions:
    """Options with a whitespace mode."""
    return SchemaOptions(whitespace=name)


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("whitespace", WRITERS)
def test_writes_what_json_dumps_writes(whitespace: str, document: Any) -> None:
    """Each fixed mode has the text of its `json.dumps` call, and no other mode's."""
    rules = grammar(SCHEMA, mode(whitespace))
    texts = {name: json.dumps(document, **arguments) for name, arguments in WRITERS.items()}
    expected = {text for text in texts.values() if text == texts[whitespace]}
    assert expected == {text for text in texts.values() if accepts(rules, text)}


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("written", WRITERS)
def test_flexible_takes_every_fixed_mode(written: str, document: Any) -> None:
    """What another mode writes is in `flexible`."""
    assert accepts(grammar(SCHEMA, mode("flexible")), json.dumps(document, **WRITERS[written]))


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (True, '{"a"' + " " * 20 + ":\n" + " " * 20 + "1}"),
        (False, '{"a"' + " " * 21 + ":1}"),
        (False, '{"a":\n\n1}'),
        (False, '{"a":1}\n'),
        (False, '{"a":1} '),
        (False, ' {"a":1}'),
        (False, '{"a":\t1}'),
        (True, "{\n" + " " * 20 + "}"),
        (False, "{\n\n}"),
    ],
)
def test_flexible_runs_are_bounded(expected: bool, text: str) -> None:
    """At most one line break and twenty blanks, and nothing around the document."""
    assert expected == accepts(grammar(SCHEMA, mode("flexible")), text)


@pytest.mark.parametrize("whitespace", get_args(Whitespace))
def test_all_optional_members_in_every_combination(whitespace: str) -> None:
    """No mode loses a combination of optional members or adds a separator."""
    names = "abcde"
    schema = {"type": "object", "properties": {name: {"type": "null"} for name in names}}
    rules = grammar(schema, mode(whitespace))
    chosen = [[name for bit, name in enumerate(names) if number >> bit & 1] for number in range(32)]
    texts = [json.dumps(dict.fromkeys(some), **WRITERS.get(whitespace, {})) for some in chosen]
    assert all(accepts(rules, text) for text in texts)
    assert not any(accepts(rules, text.replace("}", ",}")) for text in texts)


@pytest.mark.parametrize("schema", [TREE, True, {"type": "array"}, {"type": "object", "additionalProperties": True}])
def test_pretty_refuses_what_nests_without_bound(schema: Any) -> None:
    """Recursion and free JSON have no indentation to be written with."""
    with pytest.raises(SchemaError, match="pretty"):
        grammar(schema, mode("pretty"))
