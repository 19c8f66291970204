"""Bounds on the number of characters, by each of the ways, against the referee and against the full product."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas_cache.automaton import START
from schemas_cache.finite import explore
from schemas_cache.grammar import Expr, Machine, Never, Repeat
from schemas_cache.lengths import bounded, length_range, of_length
from schemas_cache.machines import MachineTooLargeError, machine_of, trim, with_length
from schemas_cache.pattern import full_language, search_language
from schemas_cache.spelling import json_string, utf8
from tests.schemas_cache.machines import automaton_of
from tests.schemas_cache.reference_matcher import matches

TEXTS = ["".join(text) for length in range(6) for text in itertools.product('aé"', repeat=length)]
LONG = "x" * 200
COUNTABLE = ["^a*$", "^é[aé]{1,3}$", "^(a|é)*a$", "^a?$|^é+$", "^(aé)*$", "^a{2}$", "a?", '^"(aé|é"){1,2}$']
UNCOUNTABLE = ["a", "^a*é*$", "^(a|éa)*$", "^(aé)*a?$", 'a.*"$']
BOUNDS = [(0, 2), (1, None), (2, 3), (3, 3), (0, None), (5, None), (0, 0)]


def without_small_product(pattern: str, low: int, high: int | None) -> Expr:
    """The language with its bounds, over an automaton that is too large for the full product to be preferred."""
    padded = f"^(?:{LONG}|(?:{pattern}))$"
    return of_length(machine_of(full_language(padded)), low, high)


@pytest.mark.parametrize("pattern", COUNTABLE)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_counts_say_the_bounds(pattern: str, bounds: tuple[int, int | None]) -> None:
    """Where one part alone varies in length, what is left are the texts of these lengths."""
    low, high = bounds
    language = search_language(pattern)
    found = bounded(language, low, high)
    assert found is not None
    expected = [t for t in TEXTS if matches(language, t) and low <= len(t) and (high is None or len(t) <= high)]
    assert expected == [t for t in TEXTS if matches(found, t)]


def test_large_counts_cost_nothing() -> None:
    """A class that is repeated takes the bound as its count."""
    found = bounded(search_language("^[a-z]*$"), 0, 1_000_000)
    assert isinstance(found, Repeat)
    assert found.maximum == 1_000_000


@pytest.mark.parametrize("pattern", UNCOUNTABLE)
def test_counts_cannot_say_it(pattern: str) -> None:
    """Where several parts vary, or one in steps, it takes an automaton."""
    assert bounded(search_language(pattern), 0, 3) is None


@pytest.mark.parametrize("pattern", COUNTABLE + UNCOUNTABLE)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_bounds_of_an_automaton(pattern: str, bounds: tuple[int, int | None]) -> None:
    """The counted automaton accepts the texts of these lengths, as the referee counts them."""
    low, high = bounds
    language = search_language(pattern)
    found = of_length(machine_of(language), low, high)
    expected = [t for t in TEXTS if matches(language, t) and low <= len(t) and (high is None or len(t) <= high)]
    assert expected == [t for t in TEXTS if matches(found, t)]


@pytest.mark.parametrize("pattern", ["[ab]*é[ab]*", "(a|éb)*", "(aé)*a?", "a{3,}é{2,}", '("|é)*a("|é)*'])
@pytest.mark.parametrize("bounds", [(0, 40), (30, None), (35, 40), (7, 7)])
def test_counting_in_the_frame_is_the_product(pattern: str, bounds: tuple[int, int | None]) -> None:
    """The same language as the full product, and no state from which no text can be finished."""
    low, high = bounds
    counted = without_small_product(pattern, low, high)
    machine = machine_of(full_language(f"^(?:{LONG}|(?:{pattern}))$"))
    full = with_length(machine, low, high)
    explored = explore(automaton_of(utf8(counted, None)), 20_000)
    assert explored is not None
    assert explored.states == trim(explored).states
    for size in range(45):
        for text in (
            "a" * size,
            "ab" * (size // 2) + "é",
            "é" * size,
            "aé" * size,
            "aaa" + "é" * size,
            '"' * size + "a",
        ):
            assert full.accepts(text.encode()) == explored.accepts(text.encode()), text


def test_large_bounds_are_counted_in_the_frame() -> None:
    """No copy of the automaton for every count."""
    machine = machine_of(search_language(r"^\S+@\S+$"))
    found = of_length(machine, 10, 100_000)
    assert isinstance(found, Machine)
    assert found.counts is not None
    assert len(found.accepting) == machine.states + 1


def test_gaps_take_the_full_product() -> None:
    """An even number of characters, from 101 to 199: a state is kept only with a count that can be finished."""
    found = of_length(machine_of(full_language("(aé)*")), 101, 199)
    automaton = automaton_of(utf8(found, None))
    ends = [n for n in range(201) if automaton.accepting[automaton.walk(START, ("aé" * 100)[:n].encode())]]
    assert ends == list(range(102, 200, 2))


def test_gaps_beyond_the_limit_are_refused() -> None:
    """Exact or refused."""
    with pytest.raises(MachineTooLargeError):
        of_length(machine_of(full_language("(aé)*")), 10_001, 1_000_001)


def test_bounds_that_no_text_keeps() -> None:
    """They leave nothing."""
    machine = machine_of(full_language("a{3,5}"))
    assert [Never, Never] == [type(of_length(machine, 6, None)), type(of_length(machine, 0, 2))]


@settings(deadline=None, max_examples=60)
@given(st.text('aé"\n', max_size=8), st.sampled_from(COUNTABLE + UNCOUNTABLE), st.integers(0, 5), st.integers(0, 5))
def test_escapes_count_once(text: str, pattern: str, low: int, more: int) -> None:
    """Spelled as JSON, the count is still that of the value's characters."""
    counted = of_length(machine_of(search_language(pattern)), low, low + more)
    automaton = automaton_of(json_string(counted, None))
    spelled = text.replace('"', '\\"').replace("\n", "\\n").encode()
    expected = matches(search_language(pattern), text) and low <= len(text) <= low + more
    assert expected == automaton.accepting[automaton.walk(START, spelled)]


@pytest.mark.parametrize(
    ("pattern", "lengths"),
    [("^a{2,5}$", (2, 5)), ("^(a|bc)*$", (0, None)), ("^a?(bb|ccc)$", (2, 4)), ("^$", (0, 0)), ("a", (1, None))],
)
def test_range_of_lengths(pattern: str, lengths: tuple[int, int | None]) -> None:
    """Read off the expression."""
    assert lengths == length_range(search_language(pattern))
