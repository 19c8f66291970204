"""The complement of a set of names."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas_cache.schema.names import names_other_than, nesting
from tests.schemas_cache.reference_matcher import matches

WORDS = st.text("ab日", max_size=6)


@given(st.lists(WORDS, max_size=8), WORDS)
def test_every_string_but_the_names(names: list[str], word: str) -> None:
    """A string is in the complement exactly if it is none of the names."""
    others = names_other_than(names)
    for candidate in (word, *names, *(name[:-1] for name in names), *(name + "a" for name in names)):
        assert (candidate not in names) == matches(others, candidate)


def test_all_short_strings() -> None:
    """With names that begin with each other, every string up to four letters is judged rightly."""
    names = {"", "a", "ab", "abba", "bb"}
    words = {"".join(letters) for size in range(5) for letters in itertools.product("ab", repeat=size)}
    assert words - names == {word for word in words if matches(names_other_than(names), word)}


def test_a_long_name_is_no_deep_expression() -> None:
    """The expression of a name of 3,000 characters can be matched by recursion."""
    others = names_other_than(["x" * 3000])
    assert [matches(others, "x" * length) for length in (2999, 3000, 3001)] == [True, False, True]


@pytest.mark.parametrize(
    ("expected", "names"),
    [(0, []), (1, ["a", "b", "c"]), (3, ["a", "ab", "abc", "b"]), (2, ["", "b"])],
)
def test_nesting_counts_names_that_begin_with_each_other(expected: int, names: list[str]) -> None:
    """The longest chain of names, each a beginning of the next."""
    assert expected == nesting(names)
