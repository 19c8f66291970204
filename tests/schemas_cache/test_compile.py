"""Compiling as a caller sees it: extremes are compiled, or refused with figure and limit, in little memory."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from schemas_cache import (
    CompileTimeoutError,
    Limits,
    SchemaCache,
    SchemaError,
    SchemaTooComplexError,
    UnsatisfiableSchemaError,
    Vocabulary,
    choice_source,
    compile_regex,
    compile_schema,
    compile_source,
    json_object_source,
)
from schemas_cache.automaton import START
from tests.schemas_cache.machines import character_vocabulary

BYTES = Vocabulary([bytes([byte]) for byte in range(256)], [])

HUGE: dict[str, Any] = {
    "a maximum beyond any text": {"type": "string", "maxLength": 10**18},
    "a million characters": {"type": "string", "maxLength": 1_000_000},
    "a maximum of elements beyond any text": {"type": "array", "items": {"const": 1}, "maxItems": 3 * 10**9},
    "nested arrays": {
        "type": "array",
        "maxItems": 500,
        "items": {"type": "array", "maxItems": 200, "items": {"type": "string"}},
    },
    "many values": {"enum": [f"value {i:040d}" for i in range(20_000)]},
    "many properties": {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(1_000)}},
    "sixty thousand characters at least": {"type": "string", "minLength": 60_000},
}
TOO_MUCH: dict[str, Any] = {
    "more characters than a text has": {"type": "string", "minLength": 3 * 10**9},
    "a million characters at least": {"type": "string", "minLength": 1_000_000},
    "a hundred thousand elements at least": {"type": "array", "items": {"const": 1}, "minItems": 100_000},
}


@pytest.mark.parametrize("name", HUGE)
@pytest.mark.timeout(60)
def test_large_schemas_compile_in_bounded_memory(name: str) -> None:
    """Each within 200 MB."""
    tracemalloc.start()
    try:
        compiled = compile_schema(HUGE[name], BYTES)
        assert tracemalloc.get_traced_memory()[1] < 200 * 2**20
    finally:
        tracemalloc.stop()
    text = compiled.matcher().shortest()
    assert compiled.tokens.automaton.accepting[compiled.tokens.automaton.walk(START, text)]
    assert compiled.minimum_tokens == len(text)


def test_no_dense_table_is_forced_on_what_explodes() -> None:
    """A vocabulary of three tokens would allow a table of 300,000 states; the automaton stays lazy instead."""
    compiled = compile_regex("(a|b)*a(a|b){20}", Vocabulary([b"a", b"b", b""], [2]))
    assert compiled.tokens.dense is None
    assert len(compiled.tokens.automaton) < 10_000


def test_what_is_very_far_is_too_much_and_not_impossible() -> None:
    """A billion elements of a billion elements of a billion: a limit, not a contradiction."""
    deep: Any = {"const": 1}
    for _ in range(3):
        deep = {"type": "array", "items": deep, "minItems": 10**9}
    with pytest.raises(SchemaTooComplexError, match="shortest document"):
        compile_schema(deep, BYTES)


def test_an_automaton_that_fills_up_is_replaced() -> None:
    """A cached schema goes on with fresh tables; who uses the old ones keeps them."""
    cache = SchemaCache(None, limits=Limits(max_states=400))
    first = cache.compile_schema({}, BYTES)
    matcher = first.matcher()
    matcher.advance_bytes(b"[" * 250)
    assert first.exhausted
    second = cache.compile_schema({}, BYTES)
    assert second is not first
    assert not second.exhausted
    matcher.advance_bytes(b"1]")


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_no_budget_can_hold_is_refused_with_the_limit(name: str) -> None:
    """The figure and the limit are in the message."""
    with pytest.raises(SchemaTooComplexError, match=r"\d+.*limit.*\d+"):
        compile_schema(TOO_MUCH[name], BYTES)


@pytest.mark.parametrize(
    ("pattern", "accepted", "refused"),
    [("a{0,3000000000}", "aaa", "b"), ("[^a]", "\u00e9", "aa"), ("(?:ab|cd)+", "abcd", "abc")],
)
def test_regex_matches_the_whole_text(pattern: str, accepted: str, refused: str) -> None:
    """Not a part of it."""
    automaton = compile_regex(pattern, BYTES).tokens.automaton
    assert automaton.accepting[automaton.walk(START, accepted.encode())]
    assert not automaton.accepting[automaton.walk(START, refused.encode())]


def test_broken_regex_names_the_place() -> None:
    """Position and construct, as one finding."""
    with pytest.raises(SchemaError, match="character 1"):
        compile_regex("a(", BYTES)


def test_choice_is_text_and_not_json() -> None:
    """No quotes; a text that begins another is told apart at its end."""
    compiled = compile_source(choice_source(["yes", "yes, please"]), BYTES)
    automaton = compiled.tokens.automaton
    accepted = [
        automaton.accepting[automaton.walk(START, text)] for text in (b"yes", b"yes, please", b"yes,", b'"yes"')
    ]
    assert accepted == [True, True, False, False]


def test_any_object_is_any_object() -> None:
    """Nested as deep as one likes; arrays and scalars are no objects."""
    automaton = compile_source(json_object_source(), BYTES).tokens.automaton
    value: Any = {"a": [1, None, {"b": "\u00e9\n"}]}
    for _ in range(50):
        value = {"deeper": [value]}
    texts = [json.dumps(value, ensure_ascii=False), "{}", "[]", "1", '{"a": }']
    accepted = [automaton.accepting[automaton.walk(START, text.encode())] for text in texts]
    assert accepted == [True, True, False, False, False]


def test_vocabulary_that_cannot_spell_a_schema_is_an_error() -> None:
    """Not a sequence that fails later."""
    with pytest.raises(UnsatisfiableSchemaError):
        compile_schema({"const": "\u00e9"}, character_vocabulary('"abc'))


def test_compile_time_is_bounded() -> None:
    """The limit is named."""
    with pytest.raises(CompileTimeoutError, match="limit is 1e-09 s"):
        compile_schema({"type": "string"}, BYTES, limits=Limits(compile_timeout_s=1e-9))
