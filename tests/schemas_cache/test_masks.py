"""Mask rows against brute force: every token's bytes fed one by one, in every state that random walks reach."""

from __future__ import annotations

import random

import numpy as np
import pytest

from app.bench.article.automata import PATTERN
from schemas_cache.automaton import DEAD, END, START, Automaton
from schemas_cache.grammar import Expr, Ref, alt, byte_class, concat, literal, repeat
from schemas_cache.spelling import free_string
from schemas_cache.token_automaton import TokenAutomaton
from schemas_cache.vocabulary import Vocabulary
from tests.schemas_cache.machines import (
    automaton_of,
    awkward_vocabulary,
    character_vocabulary,
    pattern_automaton,
    tokens_of,
)

QUOTE = literal('"')
JSON_VALUE = {
    "value": alt(Ref("string"), Ref("array"), Ref("object"), Ref("number"), *map(literal, ("true", "false", "null"))),
    "string": concat(QUOTE, free_string(0, None, None), QUOTE),
    "array": concat(literal("["), alt(literal(""), repeat(Ref("value"), 1, None, literal(", "))), literal("]")),
    "member": concat(Ref("string"), literal(": "), Ref("value")),
    "object": concat(literal("{"), alt(literal(""), repeat(Ref("member"), 1, None, literal(", "))), literal("}")),
    "number": repeat(byte_class([(0x30, 0x39)]), 1, None),
}
CASES: dict[str, tuple[Expr, dict[str, Expr]]] = {
    "free string": (JSON_VALUE["string"], {}),
    "short string": (concat(QUOTE, free_string(0, 3, None), QUOTE), {}),
    "string with both bounds": (concat(QUOTE, free_string(2, 40, None), QUOTE), {}),
    "at most one character": (concat(QUOTE, free_string(0, 1, None), QUOTE), {}),
    "free characters, then letters": (
        concat(free_string(1, 3, None), repeat(byte_class([(0x61, 0x63)]), 2, 7), literal("!")),
        {},
    ),
    "free characters in rounds": (repeat(free_string(1, 3, None), 1, 2), {}),
    "string or literal": (alt(concat(QUOTE, free_string(1, 2, None), QUOTE), literal('"abcabcabcabcabc"')), {}),
    "two strings at once": (
        alt(*(concat(QUOTE, free_string(0, most, None), literal(end)) for most, end in ((2, '"}'), (5, '"]')))),
        {},
    ),
    "array of strings": (
        concat(literal("["), repeat(concat(QUOTE, free_string(0, 9, None), QUOTE), 1, 4, literal(", ")), literal("]")),
        {},
    ),
    "enumeration": (alt(*map(literal, ('"初級"', '"中級"', '"上級"', '"a\\n"', '"😀"'))), {}),
    "any json": (Ref("value"), JSON_VALUE),
    "counted recursion": (
        Ref("node"),
        {"node": alt(literal("1"), concat(literal('{"a": '), repeat(Ref("node"), 1, 3, literal(", ")), literal("}")))},
    ),
    "ambiguous counts": (repeat(alt(literal("abc"), literal("abcabc")), 2, 30), {}),
}


def brute_force(automaton: Automaton, vocabulary: Vocabulary, state: int) -> set[int]:
    """Feed every token byte by byte."""
    allowed = {i for i, data in enumerate(vocabulary.token_bytes) if data and automaton.walk(state, data) != DEAD}
    ends = automaton.accepting[state] and state != END
    return allowed | (set(vocabulary.end_ids) if ends else set())


def bits(words: np.ndarray) -> set[int]:
    """Unpack a row the slow way."""
    return {t for t in range(32 * len(words)) if int(words[t // 32]) >> (t % 32) & 1}


def random_walk(tokens: TokenAutomaton, rng: random.Random, steps: int) -> list[int]:
    """States met by taking allowed tokens, longer ones preferred, until the end or a dead one."""
    state, met = START, [START]
    for _ in range(steps):
        choices = sorted(bits(tokens.rows.mask(state)))
        if not choices:
            break
        longest = max(choices, key=lambda t: (len(tokens.index.vocabulary.token_bytes[t]), rng.random()))
        state = tokens.step(state, longest if rng.random() < 0.2 else rng.choice(choices))
        met.append(state)
    return met


@pytest.mark.parametrize("case", CASES)
def test_rows_equal_brute_force(case: str) -> None:
    """On every state of a hundred walks, with tokens that cut characters and cross grammar borders."""
    automaton, vocabulary = automaton_of(*CASES[case]), awkward_vocabulary()
    tokens, rng = tokens_of(automaton, vocabulary), random.Random(case)
    states = {state for _ in range(100) for state in random_walk(tokens, rng, 40)}
    assert len(states) > 3
    for state in states:
        assert bits(tokens.rows.mask(state)) == brute_force(automaton, vocabulary, state)


@pytest.mark.parametrize("case", CASES)
def test_rows_found_by_digest_equal_rows_computed_afresh(case: str) -> None:
    """A shared row is the row that this state would have got."""
    tokens, rng = tokens_of(automaton_of(*CASES[case]), awkward_vocabulary()), random.Random(case)
    for state in {state for _ in range(60) for state in random_walk(tokens, rng, 60)}:
        np.testing.assert_array_equal(tokens.rows.mask(state), tokens.rows.compute(state))


def test_positions_of_a_long_string_share_rows() -> None:
    """Far from both bounds all states look alike; near the end each count has a row of its own."""
    tokens = tokens_of(automaton_of(concat(QUOTE, free_string(0, 1000, None), QUOTE)), awkward_vocabulary())
    state = tokens.automaton.walk(START, b'"')
    for _ in range(900):
        state = tokens.step(state, tokens.index.vocabulary.token_bytes.index(b"a"))
        tokens.rows.row(state)
    assert len(tokens.rows) == 1


def test_elements_of_an_array_share_rows() -> None:
    """The third element's states look like the second's."""
    string = concat(QUOTE, free_string(0, 5, None), QUOTE)
    tokens = tokens_of(
        automaton_of(concat(literal("["), repeat(string, 1, 500, literal(", ")), literal("]"))), awkward_vocabulary()
    )
    sizes = []
    for count in (2, 3, 100):
        text = b"[" + b", ".join([b'"abc"'] * count)
        for end in range(len(text)):
            tokens.rows.row(tokens.automaton.walk(START, text[:end]))
        sizes.append(len(tokens.rows))
    assert sizes[0] == sizes[1] == sizes[2]


def test_end_tokens_exactly_where_the_text_may_end() -> None:
    """All end tokens behave alike; special tokens are never allowed; nothing follows the end."""
    vocabulary = Vocabulary([b"", b"1", b"2", b"", b""], [0, 3])
    tokens = tokens_of(automaton_of(repeat(literal("1"), 1, 2)), vocabulary)
    one = tokens.step(START, 1)
    expected = [(START, {1}), (one, {0, 1, 3}), (tokens.step(one, 1), {0, 3}), (tokens.step(one, 3), set())]
    assert [(state, bits(tokens.rows.mask(state))) for state, _ in expected] == expected
    assert tokens.step(one, 4) == tokens.step(one, -1) == tokens.step(one, 5) == DEAD


@pytest.mark.parametrize(("maximum", "states"), [(12, 156), (32, 176), (64, 208), (128, 272), (256, 400)])
def test_token_boundary_states_of_the_article(maximum: int, states: int) -> None:
    """The article counts 175, 195, 227, 291 and 419; over important states fewer are needed."""
    text = "".join(map(chr, (*range(0x20, 0x7F), *range(0x3041, 0x3097)))) + "初級中上"
    tokens = tokens_of(pattern_automaton(PATTERN % maximum), character_vocabulary(text))
    tokens.lift(1 << 20)
    assert tokens.dense is not None
    assert len(tokens.dense.states) == states
    assert int(((tokens.dense.next_state != DEAD).sum(axis=1) == 1).sum()) == 133


@pytest.mark.parametrize(
    "vocabulary", [awkward_vocabulary(), character_vocabulary('{}":, 0123456789初級中上abcdefilnprtuwxy')]
)
def test_dense_table_equals_walking(vocabulary: Vocabulary) -> None:
    """Each entry is the state after the token's bytes; each row's mask is the brute-force one."""
    automaton = pattern_automaton(r'\{"a": [0-9]{1,3}, "b": "(初級|abc)*"\}')
    walked, lifted = tokens_of(automaton, vocabulary), tokens_of(automaton, vocabulary)
    lifted.lift(1 << 20)
    assert lifted.dense is not None
    for state in lifted.dense.states.tolist():
        steps = [walked.step(state, token_id) for token_id in range(len(vocabulary))]
        assert steps == [lifted.step(state, token_id) for token_id in range(len(vocabulary))]
        assert bits(lifted.rows.mask(state)) == brute_force(automaton, vocabulary, state)


def test_no_dense_table_beyond_its_bound() -> None:
    """Recursion has no end, and a large table is not worth its memory: both stay lazy."""
    recursive = tokens_of(automaton_of(Ref("value"), JSON_VALUE), awkward_vocabulary())
    recursive.lift(10_000)
    assert recursive.dense is None


def test_deep_nesting_with_holes_is_digested_without_recursion() -> None:
    """Where what can be spelled later matters, the whole stack is in sight: thousands of levels of it."""
    tokens = tokens_of(automaton_of(Ref("value"), JSON_VALUE), Vocabulary([b"[", b"]", b"1", b'{"', b'"', b""], [5]))
    state = tokens.automaton.walk(START, b"[" * 3000)
    assert bits(tokens.rows.mask(state)) == {0, 1, 2, 4}


HOLES = [b"", b'"', b"a", b"ab", b"abc", b"bc", b"xy", b"y", b"yz", "é".encode()[:1], b'z"', b'yz"', b"1", b'x"']


@pytest.mark.parametrize("pattern", ['"(abc|xyz|é)"', '"a*(b|bc)?(xy)*z?"', '("ab"|1){1,3}', '"[a-z]{1,4}"'])
def test_tokens_into_unspellable_text_are_forbidden(pattern: str) -> None:
    """A vocabulary with holes: a token is allowed exactly if some tokens lead from it to the end."""
    vocabulary = Vocabulary(HOLES, [0])
    tokens = tokens_of(pattern_automaton(pattern), vocabulary)
    automaton, following = tokens.automaton, dict[int, set[int]]()
    todo = [START]
    while todo:  # all states that tokens reach, whether they lead anywhere or not
        state = todo.pop()
        following[state] = {automaton.walk(state, data) for data in HOLES if data} - {DEAD}
        todo.extend(following[state] - following.keys() - set(todo))
    finishing = {state for state in following if automaton.accepting[state]}
    while more := {state for state, to in following.items() if to & finishing} - finishing:
        finishing |= more
    assert finishing
    for state in finishing:
        expected = {i for i, data in enumerate(HOLES) if data and automaton.walk(state, data) in finishing}
        assert bits(tokens.rows.mask(state)) - {0} == expected
        assert {i for i in range(1, len(HOLES)) if tokens.step(state, i) != DEAD} == expected
