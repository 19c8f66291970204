"""Schemas of every kind, small enough to compile in a moment, and a walk that compares two tables of one of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from schemas_cache.compile import CompiledSchema
from schemas_cache.source import Source, choice_source, json_object_source, regex_source, schema_source
from schemas_cache.vocabulary import Vocabulary

ROOT = Path(__file__).parents[2]
WHOLE = [bytes([byte]) for byte in range(256)]
VOCABULARY = Vocabulary(
    [*WHOLE, b'{"', b'": ', b'", "', b"true", b"ab", "上級".encode(), "級".encode()[:2], b""], [263]
)
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
    "additionalProperties": False,
}
SOURCES: dict[str, Source] = {
    "integer": schema_source({"type": "integer", "minimum": 1, "maximum": 9999}),
    "tree": schema_source(TREE),
    "strings": schema_source(
        {"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 4}, "maxItems": 3}
    ),
    "object": json_object_source(),
    "regex": regex_source("(a|b)*a(a|b){4}"),
    "choice": choice_source(["ab", "abc", "上級"]),
}


def assert_same_masks(expected: CompiledSchema, got: CompiledSchema, seed: int, steps: int = 60) -> None:
    """Walk both at random, on the same way, and compare every mask."""
    chance = random.Random(seed)
    first, second = expected.matcher(), got.matcher()
    for _ in range(steps):
        mask = first.mask()
        assert np.array_equal(mask, second.mask())
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        if not len(allowed):
            break
        token_id = int(chance.choice(allowed))
        first.advance(token_id)
        second.advance(token_id)
    assert (first.accepting, first.finished, first.pointer()) == (second.accepting, second.finished, second.pointer())
