"""Exploring, minimising, and the same answers from every machine as from Python's `re`."""

from __future__ import annotations

import re

import pytest

from schemas_cache.automaton import START
from schemas_cache.finite import FiniteAutomaton, explore, minimize
from schemas_cache.grammar import Ref, alt, concat, literal
from tests.schemas_cache.machines import automaton_of, pattern_automaton, texts

SIZES = range(1, 5)
TEXTS = list(texts("ab", 6))


def patterns(size: int) -> list[str]:
    """All patterns over `a`, `b`, `.` with this many leaves and operators, without superfluous brackets."""
    if size == 1:
        return ["a", "b", "."]
    unary = [f"(?:{inner}){op}" for inner in patterns(size - 1) for op in ("*", "+", "?", "{2}", "{1,3}")]
    pairs = [(left, right) for k in range(1, size - 1) for left in patterns(k) for right in patterns(size - 1 - k)]
    return unary + [f"(?:{left}){right}" for left, right in pairs] + [f"(?:{left}|{right})" for left, right in pairs]


@pytest.mark.parametrize("size", SIZES)
def test_every_small_pattern_agrees_with_python(size: int) -> None:
    """Lazy, whole and minimised automata, over all texts of `a` and `b` up to length six."""
    for pattern in patterns(size):
        automaton, referee = pattern_automaton(pattern), re.compile(pattern)
        finite = explore(automaton, 1_000)
        assert finite is not None
        smallest = minimize(finite)
        assert smallest.states <= finite.states
        for text in TEXTS:
            data, expected = text.encode(), bool(referee.fullmatch(text))
            lazy = automaton.accepting[automaton.walk(START, data)]
            assert (lazy, finite.accepts(data), smallest.accepts(data)) == (expected,) * 3, (pattern, text)


def test_equal_languages_minimise_to_equal_automata() -> None:
    """Three spellings of one language look the same afterwards."""
    automata = [explore(pattern_automaton(pattern), 100) for pattern in ("(a|b)*ab?", "(b*a)+b?|(b*a)+", "b*(ab*)*ab?")]
    shown = [shape(minimize(finite)) for finite in automata if finite is not None]
    assert len(shown) == 3
    assert shown[0] == shown[1] == shown[2]


def shape(finite: FiniteAutomaton) -> tuple[list[list[int]], list[bool]]:
    """Transitions on `a` and `b`, and which states accept."""
    letters = [int(finite.alphabet.class_of[ord(letter)]) for letter in "ab"]
    return finite.next_state[:, letters].tolist(), finite.accepting.tolist()


def test_recursion_is_not_finite() -> None:
    """Exploring says so instead of going on."""
    assert (
        explore(automaton_of(Ref("v"), {"v": alt(literal("1"), concat(literal("["), Ref("v"), literal("]")))}), 500)
        is None
    )
