"""Whole schemas on the shipped vocabularies: masks against brute force, outputs against an independent validator."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest

from schemas_cache import CompiledSchema, Vocabulary, compile_schema
from schemas_cache.automaton import DEAD, END
from tests.schemas_cache.machines import awkward_vocabulary

EMBEDDED = Path(__file__).parents[2] / "engine" / "embedded"

TREE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#"}, "maxItems": 3}},
    "required": ["v", "kids"],
    "additionalProperties": False,
}
EXPRESSION = {
    "$defs": {
        "expr": {"anyOf": [{"type": "integer", "minimum": -99, "maximum": 99}, {"$ref": "#/$defs/call"}]},
        "call": {
            "type": "object",
            "properties": {
                "fn": {"enum": ["add", "neg"]},
                "args": {"type": "array", "items": {"$ref": "#/$defs/expr"}, "minItems": 1, "maxItems": 2},
            },
            "required": ["fn", "args"],
            "additionalProperties": False,
        },
    },
    "$ref": "#/$defs/expr",
}
SCHEMAS: dict[str, Any] = {
    "article": {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 0, "maximum": 9999},
            "title": {"type": "string", "minLength": 1, "maxLength": 32},
            "level": {"enum": ["初級", "中級", "上級"]},
            "tags": {
                "type": "array",
                "minItems": 1,
                "maxItems": 3,
                "items": {"enum": ["python", "linux", "ai", "web", "db", "network"]},
            },
            "draft": {"type": "boolean"},
        },
        "required": ["id", "title", "level", "tags", "draft"],
        "additionalProperties": False,
    },
    "tree": TREE,
    "expression": EXPRESSION,
    "anything": {},
    "optional members": {
        "type": "object",
        "properties": {name: {"type": ["integer", "null"]} for name in ("a", "b", "c", "d")},
        "required": ["c"],
        "additionalProperties": False,
    },
    "constants": {"enum": [None, True, -1.5, "初級", 'q"\\\n', [1, "a"], {"k": [], "l": {}}]},
    "bounds": {"type": "integer", "exclusiveMinimum": -1234, "maximum": 98765},
    "pattern": {"type": "string", "pattern": "^[a-c]{2,4}-(?:初|中)?\\d+$"},
    "union with siblings": {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "on": {"type": "boolean"}, "off": {"type": "boolean"}},
        "anyOf": [{"required": ["on"]}, {"required": ["off"]}],
        "additionalProperties": False,
    },
    "long strings in arrays": {
        "type": "array",
        "items": {"type": "string", "minLength": 2, "maxLength": 300},
        "minItems": 1,
        "maxItems": 40,
    },
}


@cache
def vocabulary(name: str) -> Vocabulary:
    """Load a shipped vocabulary, or the made-up one with parts of characters."""
    if name == "awkward":
        return awkward_vocabulary()
    return Vocabulary.from_tokenizer_json(EMBEDDED / name / "tokenizer.json", end_ids=[0])


@cache
def compiled(schema: str, tokens: str) -> CompiledSchema:
    """Compile each pair once."""
    return compile_schema(SCHEMAS[schema], vocabulary(tokens))


def allowed(words: np.ndarray, size: int) -> list[int]:
    """Unpack a mask."""
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")[:size]).tolist()


def draw(schema: CompiledSchema, rng: random.Random) -> tuple[str, set[int]]:
    """Sample a text token by token, random tokens first and a shortest way at the end; the states met on the way."""
    matcher, data, met = schema.matcher(), b"", set[int]()
    ends = set(schema.vocabulary.end_ids)
    for _ in range(rng.randrange(5, 60)):
        met.add(matcher.state)
        choices = [t for t in allowed(matcher.mask(), len(schema.vocabulary)) if t not in ends]
        if not choices:
            break
        token_id = rng.choice(choices)
        matcher.advance(token_id)
        data += schema.vocabulary.token_bytes[token_id]
    closing = matcher.shortest()
    matcher.advance_bytes(closing)
    assert matcher.accepting
    return (data + closing).decode("utf-8"), met


PAIRS = [(schema, tokens) for schema in SCHEMAS for tokens in ("katagami-char", "katagami-bpe", "awkward")]


@pytest.mark.parametrize(("schema", "tokens"), PAIRS)
def test_every_text_is_valid(schema: str, tokens: str) -> None:
    """Two hundred random walks: each parses, and an independent validator agrees."""
    validator, rng = jsonschema_rs.validator_for(SCHEMAS[schema]), random.Random(f"{schema} {tokens}")
    for _ in range(200):
        text, _ = draw(compiled(schema, tokens), rng)
        assert validator.is_valid(json.loads(text)), text


@pytest.mark.parametrize(("schema", "tokens"), PAIRS)
def test_every_mask_equals_brute_force(schema: str, tokens: str) -> None:
    """Each token's bytes fed one by one, on every state that fifty walks reach."""
    one, rng = compiled(schema, tokens), random.Random(f"{schema} {tokens}")
    automaton, rows = one.tokens.automaton, one.tokens.rows
    states = set().union(*(draw(one, rng)[1] for _ in range(50)))
    assert len(states) > 1
    for state in states:
        expected = [
            i for i, data in enumerate(one.vocabulary.token_bytes) if data and automaton.walk(state, data) != DEAD
        ]
        ends = one.vocabulary.end_ids if automaton.accepting[state] and state != END else ()
        assert allowed(rows.mask(state), len(one.vocabulary)) == sorted([*expected, *ends])


@pytest.mark.parametrize("schema", SCHEMAS)
def test_fresh_and_stored_tables_give_equal_masks(schema: str) -> None:
    """Cached equals fresh: the same walk through tables from bytes and through tables just made."""
    used, fresh = compiled(schema, "katagami-bpe"), compile_schema(SCHEMAS[schema], vocabulary("katagami-bpe"))
    stored = CompiledSchema.load(used.dump(), used.source, used.vocabulary)
    assert (stored.minimum_tokens, stored.warnings) == (fresh.minimum_tokens, fresh.warnings)
    rng = random.Random(schema)
    for _ in range(20):
        one, other = fresh.matcher(), stored.matcher()
        while choices := [t for t in allowed(one.mask(), len(fresh.vocabulary)) if t not in fresh.vocabulary.end_ids]:
            np.testing.assert_array_equal(one.mask(), other.mask())
            assert (one.forced(), one.pointer(), one.accepting) == (other.forced(), other.pointer(), other.accepting)
            token_id = rng.choice(choices)
            one.advance(token_id)
            other.advance(token_id)
            if rng.random() < 0.03:
                break


@pytest.mark.parametrize("tokens", ["katagami-char", "katagami-bpe"])
def test_minimum_tokens_is_enough_and_needed(tokens: str) -> None:
    """The article's shortest record takes so many tokens: found by search, and no walk of fewer tokens is complete."""
    schema = compiled("article", tokens)
    level, depth = {schema.matcher().state}, 0
    while not any(schema.tokens.automaton.accepting[state] for state in level):
        following = (schema.tokens.dense.next_state[schema.tokens.dense.row_of_state[state]] for state in level)  # type: ignore[union-attr]
        level = {to for row in following for to in row.tolist()} - {DEAD, END}
        depth += 1
    assert depth <= schema.minimum_tokens <= depth + 2
