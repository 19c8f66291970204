"""The bound on an automaton's size, against exploring it."""

from __future__ import annotations

import pytest

from schemas_cache.finite import explore
from schemas_cache.grammar import Expr, Ref, alt, concat, literal, repeat
from schemas_cache.size import INFINITELY_MANY, least_states
from tests.schemas_cache.machines import automaton_of

A = literal("a")
RULES: dict[str, Expr] = {
    "list": alt(A, concat(literal("["), Ref("list"), literal("]"))),
    "one": concat(literal("<"), Ref("leaf"), literal(">")),
    "leaf": A,
    "even": alt(A, concat(literal("e"), Ref("odd"), literal("e"))),
    "odd": concat(literal("o"), Ref("even"), literal("o")),
}


@pytest.mark.parametrize("expr", [Ref("list"), Ref("even"), concat(A, repeat(Ref("list"), 0, 3))])
def test_recursion_is_infinite(expr: Expr) -> None:
    """Directly, through another rule, and inside a count."""
    assert least_states(automaton_of(expr, RULES).nfa) == INFINITELY_MANY


@pytest.mark.parametrize(
    "expr", [A, repeat(A, 0, 700), repeat(A, 700, None), concat(Ref("one"), repeat(Ref("one"), 3, 9)), Ref("leaf")]
)
def test_bound_is_not_above_the_truth(expr: Expr) -> None:
    """What can be explored has at least as many states."""
    automaton = automaton_of(expr, RULES)
    finite = explore(automaton, 10_000)
    assert finite is not None
    assert least_states(automaton.nfa) <= finite.states
