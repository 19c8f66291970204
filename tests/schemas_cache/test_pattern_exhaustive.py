"""Every small pattern over two letters against Python's `re`, on every short string."""

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache

import pytest

from schemas_cache.pattern import full_language, search_language
from tests.schemas_cache.reference_matcher import matches

ATOMS = ("a", "b", ".", "^", "$")
COUNTS = ("*", "+", "?", "{2}", "{1,2}", "{2,}", "{0}")


@lru_cache(maxsize=16)
def patterns(size: int) -> tuple[str, ...]:
    """All patterns of `size` nodes; groups are written wherever they might matter."""
    if size == 1:
        return ATOMS
    return tuple(dict.fromkeys(_larger(size)))


def _larger(size: int) -> Iterator[str]:
    for inner in patterns(size - 1):
        # Python refuses to repeat a bare anchor, and so does ECMA-262
        yield from (f"({inner}){count}" for count in COUNTS)
    for left in range(1, size - 1):
        for one, other in itertools.product(patterns(left), patterns(size - 1 - left)):
            yield f"(?:{one}|{other})"
            yield f"{one}{other}"


def short_texts(longest: int) -> list[str]:
    """All strings over `ab` up to a length."""
    return ["".join(letters) for size in range(longest + 1) for letters in itertools.product("ab", repeat=size)]


@pytest.mark.parametrize(("size", "longest"), [(1, 6), (2, 6), (3, 5), (4, 3)])
def test_every_small_pattern_agrees_with_re(size: int, longest: int) -> None:
    """`search_language` is `re.search` and `full_language` is `re.fullmatch`, anchors and all."""
    texts = short_texts(longest)
    wrong = []
    for pattern in patterns(size):
        # In Python `$` also matches before a final newline; no text here has one.
        compiled = re.compile(pattern)
        searched, full = search_language(pattern), full_language(pattern)
        wrong += [("search", pattern, t) for t in texts if matches(searched, t) != bool(compiled.search(t))]
        wrong += [("full", pattern, t) for t in texts if matches(full, t) != bool(compiled.fullmatch(t))]
    assert not wrong


ANCHORED = ("a", "^", "$", "(^|a)", "(a|$)", "(^|b|$)", "a*", "(^a|b){1,2}", "(b|a$)*", "(^|ab?|$){2}")


def test_every_short_row_of_optional_anchors_agrees_with_re() -> None:
    """Up to three pieces in a row, each of which may need the start, the end, both or neither."""
    texts = short_texts(3)
    wrong = []
    for row in (row for size in range(4) for row in itertools.product(ANCHORED, repeat=size)):
        pattern = "".join(row)
        compiled, found = re.compile(pattern), full_language(pattern)
        wrong += [(pattern, t) for t in texts if matches(found, t) != bool(compiled.fullmatch(t))]
    assert not wrong
