"""Languages of keys, against patterns and names one by one."""

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas_cache.machines import any_text
from schemas_cache.schema.keys import by_first_character, expression, kinds, listed, tree, without
from schemas_cache.schema.strings import pattern_machine
from tests.schemas_cache.reference_matcher import matches

WORDS = ["".join(letters) for size in range(4) for letters in itertools.product('a"日', repeat=size)]
PATTERNS = ["^a", "日$", "a|日", "^(a|日)?$", '"']


@given(st.lists(st.sampled_from(PATTERNS), max_size=4, unique=True))
@settings(max_examples=30, deadline=None)
def test_each_key_is_of_the_kind_of_its_patterns(patterns: list[str]) -> None:
    """Kinds are disjoint and complete, and say which patterns their keys match."""
    for word in WORDS:
        expected = {pattern for pattern in patterns if re.search(pattern, word)}
        found = [kind.matched for kind in kinds(tuple(patterns)) if kind.keys.accepts(word.encode())]
        assert [expected] == found


@given(st.lists(st.sampled_from(WORDS), max_size=6), st.sampled_from([".*", *PATTERNS]))
@settings(max_examples=60, deadline=None)
def test_names_are_taken_out(names: list[str], pattern: str) -> None:
    """What is left is spelled by the same expression, with its free tail cut off."""
    keys = without(pattern_machine(pattern), names)
    left = expression(keys)
    for word in WORDS:
        expected = re.search(pattern, word) is not None and word not in names
        assert (expected, expected) == (keys.accepts(word.encode()), matches(left, word))


@given(st.lists(st.sampled_from(WORDS), max_size=6))
def test_a_tree_accepts_its_names(names: list[str]) -> None:
    """These names and no others; listed again, shorter ones first."""
    machine = tree(names)
    assert set(names) == {word for word in WORDS if machine.accepts(word.encode())}
    assert sorted(set(names), key=lambda name: (len(name.encode()), name.encode())) == listed(machine)


@pytest.mark.parametrize("pattern", [".*", "^a", "日$", "^[a-z]{2}$", "^b*$"])
def test_languages_of_many_keys_are_not_listed(pattern: str) -> None:
    """Infinite ones, and finite ones that are large."""
    assert listed(pattern_machine(pattern)) is None


def test_parts_by_first_character_never_share_a_key() -> None:
    """Every key is in exactly one part, the empty one too."""
    parts = by_first_character(any_text())
    assert all(sum(part.accepts(word.encode()) for part in parts) == 1 for word in [*WORDS, "b", "\n", "~é"])
