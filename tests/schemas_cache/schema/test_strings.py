"""Strings with several demands at once: products against validators, refusals, and what a vocabulary can spell."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from schemas_cache.automaton import START
from schemas_cache.compile import compile_schema
from schemas_cache.errors import SchemaError, UnsatisfiableSchemaError
from schemas_cache.grammar import Grammar
from schemas_cache.schema import SchemaOptions, lower
from schemas_cache.vocabulary import Vocabulary
from tests.schemas_cache.schema.documents import OPEN, accepts, grammar

BYTES = Vocabulary([bytes([byte]) for byte in range(256)], [])
PATTERNS = st.sampled_from(
    [
        "a",
        "^a",
        "b$",
        "^[ab]*$",
        "^(ab)*$",
        "^.{2}",
        "é",
        "^[^a]*$",
        "a.*b",
        "^a?b+$",
        '"',
        "^(a|bé)+$",
        "^$|b",
        "a{2,3}",
    ]
)
VALUES = st.text('abé"', max_size=4)
COUNTS = st.integers(0, 4)
STRINGS = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "pattern": PATTERNS,
        "minLength": COUNTS,
        "maxLength": COUNTS,
        "allOf": st.lists(st.fixed_dictionaries({"pattern": PATTERNS}), min_size=1, max_size=2),
        "not": st.fixed_dictionaries({"pattern": PATTERNS})
        | st.fixed_dictionaries({"const": VALUES})
        | st.fixed_dictionaries({"enum": st.lists(VALUES, min_size=1, max_size=3)}),
    },
)


def lowered(schema: dict[str, Any]) -> Grammar | None:
    """The grammar; None where no string is left."""
    try:
        return grammar(schema)
    except UnsatisfiableSchemaError:
        return None


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(STRINGS, st.lists(VALUES, min_size=1, max_size=8))
def test_all_demands_hold_together(schema: dict[str, Any], values: list[str]) -> None:
    """The language is the standard's, whatever is combined."""
    rules = lowered(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for value in values:
        text = json.dumps(value, ensure_ascii=False)
        assert validator.is_valid(value) == (rules is not None and accepts(rules, text)), value


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(STRINGS, st.lists(VALUES, min_size=1, max_size=8))
def test_automaton_of_all_demands(schema: dict[str, Any], values: list[str]) -> None:
    """The compiled automaton says the same."""
    assume(lowered(schema) is not None)
    automaton = compile_schema(schema, BYTES).tokens.automaton
    validator = jsonschema.Draft202012Validator(schema)
    for value in values:
        text = json.dumps(value, ensure_ascii=False).encode()
        assert validator.is_valid(value) == automaton.accepting[automaton.walk(START, text)], value


@pytest.mark.parametrize("name", ["date", "ipv4", "uuid", "email", "hostname", "uri", "duration", "json-pointer"])
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_format_beside_pattern_and_lengths(name: str, data: st.DataObject) -> None:
    """A format is one more automaton in the product."""
    schema: dict[str, Any] = {
        "type": "string",
        "format": name,
        "pattern": data.draw(st.sampled_from(["[0-9]", "^[^a]*$", "a|-"])),
    }
    schema["minLength"] = data.draw(st.integers(0, 12))
    schema["maxLength"] = data.draw(st.integers(8, 40))
    values = [*SAMPLES, data.draw(st.text("01.:@-/abP", max_size=12))]
    rules = lowered(schema)
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    for value in values:
        assert validator.is_valid(value) == (rules is not None and accepts(rules, json.dumps(value))), value


SAMPLES = [
    *("2024-02-29", "127.0.0.1", "10.20.30.40", "2eb8aa08-aa98-11ea-b4aa-73b441d16380", "x@example.com", "a@b"),
    *("example.com", "a-1.example", "http://x/y?z", "urn:b:c", "P1DT2H", "P3W", "/a/0", "", "2024-02-30"),
]


def test_same_string_is_written_once() -> None:
    """Fifty properties of one format share a rule."""
    one = grammar({"properties": {"p0": {"type": "string", "format": "uri"}}})
    many = grammar({"properties": {f"p{i}": {"type": "string", "format": "uri"} for i in range(50)}})
    assert one.rules.keys() == many.rules.keys()


def test_nothing_is_left() -> None:
    """Demands that contradict each other are found when compiling, and named."""
    with pytest.raises(UnsatisfiableSchemaError) as caught:
        grammar({"type": "string", "pattern": "^a+$", "allOf": [{"pattern": "^b+$"}]})
    assert ["#/allOf/0"] == [finding.pointer for finding in caught.value.findings if finding.keyword == "pattern"]


def test_too_large_a_product_is_refused_by_name() -> None:
    """The keyword and the figure are named; nothing is enforced by half in silence."""
    schema = {"type": "string", "pattern": "^(ab)*(cdef)*$", "minLength": 10_001, "maxLength": 1_000_001}
    with pytest.raises(SchemaError, match=r"20000 states") as caught:
        grammar(schema)
    assert ["minLength", "maxLength"] == [finding.keyword for finding in caught.value.findings]


def test_too_large_a_product_is_listed_where_asked_to_weaken() -> None:
    """Without strict the lengths are dropped, and the pattern is kept."""
    schema = {"type": "string", "pattern": "^(ab)*(cdef)*$", "minLength": 10_001, "maxLength": 1_000_001}
    rules, warnings = lower(schema, SchemaOptions(strict=False), None)
    assert ["minLength", "maxLength"] == [warning.keyword for warning in warnings]
    assert [True, False] == [accepts(rules, text) for text in ('"abab"', '"aba"')]


def test_unknown_format_is_a_note() -> None:
    """It constrains nothing, which is said, with a way out for a slip."""
    rules, warnings = lower({"type": "string", "format": "datetime"}, OPEN, None)
    assert accepts(rules, '"x"')
    assert [("#", "format", 'did you mean "date-time"?', True)] == [
        (note.pointer, note.keyword, note.hint, note.is_note) for note in warnings
    ]


def test_malformed_format() -> None:
    """A format is named by a string."""
    with pytest.raises(SchemaError, match="expected a string"):
        grammar({"format": 5})


def test_characters_that_the_vocabulary_lacks() -> None:
    """A product keeps to the characters that can be spelled, so that no way into it ends."""
    schema = {"type": "string", "pattern": 'é|"|^[ab]{2}$', "maxLength": 2}
    rules = lower(schema, SchemaOptions(), frozenset('ab"é'))[0]
    assert [True, True, True, False, False] == [
        accepts(rules, json.dumps(text, ensure_ascii=False)) for text in ("ab", "é", "aé", '"', "ü")
    ]


def test_format_that_the_vocabulary_can_spell_in_part() -> None:
    """Also where a format has an automaton inside."""
    rules = lower({"type": "string", "format": "email"}, SchemaOptions(), frozenset('ab@."'))[0]
    assert [True, False] == [accepts(rules, f'"{text}"') for text in ("a@b.a", "a@c.a")]
