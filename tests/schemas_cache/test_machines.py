"""Products over values against the same questions asked one by one, and their spelling in JSON."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas_cache.automaton import START
from schemas_cache.finite import FiniteAutomaton
from schemas_cache.grammar import concat, literal
from schemas_cache.machines import (
    MachineTooLargeError,
    any_text,
    expr_of,
    intersect,
    is_empty,
    machine_of,
    subtract,
    texts_of,
    unite,
    with_length,
)
from schemas_cache.pattern import full_language, search_language
from schemas_cache.spelling import json_string
from tests.schemas_cache.machines import automaton_of
from tests.schemas_cache.reference_matcher import matches

PATTERNS = ["a*", "(ab|c)*", "[^a]{2}", "a|é|😀+", ".*", '["\\\\\\n\\x01]*', "(a{2}){1,3}b?", "", "é?é"]
TEXTS = ["".join(text) for length in range(4) for text in itertools.product('ab"é😀\n', repeat=length)]


def of(pattern: str) -> FiniteAutomaton:
    """Build the automaton of whole matches."""
    return machine_of(full_language(pattern))


def fits(pattern: str, text: str) -> bool:
    """Ask the slow matcher."""
    return matches(full_language(pattern), text)


@pytest.mark.parametrize(("one", "other"), list(itertools.product(PATTERNS, repeat=2)))
def test_products_are_and_or_without(one: str, other: str) -> None:
    """On every short text the product says what its parts say."""
    both, either, rest = (combine(of(one), of(other)) for combine in (intersect, unite, subtract))
    for text in TEXTS:
        a, b, data = fits(one, text), fits(other, text), text.encode()
        assert (both.accepts(data), either.accepts(data), rest.accepts(data)) == (a and b, a or b, a and not b), text


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("bounds", [(0, 2), (1, None), (2, 3), (3, 3), (2, None)])
def test_lengths_count_code_points(pattern: str, bounds: tuple[int, int | None]) -> None:
    """Not bytes: an emoji is one."""
    low, high = bounds
    bounded = with_length(of(pattern), low, high)
    for text in TEXTS:
        expected = fits(pattern, text) and low <= len(text) and (high is None or len(text) <= high)
        assert bounded.accepts(text.encode()) == expected, text


def test_what_accepts_nothing_is_empty() -> None:
    """Contradictions are seen, and have no expression."""
    nothing = with_length(of("a{3}"), 4, None)
    assert is_empty(nothing)
    assert not is_empty(of(""))
    assert type(expr_of(nothing)).__name__ == "Never"


def test_lengths_that_a_pattern_can_never_have() -> None:
    """An even number of characters, and exactly seven: no state leads into the dead end."""
    bounded = with_length(of("(aa)*b?"), 7, 7)
    assert bounded.accepts(b"aaaaaab")
    assert not bounded.accepts(b"aaaaaaa")
    assert bounded.states == 8  # a chain: whatever cannot be finished in seven is not begun


def test_too_large_is_an_error() -> None:
    """The bound is named."""
    with pytest.raises(MachineTooLargeError, match="20000"):
        with_length(of("(ab|cd)*"), 0, 1_000_000)


def test_only_well_formed_text() -> None:
    """The complement is taken among texts, not among bytes."""
    rest = subtract(any_text(), of("a*"))
    assert [rest.accepts(data) for data in (b"b", b"\xff", b"\xc3", "é".encode(), b"aa")] == [
        True,
        False,
        False,
        True,
        False,
    ]


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=8), st.sampled_from(PATTERNS))
def test_json_spelling_is_json_dumps(text: str, pattern: str) -> None:
    """What the automaton accepts as a value, its spelling accepts as `json.dumps` writes it."""
    expr = concat(literal('"'), json_string(expr_of(subtract(any_text(), of(pattern))), None), literal('"'))
    automaton = automaton_of(expr)
    data = json.dumps(text, ensure_ascii=False).encode()
    assert automaton.accepting[automaton.walk(START, data)] == (not fits(pattern, text))


def test_json_spelling_accepts_canonical_escapes_only() -> None:
    r"""`\u0041` and `\/` are other spellings of what stands raw."""
    automaton = automaton_of(json_string(expr_of(any_text()), None))
    accepted = [
        automaton.accepting[automaton.walk(START, text)]
        for text in (b"\\n", b"\\u0001", b"\\u0041", b"\\/", b"\n", b'"')
    ]
    assert accepted == [True, True, False, False, False, False]


def test_restricted_to_characters() -> None:
    """Texts that a vocabulary of these characters can spell."""
    machine = intersect(machine_of(search_language("é|ü")), texts_of(frozenset("aé😀")))
    accepted = [text for text in TEXTS if machine.accepts(text.encode())]
    assert accepted == [text for text in TEXTS if re.fullmatch("[aé😀]*é[aé😀]*", text)]
