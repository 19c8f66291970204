"""Patterns: a table of what matches, the table of what is refused, and bounds."""

import tomllib
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas_cache.anchors import ANY_TEXT
from schemas_cache.code_points import ANY, CATEGORIES, DIGIT, SPACE, binary_property, category, complement, scalars
from schemas_cache.errors import PatternError
from schemas_cache.grammar import NEVER, Alt, CharClass, Concat, Expr, Repeat, alt, char_class, concat, repeat
from schemas_cache.pattern import MAX_COUNT_DIGITS, MAX_NESTING, full_language, search_language
from tests.schemas_cache.reference_matcher import matches

TABLE = tomllib.loads((Path(__file__).parents[1] / "data/regex/patterns.toml").read_text(encoding="utf-8"))
A, B = char_class([(0x61, 0x61)]), char_class([(0x62, 0x62)])


def size(expr: Expr) -> int:
    """Number of nodes, counted as a tree."""
    match expr:
        case Concat(parts):
            return 1 + sum(map(size, parts))
        case Alt(choices):
            return 1 + sum(map(size, choices))
        case Repeat(body):
            return 1 + size(body)
        case _:
            return 1


def has(ranges: tuple[tuple[int, int], ...], char: str) -> bool:
    """Whether a character is in the ranges."""
    return any(low <= ord(char) <= high for low, high in ranges)


@pytest.mark.parametrize("case", TABLE["pattern"], ids=lambda case: str(case["about"]))
def test_patterns_match_where_ecma_262_says(case: dict[str, Any]) -> None:
    """Each row of the table: the values in which the pattern matches somewhere."""
    found = search_language(case["regex"])
    texts = case["accepts"] + case["rejects"]
    assert case["accepts"] == [text for text in texts if matches(found, text)]


@pytest.mark.parametrize("case", TABLE["refused"], ids=lambda case: str(case["regex"]))
def test_what_cannot_be_enforced_is_refused_by_name_and_place(case: dict[str, Any]) -> None:
    """Reason, construct and position (in code points) of every refusal."""
    with pytest.raises(PatternError) as caught:
        search_language(case["regex"])
    error = caught.value
    expected = (case["reason"], case["construct"], case["position"])
    assert expected == (error.reason, error.construct, error.position)


@pytest.mark.parametrize("regex", ["(?=a)", r"\bx", r"(a)\1", r"\p{sc=Han}", r"\A", "a{,2}", "(?i)a", "[[:digit:]]"])
def test_a_refusal_of_another_dialect_says_what_to_write_instead(regex: str) -> None:
    """Whoever wrote a construct that we refuse gets a hint."""
    with pytest.raises(PatternError) as caught:
        full_language(regex)
    assert caught.value.hint


@given(st.text(st.sampled_from(r"ab01-_(?:<=!>)[]{},|^$*+.\dwWpPuxck=LDé" + "\ud83d😀"), max_size=12))
def test_any_text_is_a_pattern_or_a_pattern_error(regex: str) -> None:
    """No other exception, and the place of a fault lies in the pattern."""
    fault = None
    try:
        search_language(regex)
    except PatternError as error:
        fault = error
    if fault is not None:
        assert 0 <= fault.position < len(regex)
        assert regex.startswith(fault.construct, fault.position)


@given(st.text(st.characters(codec="utf-8"), max_size=8))
def test_escaped_text_matches_itself(text: str) -> None:
    """Every character by its code, and nothing beside."""
    escaped = "".join(f"\\u{{{ord(char):x}}}" for char in text)
    assert concat(*(char_class([(ord(char), ord(char))]) for char in text)) == full_language(escaped)


def test_the_whole_language_ignores_what_stands_beside() -> None:
    """`full_language` is the pattern itself, `search_language` puts any text around it."""
    assert concat(A, B) == full_language("ab")
    assert concat(ANY_TEXT, A, B, ANY_TEXT) == search_language("ab")
    assert concat(A, B) == search_language("^ab$")


def test_counts_stay_counts() -> None:
    """A bound in the millions is one node, with anchors beside it too."""
    assert repeat(A, 3, 5_000_000) == search_language("^a{3,5000000}$")
    assert alt(repeat(A, 2, 10**9), concat(B, repeat(A, 1, 10**9 - 1))) == full_language("(a|^b){2,1000000000}")


def test_a_count_beyond_any_text_is_refused() -> None:
    """Sixteen digits and five thousand are refused alike, by name."""
    assert repeat(A, 10**14, None) == full_language(f"a{{{10**14},}}")
    for digits in (MAX_COUNT_DIGITS + 1, 5000):
        with pytest.raises(PatternError, match="digits"):
            full_language("a{0," + "9" * digits + "}")


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        ("(a*)*", repeat(A, 0, None)),
        ("((a+)+)+", repeat(A, 1, None)),
        ("(a?b*)*", repeat(alt(A, B), 0, None)),
        ("(?:a{0,3}|b)+", repeat(alt(A, B), 0, None)),
        ("(a{2})*", repeat(repeat(A, 2, 2), 0, None)),
        ("(ab?)*", repeat(concat(A, repeat(B, 0, 1)), 0, None)),
    ],
)
def test_unbounded_repeats_of_optional_parts_are_flat(regex: str, expected: Expr) -> None:
    """Nested stars cost no states and make no ambiguity."""
    assert expected == full_language(regex)


def test_impossible_patterns_are_never() -> None:
    """Nothing to match: no character, or an anchor where it cannot hold."""
    for regex in ("[]", "a^", "$a", r"\uDC00", "a[]b", "(?:^a){2}"):
        assert NEVER == search_language(regex)


@pytest.mark.parametrize("opening", ["(", "(?:a|", "(a*", "(^|", "(x?"])
@pytest.mark.parametrize("closing", [")", ")?", ")*", "){2,5}"])
def test_nesting_up_to_the_bound_is_read_and_beyond_it_refused(opening: str, closing: str) -> None:
    """At the bound there is an answer; beyond it a `PatternError` at the first group too deep, no `RecursionError`."""
    assert isinstance(search_language(opening * MAX_NESTING + "a" + closing * MAX_NESTING), Expr)
    with pytest.raises(PatternError, match="nested") as caught:
        search_language(opening * 5000 + "a" + closing * 5000)
    assert len(opening) * MAX_NESTING == caught.value.position


def test_long_patterns_stay_linear() -> None:
    """Ten thousand characters, classes and alternatives are as many nodes."""
    assert 10_001 == size(full_language("ab" * 5000))
    assert size(full_language("|".join(f"x{i}" for i in range(2000)))) < 15_000
    assert size(full_language("(" + "a?" * 1000 + ")*")) < 10


@pytest.mark.parametrize("piece", ["(^|a)", "(a|$)", "(^|a|$)"])
def test_long_rows_of_optional_anchors_stay_small(piece: str) -> None:
    """Five hundred pieces: n log n nodes at most, and no recursion as deep as the row is long."""
    assert size(full_language(piece * 500)) < 500 * 9 * 4


def test_bounded_repeats_of_empty_parts_at_every_level_are_bounded() -> None:
    """Ten levels that may each be empty in two ways are read; a hundred are refused by name, not after 2**100 steps."""
    assert size(full_language("(a*" * 10 + "){0,5}" * 10)) < 20_000
    with pytest.raises(PatternError, match="too many ways"):
        full_language("(a*" * 100 + "){0,5}" * 100)


def test_a_large_choice_beside_optional_anchors_is_read() -> None:
    """Four variants of two thousand words are within what a pattern of that length may grow to."""
    words = "|".join(f"word{i}" for i in range(2000))
    assert matches(search_language(f"(^|,)({words})($|,)"), "x,word77")


def test_optional_anchors_at_every_level_are_bounded() -> None:
    """Twenty levels that each may be first, last or both are read; a hundred are refused by name."""
    assert size(full_language("(?:^a|b$|" * 20 + "x" + ")+" * 20)) < 3_000
    with pytest.raises(PatternError, match="too many ways"):
        full_language("(?:^a|b$|" * 100 + "x" + ")+" * 100)


@pytest.mark.parametrize("name", ["Lu", "Letter", "Cn", "LC", "P", "Zs", "Cs", "digit"])
def test_general_categories_are_those_of_the_standard_library(name: str) -> None:
    """Character by character, over a sample of every plane."""
    short = CATEGORIES[name]
    wanted = {"Lu", "Ll", "Lt"} if short == "LC" else {c for c in CATEGORIES.values() if c.startswith(short)}
    for point in [*range(0x3000), *range(0xD7F0, 0xD800), *range(0xE000, 0x110000, 97)]:
        assert (unicodedata.category(chr(point)) in wanted) == has(category(name), chr(point))


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("Any", "a\n😀", ""),
        ("ASCII", "a\x7f", "\x80é"),
        ("Assigned", "aé日", "\u0378\uffff"),
        ("AHex", "09afAF", "gG０"),
        ("Upper", "AⒶÉ", "aªǅ"),
        ("Lowercase", "aªⓐ", "AǅⒶ"),
        ("Cased", "aAªǅⒶ", "日1"),
        ("space", " \t\u0085\u3000", "\ufeff\u200b\u001c"),
        ("XIDS", "a日", "_1-"),
        ("XID_Continue", "a日_1\u0301", "-$"),
    ],
)
def test_binary_properties(name: str, inside: str, outside: str) -> None:
    """Characters on both sides of each property, the ones that similar properties get wrong among them."""
    ranges = binary_property(name)
    assert inside == "".join(char for char in inside + outside if has(ranges, char))


@given(st.lists(st.tuples(st.integers(0, 0x10FFFF), st.integers(0, 0x10FFFF)).map(lambda p: (min(p), max(p)))))
def test_a_complement_has_what_the_ranges_have_not(ranges: list[tuple[int, int]]) -> None:
    """Each scalar value is on one side; surrogates are on neither."""
    inside, outside = scalars(ranges), complement(ranges)
    for point in {near for low, high in ranges for near in (low - 1, low, high, high + 1)} | {
        0,
        0xD7FF,
        0xD800,
        0xE000,
    }:
        if 0 <= point <= 0x10FFFF:
            expected = any(low <= point <= high for low, high in ranges)
            is_scalar = not 0xD800 <= point <= 0xDFFF
            assert (expected and is_scalar, not expected and is_scalar) == (
                has(inside, chr(point)),
                has(outside, chr(point)),
            )


def test_sets_and_their_complements_cover_everything() -> None:
    r"""`[\d\D]` and `[^]` are the class of all characters."""
    assert CharClass(ANY) == full_language(r"[\d\D]") == full_language("[^]") == full_language(r"[\s\S]")
    assert CharClass(complement((*DIGIT, *SPACE))) == full_language(r"[^\d\s]")


def test_halves_of_a_pair_in_the_pattern_are_one_character() -> None:
    """A Python string may hold surrogates as two code points; ECMA-262 reads one character."""
    assert full_language("😀") == full_language("\ud83d\ude00")
    assert NEVER == full_language("\ud83d")
