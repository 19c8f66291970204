"""Fewest tokens to the end of a text: enough, kept up by some token in every state, and never more than bytes."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from schemas_cache import SchemaError, Vocabulary, compile_source, regex_source, schema_source
from schemas_cache.automaton import DEAD, END, START
from schemas_cache.fewest_tokens import NO_WAY
from schemas_cache.token_automaton import TokenAutomaton
from schemas_cache.trie import walk
from tests.suites.random_schemas import random_schema
from tests.suites.sampling import BPE, BYTES, OPTIONS
from tests.toy import TOY

VOCABULARIES = {"bpe": BPE, "bytes": BYTES, "holes": TOY}
SCHEMAS = range(24)
STATES = 15


def some_tokens(seed: int, vocabulary: Vocabulary) -> TokenAutomaton | None:
    """The automaton of a random schema, None where it cannot be compiled."""
    source = schema_source(random_schema(Random(seed)), OPTIONS[seed % len(OPTIONS)])
    try:
        return compile_source(source, vocabulary).tokens
    except SchemaError:
        return None


def true_minimum(tokens: TokenAutomaton, state: int, most_states: int = 300) -> int | None:
    """Fewest tokens by brute force; None where that would take too long."""
    seen, level, depth = {state}, {state}, 0
    while level and len(seen) < most_states:
        if any(tokens.automaton.accepting[at] for at in level):
            return depth
        found = {to for at in level for to in walk(tokens.automaton, tokens.index.trie, at)[1].tolist()}
        level = found - seen - {DEAD, END}
        seen |= level
        depth += 1
    return None


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_some_token_brings_the_end_nearer_in_every_state(vocabulary: str) -> None:
    """Where n tokens are needed, none of the next states needs fewer than n - 1 only by accident: one has at most that.

    And n is 0 exactly where the text may end, never below the true minimum, and never above the bytes of the way.
    """
    for seed in SCHEMAS:
        tokens = some_tokens(seed, VOCABULARIES[vocabulary])
        if tokens is None:
            continue
        random, state = Random(seed), START
        for _ in range(STATES):
            needed = tokens.fewest.needed(state)
            assert (needed == 0) == tokens.automaton.accepting[state]
            least = true_minimum(tokens, state)
            assert least is None or least <= needed
            following = sorted(set(tokens.following(state)[1].tolist()))
            if not following:
                break
            assert not needed or min(map(tokens.fewest.needed, following)) <= needed - 1
            state = random.choice(following)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_what_fits_is_what_is_needed(vocabulary: str) -> None:
    """`fit` looks at bytes first, and says what the count of tokens says; in whichever order states are asked about."""
    for seed in SCHEMAS:
        one, other = (some_tokens(seed, VOCABULARIES[vocabulary]) for _ in range(2))
        if one is None or other is None:
            continue
        states, state, random = list[int](), START, Random(seed)
        for _ in range(STATES):
            states.append(state)
            following = np.unique(one.following(state)[1])
            np.testing.assert_array_equal(following, np.unique(other.following(state)[1]))
            if not len(following):
                break
            state = int(random.choice(following.tolist()))
        needed = {state: other.fewest.needed(state) for state in reversed(states)}
        for state in states:
            around = {0, 1, *range(max(0, needed[state] - 2), min(needed[state], 500) + 3)}
            assert {tokens: needed[state] <= tokens for tokens in around} == {
                tokens: one.fewest.fit(state, tokens) for tokens in around
            }


@pytest.mark.parametrize("tokens", range(6))
def test_narrowed_masks_are_masks_of_what_fits(tokens: int) -> None:
    """A token stays in the mask if it was there, and the text can be ended in time after it; so does the end token."""
    for pattern in ("a*b?", '"[abc]{0,4}"', "(ab|abc)+1", "[ab]{3,9}"):
        matcher = compile_source(regex_source(pattern), TOY).matcher()
        for _ in range(4):
            narrowed = np.unpackbits(matcher.mask_within(tokens).view(np.uint8), bitorder="little")
            for token_id in range(len(TOY)):
                after = matcher.fork()
                fits = after.allows(token_id)
                if fits and token_id not in TOY.end_ids:
                    after.advance(token_id)
                    fits = after.tokens.fewest.needed(after.state) <= tokens
                assert fits == bool(narrowed[token_id])
            way = [i for i in range(len(TOY)) if matcher.allows(i) and i not in TOY.end_ids]
            if not way:
                break
            matcher.advance(way[0])


def test_the_way_goes_round_holes_in_the_vocabulary() -> None:
    """`1b` is shorter in bytes, but no tokens spell it: the fewest tokens are those of a text that can be spelled."""
    vocabulary = Vocabulary([b"", b"1", b"a", b"ab", b"bc"], [0])
    tokens = compile_source(regex_source("1(b|aab|ababab)"), vocabulary).tokens
    assert 3 == tokens.fewest.needed(START)
    assert not tokens.fewest.fit(START, 2)


def test_a_state_without_any_way_fits_nothing() -> None:
    """After a token that leads into a hole no number of tokens is enough."""
    vocabulary = Vocabulary([b"", b"y", b"yes"], [0])
    tokens = compile_source(regex_source("yes"), vocabulary).tokens
    into_the_hole = tokens.automaton.walk(START, b"y")
    assert NO_WAY == tokens.fewest.needed(into_the_hole)
    assert not tokens.fewest.fit(into_the_hole, 1000)
    assert 1 == tokens.fewest.needed(START)


def test_forgetting_changes_nothing_that_is_said() -> None:
    """After `forget` the same counts come out."""
    tokens = compile_source(schema_source({"type": "array", "items": {"enum": ["a", 12]}, "minItems": 3}), TOY).tokens
    before = tokens.fewest.needed(START)
    tokens.fewest.forget()
    assert before == tokens.fewest.needed(START)
