"""All strings but some: the edges, against the same language made from classes of characters and minimised."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas_cache.automaton import START
from schemas_cache.finite import FiniteAutomaton, explore, minimize
from schemas_cache.machines import trim
from schemas_cache.schema.names import ANY_TEXT, names_other_than
from schemas_cache.spelling import json_string, other_string
from tests.schemas_cache.machines import automaton_of

NAMES = st.lists(st.text(st.sampled_from('abé級😀\x01\n"\\\x1f /u0'), max_size=4), max_size=6)


def smallest(automaton: object) -> FiniteAutomaton:
    """The smallest automaton of what a lazy one accepts; equal languages over equal classes look equal."""
    finite = explore(automaton, 4_000)  # type: ignore[arg-type]  # always an Automaton
    assert finite is not None
    return minimize(trim(finite))


def by_byte(finite: FiniteAutomaton) -> np.ndarray:
    """Transitions over bytes, whatever the classes."""
    return finite.next_state[:, finite.alphabet.class_of]


@settings(deadline=None)
@given(NAMES)
def test_is_every_string_but_these(names: list[str]) -> None:
    """The same language, state by state, as the classes of characters give."""
    expected = smallest(automaton_of(json_string(names_other_than(names), None)))
    found = smallest(automaton_of(other_string(names)))
    np.testing.assert_array_equal(by_byte(expected), by_byte(found))
    np.testing.assert_array_equal(expected.accepting, found.accepting)


def test_none_excluded_is_all_text() -> None:
    """Without names it is any canonical text."""
    expected = smallest(automaton_of(json_string(ANY_TEXT, None)))
    np.testing.assert_array_equal(by_byte(expected), by_byte(smallest(automaton_of(other_string(())))))


@pytest.mark.parametrize("name", ["a", "級", "\x01", '"', "ab", "😀😀"])
def test_an_excluded_text_goes_on(name: str) -> None:
    """The name itself is no match; its beginnings and what is longer are."""
    automaton = automaton_of(other_string([name]))
    for text, expected in ((name, False), (name[:-1], True), (name + "x", True), (name + name, True)):
        inside = json.dumps(text, ensure_ascii=False).encode()[1:-1]
        assert expected == automaton.accepting[automaton.walk(START, inside)]
