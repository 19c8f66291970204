"""States that share a mask row: only what no token can tell apart, however long what follows is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from schemas_cache import Limits, Vocabulary, compile_schema
from schemas_cache.automaton import DEAD
from schemas_cache.schema.options import KeyOrder

TOKENS = ['": ', ', "', ' "a', ' "b', ' "c', '1, "b', '1, "c', ', "b', ', "c', "aaaa"]
SHORT = Vocabulary([*(bytes([byte]) for byte in range(256)), *map(str.encode, TOKENS)], [])
LONG_NAMES = {letter * 40: {"type": "integer"} for letter in "abc"}
LAST = "z" * 50


def document(*names: str) -> str:
    """An object of ones."""
    return "{" + ", ".join(f'"{name}": 1' for name in names) + "}"


@pytest.mark.parametrize(
    ("key_order", "schema", "texts"),
    [
        ("declared", {"type": "string", "maxLength": 30, "pattern": "[0-9]{20}"}, ['"' + "a" * 10 + "0" * 20]),
        (
            "any",
            {"type": "object", "properties": LONG_NAMES, "required": list(LONG_NAMES), "additionalProperties": False},
            [document(*LONG_NAMES), document(*reversed(LONG_NAMES))],
        ),
        (
            "declared",
            {
                "type": "object",
                "properties": {name: {"type": "integer"} for name in ("a", "b", "c", LAST)},
                "required": [LAST],
                "maxProperties": 3,
                "additionalProperties": False,
            },
            [document("b", LAST), document("a", "b", LAST)],
        ),
    ],
)
def test_rows_are_brute_force_where_the_end_is_far(key_order: KeyOrder, schema: Any, texts: list[str]) -> None:
    """Counts and members already written decide, although the end of their block is beyond the longest token."""
    compiled = compile_schema(schema, SHORT, key_order=key_order, limits=Limits(max_dense_entries=0))
    automaton = compiled.tokens.automaton
    for text in texts:
        matcher = compiled.matcher()
        for byte in text.encode():
            expected = [i for i, data in enumerate(SHORT.token_bytes) if automaton.walk(matcher.state, data) != DEAD]
            bits = np.unpackbits(matcher.mask().view(np.uint8), count=len(SHORT), bitorder="little")
            assert expected == np.flatnonzero(bits).tolist(), text
            matcher.advance_bytes(bytes([byte]))


@pytest.mark.parametrize("pattern", ["^[a-z]+(-[a-z]+)*$", "^(ab|c)*$", "^[a-z]+$|^[0-9]{5,}$"])
@pytest.mark.parametrize(("low", "high"), [(0, 300), (250, 300), (150, None)])
def test_positions_of_a_pattern_with_a_length_share_rows(pattern: str, low: int, high: int | None) -> None:
    """Far from the bounds positions look alike; near them each row is the one that would be worked out afresh."""
    schema = {"type": "string", "pattern": pattern, "minLength": low} | ({} if high is None else {"maxLength": high})
    compiled = compile_schema(schema, SHORT, limits=Limits(max_dense_entries=0))
    matcher, rows = compiled.matcher(), compiled.tokens.rows
    states = 0
    for byte in b'"' + b"ab" * 149 + b'c"':
        np.testing.assert_array_equal(rows.compute(matcher.state), matcher.mask())
        matcher.advance_bytes(bytes([byte]))
        states += 1
    assert len(rows) < states / 3
