"""Rows inside strings that schemas share: only where no token tells them apart, and wherever none does."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas_cache import CompiledSchema, Limits, SchemaError, Vocabulary, compile_schema
from schemas_cache.automaton import DEAD, END
from schemas_cache.schema.options import KeyOrder
from schemas_cache.token_index import token_index
from tests.schemas_cache.machines import awkward_vocabulary

EMBEDDED = Path(__file__).parents[2] / "engine" / "embedded"
LAZY = Limits(max_dense_entries=0)
PARTS = [b"\xc3", b"\xa9a", b'\xa9"', b'\xa9", "', b"\xe3\x81", b"\x82\xe3"]
CROSSING = [
    *('"}', '"]', '",', '", ', '", "', '": ', '": "', '"}, "b', '"}]', '"], "', '"}}', '"]}', '""', '"",'),
    *(
        'ab"',
        'ab", "b": "',
        'aa"}',
        'cc"]',
        'aaaaaaaa"',
        '\\"',
        '\\", "',
        "\\u00",
        '61"',
        "ab",
        "aaaa",
        "é",
        "-01",
        '1"',
    ),
    *('"ab": 1', 'b": ', 'b": 1', 'a": "ab', ' "a": "', '"b": "a", "', "a" * 12, 'a", "c": 1}'),
]


@cache
def vocabulary(name: str) -> Vocabulary:
    """Bytes and made-up tokens that cross quotes, or a shipped vocabulary."""
    if name == "crossing":
        tokens = [*(bytes([byte]) for byte in range(256)), *map(str.encode, CROSSING), *PARTS, b""]
        return Vocabulary(tokens, [len(tokens) - 1])
    if name == "awkward":
        return awkward_vocabulary()
    return Vocabulary.from_tokenizer_json(EMBEDDED / name / "tokenizer.json", end_ids=[0])


NEAR_THE_CLIP = st.sampled_from([0, 1, 2, 3, 10, 11, 12, 13, 14, 25])
LENGTHS = st.tuples(st.none() | NEAR_THE_CLIP, st.none() | NEAR_THE_CLIP).map(
    lambda pair: {
        name: value for name, value in zip(("minLength", "maxLength"), pair, strict=True) if value is not None
    }
)
TEXTS = st.sampled_from(
    [
        *({}, {}, {"pattern": "^[a-c]{2,14}$"}, {"pattern": "^(ab|c)*$"}, {"pattern": "a.*b"}, {"format": "date"}),
        *({"pattern": "^[a-c]+(-[0-9]+)?$"}, {"not": {"enum": ["a", "ab", 'a"']}}, {"pattern": "^([ab]{2,3}){1,20}$"}),
        *({"pattern": "^a?[^a]*$"}, {"pattern": "^[^-]{3,}[a-z]{2}$"}),
    ]
)
FIELDS = st.builds(lambda text, lengths: {"type": "string"} | text | lengths, TEXTS, LENGTHS)
OTHERS = st.sampled_from([{"type": "integer"}, {"const": "ab"}, {"type": "string"}, {"type": "array"}, True])


def _object(field: Any, other: Any, required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": field, "b": other, "ab": field}, "required": required}


CONTEXTS = st.sampled_from(
    [
        lambda field, _: field,
        lambda field, other: _object(field, other, ["a"]),
        lambda field, other: _object(field, other, ["a", "b"]),
        lambda field, other: _object(field, other, []) | {"maxProperties": 2},
        lambda field, other: {"type": "array", "items": field, "minItems": 1, "maxItems": 3, "prefixItems": [other]},
        lambda field, _: {"type": "array", "items": field},
        lambda field, other: {"anyOf": [field, {"enum": ["abab", "aaaaaaaaaaaaa", 'c"']}, other]},
        lambda field, other: {"anyOf": [_object(field, other, ["b"]), _object(other, field, ["a"])]},
        lambda field, other: {
            "type": "object",
            "properties": {"ab": other},
            "patternProperties": {"^[a-c]+$": field},
            "additionalProperties": other,
        },
        lambda field, _: {"type": "object", "properties": {"ab": True}, "additionalProperties": field},
        lambda field, _: {"type": "object", "propertyNames": field},
        lambda field, other: {"type": "array", "items": _object({"type": "array", "items": field}, other, ["a"])},
    ]
)
SCHEMAS = st.builds(lambda context, field, other: context(field, other), CONTEXTS, FIELDS, OTHERS)


def brute_force(compiled: CompiledSchema, state: int) -> list[int]:
    """Each token byte by byte."""
    automaton, tokens = compiled.tokens.automaton, compiled.vocabulary.token_bytes
    found = [i for i, data in enumerate(tokens) if data and automaton.walk(state, data) != DEAD]
    ends = automaton.accepting[state] and state != END
    return sorted([*found, *(compiled.vocabulary.end_ids if ends else ())])


def tokens_of(words: np.ndarray) -> list[int]:
    """Unpack a mask."""
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()


def check(schema: Any, name: str, key_order: KeyOrder, rng: random.Random) -> None:
    """Compare each row on two walks, those that other schemas have left included."""
    try:
        compiled = compile_schema(
            schema,
            vocabulary(name),
            key_order=key_order,
            additional_properties=rng.choice(["open", "closed"]),
            limits=LAZY,
        )
    except SchemaError:
        return
    for _ in range(2):
        matcher = compiled.matcher()
        for _ in range(12):
            allowed = tokens_of(matcher.mask())
            assert brute_force(compiled, matcher.state) == allowed, (schema, matcher.state)
            choices = [t for t in allowed if t not in compiled.vocabulary.end_ids]
            if not choices:
                break
            longer = [t for t in choices if len(compiled.vocabulary.token_bytes[t]) > 1]
            matcher.advance(rng.choice(longer if longer and rng.random() < 0.5 else choices))


@settings(max_examples=120, deadline=None)
@given(st.lists(SCHEMAS, min_size=2, max_size=2), st.sampled_from(["declared", "any"]), st.integers(0, 2**32))
def test_rows_of_any_two_schemas_are_brute_force(schemas: list[Any], key_order: KeyOrder, seed: int) -> None:
    """Schemas that differ just inside or outside of what a token sees, one after another on one vocabulary."""
    for schema in schemas:
        check(schema, "crossing", key_order, random.Random(seed))


@pytest.mark.parametrize("name", ["awkward", "katagami-char", "katagami-bpe"])
@settings(max_examples=12, deadline=None)
@given(schema=SCHEMAS, seed=st.integers(0, 2**32))
def test_rows_are_brute_force_on_other_vocabularies(name: str, schema: Any, seed: int) -> None:
    """Parts of characters, and the shipped vocabularies."""
    check(schema, name, "declared", random.Random(seed))


def rows_after(schema: Any, text: bytes) -> tuple[list[int], int]:
    """The tokens allowed after a text, and how many rows are shared then."""
    compiled = compile_schema(schema, vocabulary("crossing"), limits=LAZY)
    matcher = compiled.matcher()
    matcher.advance_bytes(text)
    return tokens_of(matcher.mask()), len(compiled.tokens.index.shared_rows)


def document(field: Any, *names: str, **more: Any) -> dict[str, Any]:
    """An object with a field, and further names behind it."""
    properties = {"title": field} | {name: {"type": "integer"} for name in names}
    return {"type": "object", "properties": properties, "required": ["title", *names]} | more


LONG = {"type": "string", "maxLength": 1000}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (document({"type": "string"}, "year"), document({"type": "string"}, "tags", "z")),
        (document({"type": "string"}, "year"), document(LONG, "tags")),
        (document({"type": "string", "maxLength": 3}, "year"), document({"type": "string", "maxLength": 3}, "tags")),
        (document({"type": "string", "format": "email"}, "year"), document({"type": "string", "format": "email"}, "x")),
        (
            document({"type": "string", "pattern": "^[a-z]{3,9}$"}, "year"),
            document({"type": "string", "pattern": "^[a-z]{3,9}$"}, "tags"),
        ),
    ],
)
def test_fields_of_two_schemas_share_a_row(first: Any, second: Any) -> None:
    """What stands behind a string does not matter where no token tells."""
    token_index(vocabulary("crossing")).shared_rows.clear()
    allowed, rows = rows_after(first, b'{"title": "a')
    assert rows == 1
    assert rows_after(second, b'{"title": "a') == (allowed, 1)


def test_fields_that_a_token_tells_apart_do_not_share() -> None:
    """One token more is allowed where the name that it goes on with is."""
    token_index(vocabulary("crossing")).shared_rows.clear()
    one, rows = rows_after(document({"type": "string"}, "year"), b'{"title": "a')
    other, more = rows_after(document({"type": "string"}, "c"), b'{"title": "a')
    assert (rows, more) == (1, 2)
    added = {vocabulary("crossing").token_bytes[t] for t in set(other) - set(one)}
    assert added == {b'a", "c": 1}'}


@pytest.mark.parametrize(("begin", "longer"), [(b"", b'ab"'), (b"\xc3", b"\xa9a")])
def test_at_most_one_character_is_no_long_text(begin: bytes, longer: bytes) -> None:
    """A string of one character at the most has the states of a longer one, and none of its rows."""
    token_index(vocabulary("crossing")).shared_rows.clear()
    token_id, text = vocabulary("crossing").token_bytes.index(longer), b'{"title": "' + begin
    assert token_id in rows_after(document({"type": "string"}, "year"), text)[0]
    assert token_id not in rows_after(document({"type": "string", "maxLength": 1}, "year"), text)[0]
