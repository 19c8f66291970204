"""The referee itself, on cases small enough to be read off the definition of each node."""

import pytest

from schemas_cache.grammar import (
    EMPTY,
    NEVER,
    Expr,
    Mark,
    Member,
    Ref,
    alt,
    byte_class,
    char_class,
    concat,
    joined,
    literal,
    repeat,
)
from tests.schemas_cache.reference_matcher import ends, matches

A, B, COMMA = literal("a"), literal("b"), literal(",")


@pytest.mark.parametrize(
    ("expr", "accepted", "rejected"),
    [
        (NEVER, [], [b"", b"a"]),
        (EMPTY, [b""], [b"a"]),
        (literal("ab"), [b"ab"], [b"", b"a", b"abc"]),
        (byte_class([(97, 98), (100, 100)]), [b"a", b"b", b"d"], [b"", b"c", b"aa"]),
        (concat(A, alt(A, B)), [b"aa", b"ab"], [b"a", b"ba", b"aab"]),
        (Mark("x", A), [b"a"], [b"", b"b"]),
    ],
)
def test_simple_nodes_match_what_they_say(expr: Expr, accepted: list[bytes], rejected: list[bytes]) -> None:
    """Each node kind without counts matches its own texts and no others."""
    assert accepted == [text for text in accepted + rejected if matches(expr, text)]


@pytest.mark.parametrize(
    ("minimum", "maximum", "accepted"),
    [(0, 0, [0]), (0, 2, [0, 1, 2]), (2, 3, [2, 3]), (1, None, [1, 2, 3, 4, 5]), (0, None, [0, 1, 2, 3, 4, 5])],
)
def test_a_repeat_counts_bodies_with_separators_between(minimum: int, maximum: int | None, accepted: list[int]) -> None:
    """`a,a,a` is three; a separator stands only between two."""
    expr = repeat(A, minimum, maximum, COMMA)
    assert accepted == [n for n in range(6) if matches(expr, b",".join([b"a"] * n))]
    assert not [text for text in (b"a,", b",a", b"aa", b",") if matches(expr, text)]


def test_a_repeat_of_ambiguous_bodies_finds_every_count() -> None:
    """`(a|aa){3}` takes three to six letters."""
    assert {3, 4, 5, 6} == ends(repeat(alt(A, literal("aa")), 3, 3), b"aaaaaaaa", 0)


def test_joined_members_keep_their_order_and_their_separators() -> None:
    """Required `b` between optional `a` and `c`: four texts."""
    expr = joined([Member(A, False), Member(B, True), Member(literal("c"), False)], COMMA)
    texts = [b"", b"a", b"b", b"c", b"a,b", b"b,c", b"a,c", b"a,b,c", b"b,a", b"ab", b"a,b,", b",b"]
    expected = [b"b", b"a,b", b"b,c", b"a,b,c"]
    assert expected == [text for text in texts if matches(expr, text)]


def test_optional_members_may_all_be_absent() -> None:
    """Without a required member the empty text matches."""
    expr = joined([Member(A, False), Member(B, False)], COMMA)
    expected = [b"", b"a", b"b", b"a,b"]
    assert expected == [t for t in (b"", b"a", b"b", b"a,b", b",") if matches(expr, t)]


def test_rules_may_refer_to_themselves_on_either_side() -> None:
    """Left recursion, right recursion and a rule that is itself or something else all have their least meaning."""
    rules = {
        "left": alt(concat(Ref("left"), B), A),
        "nested": alt(concat(literal("("), Ref("nested"), literal(")")), A),
        "self": alt(Ref("self"), A),
    }
    texts = [b"", b"a", b"abb", b"ba", b"((a))", b"((a)"]
    expected = [b"a", b"abb"]
    assert expected == [t for t in texts if matches(Ref("left"), t, rules)]
    expected = [b"a", b"((a))"]
    assert expected == [t for t in texts if matches(Ref("nested"), t, rules)]
    expected = [b"a"]
    assert expected == [t for t in texts if matches(Ref("self"), t, rules)]


def test_levels_are_kept_apart() -> None:
    """Code points are matched in strings, bytes in bytes; mixing them is an error, not a no."""
    assert matches(char_class([(0x3042, 0x3042)]), "あ")
    with pytest.raises(TypeError, match="needs a string"):
        matches(char_class([(97, 97)]), b"a")
    with pytest.raises(TypeError, match="needs bytes"):
        matches(A, "a")
