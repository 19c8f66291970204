"""Integers between bounds, against counting and against comparison."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas_cache.grammar import Alt, Concat, Expr, Repeat
from schemas_cache.schema.integers import integer_range, integers
from tests.schemas_cache.reference_matcher import matches

HUGE = st.integers(-(10**60), 10**60)


@pytest.mark.parametrize("low", [None, *range(-23, 24, 2)])
def test_small_windows_are_exact(low: int | None) -> None:
    """Every window between -23 and 121 holds exactly the integers that counting gives."""
    for high in (None, *range(-22, 122, 3)):
        window = integers(low, high)
        expected = [n for n in range(-130, 131) if (low is None or n >= low) and (high is None or n <= high)]
        assert expected == [n for n in range(-130, 131) if matches(window, str(n).encode())], (low, high)


@pytest.mark.parametrize("text", ["-0", "00", "01", "-01", "", "-", "+1", "1.0", "1e3"])
def test_other_spellings_are_not_integers(text: str) -> None:
    """Integers are written as plain digits only."""
    assert not matches(integers(None, None), text.encode())


@given(HUGE, HUGE, HUGE, st.sampled_from([-1, 0, 1]))
def test_huge_bounds_are_exact(low: int, high: int, value: int, step: int) -> None:
    """A value is in the window exactly if it compares so, next to the bounds too."""
    low, high = min(low, high), max(low, high)
    window = integers(low, high)
    for candidate in (value, low + step, high + step):
        assert (low <= candidate <= high) == matches(window, str(candidate).encode())


def test_expressions_grow_linearly_with_digits() -> None:
    """Twice the digits give at most about twice the nodes, and a nesting of their logarithm."""
    bounds = [("3141592653" * count, "2718281828" * 2 * count) for count in (8, 16)]
    small, large = (integers(int(low), int(high)) for low, high in bounds)
    assert size(large) < 2.2 * size(small)
    assert depth(large) < 30


@pytest.mark.parametrize(
    ("expected", "bounds"),
    [
        ((4, None), [("minimum", 3.5)]),
        ((4, None), [("exclusiveMinimum", 3)]),
        ((4, None), [("exclusiveMinimum", 3.5)]),
        ((-3, None), [("minimum", -3.5)]),
        ((None, 3), [("maximum", 3.5)]),
        ((None, 2), [("exclusiveMaximum", 3)]),
        ((None, 3), [("exclusiveMaximum", 3.5)]),
        ((2**53 + 1, None), [("exclusiveMinimum", 2**53)]),
        ((5, 1000), [("minimum", 2), ("minimum", 5), ("maximum", 1e3), ("exclusiveMaximum", 2000)]),
    ],
)
def test_tightest_bounds_count(expected: tuple[int | None, int | None], bounds: list[tuple[str, float]]) -> None:
    """Fractional, exclusive and repeated bounds come down to the least and greatest integer."""
    assert expected == integer_range((keyword, Fraction(value)) for keyword, value in bounds)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The parts of an expression over digits."""
    match expr:
        case Concat(parts) | Alt(parts):
            return parts
        case Repeat(body):
            return (body,)
        case _:
            return ()


def size(expr: Expr) -> int:
    """Number of nodes."""
    return 1 + sum(map(size, children(expr)))


def depth(expr: Expr) -> int:
    """Levels of nodes inside each other."""
    return 1 + max(map(depth, children(expr)), default=0)
