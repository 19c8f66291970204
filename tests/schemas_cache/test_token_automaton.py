"""Which tokens are allowed in a state, and where each leads: blocks of plain tokens against the walk of all tokens."""

from __future__ import annotations

from random import Random

import pytest

from schemas_cache import SchemaError, compile_source, schema_source
from schemas_cache.automaton import START
from schemas_cache.limits import Limits
from schemas_cache.trie import walk
from tests.suites.random_schemas import random_schema
from tests.suites.sampling import BPE, OPTIONS
from tests.toy import CHARACTERS, TOY

LAZY = Limits(max_dense_entries=0)
STRINGS = [
    {"type": "string", "maxLength": 9},
    {"type": "string", "minLength": 3},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "string", "minLength": 3, "maxLength": 7}]},
    {"anyOf": [{"type": "string", "maxLength": 4}, {"const": "the and"}]},
    {"type": "array", "items": {"type": "string", "maxLength": 6}},
    {"type": "object", "properties": {"a": {"type": "string", "maxLength": 20, "pattern": "^[a-z ]+$"}}},
    {"type": "object", "additionalProperties": {"type": "string", "maxLength": 3}},
]


@pytest.mark.parametrize("limits", [Limits(), LAZY], ids=["dense", "lazy"])
@pytest.mark.parametrize("vocabulary", [BPE, CHARACTERS, TOY], ids=["bpe", "characters", "holes"])
def test_following_is_what_a_walk_of_all_tokens_finds(vocabulary: object, limits: Limits) -> None:
    """Each allowed token once, with the state after it, in states at and between the borders of characters."""
    for seed, schema in enumerate([*STRINGS, *(random_schema(Random(seed)) for seed in range(12))]):
        try:
            source = schema_source(schema, OPTIONS[seed % len(OPTIONS)])
            tokens = compile_source(source, vocabulary, limits=limits).tokens  # type: ignore[arg-type]
        except SchemaError:
            continue
        random, state, reach = Random(seed), START, tokens.rows.reach
        for _ in range(12):
            expected = (walk if reach is None else lambda _a, trie, at, r=reach: r.walk(trie, at))(
                tokens.automaton, tokens.index.trie, state
            )
            found = tokens.following(state)
            assert sorted(zip(*map(list, expected), strict=True)) == sorted(zip(*map(list, found), strict=True))
            if not len(found[0]):
                break
            state = int(random.choice(found[1].tolist()))
