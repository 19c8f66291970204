"""Members with counts and members in any order, against the slow matcher, and the traps of both."""

from __future__ import annotations

import itertools

import pytest

from schemas_cache.automaton import DEAD, START, Automaton
from schemas_cache.codec import pack, unpack
from schemas_cache.finite import explore
from schemas_cache.grammar import NEVER, Expr, Member, alt, byte_class, concat, joined, literal, mark, picks, repeat
from schemas_cache.matcher import Matcher
from schemas_cache.schema.members import Members, together
from schemas_cache.snapshot import capture, restore
from schemas_cache.token_index import token_index
from tests.schemas_cache.machines import automaton_of, awkward_vocabulary, texts, tokens_of
from tests.schemas_cache.reference_matcher import matches

COMMA = literal(",")
OTHER = byte_class([(0x78, 0x79)])  # x or y
BOUNDS = [(0, None), (1, None), (2, None), (0, 1), (1, 2), (2, 2), (3, 4), (0, 3)]
NEEDS = [(True, False, True), (False, False, False), (True, True, True), (False, True, False)]


def members(needs: tuple[bool, ...]) -> list[Member]:
    """Members a, b, c, of which these are required."""
    return [Member(literal(name), need) for name, need in zip("abc", needs, strict=False)]


def accepts(automaton: Automaton, text: str) -> bool:
    """Whether a whole text is accepted."""
    return automaton.accepting[automaton.walk(START, text.encode())]


def never_stuck(automaton: Automaton) -> None:
    """From every state that bytes reach, some bytes lead to acceptance."""
    finite = explore(automaton, 20_000)
    assert finite is not None
    alive = finite.accepting.copy()
    while (more := alive | alive[finite.next_state].any(axis=1)).sum() > alive.sum():
        alive = more
    assert alive[1:].all() or not automaton.satisfiable


@pytest.mark.parametrize("build", [joined, picks])
@pytest.mark.parametrize("needs", NEEDS)
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("more", [NEVER, OTHER], ids=["closed", "open"])
def test_agrees_with_the_slow_matcher(
    build: object, needs: tuple[bool, ...], bounds: tuple[int, int], more: Expr
) -> None:
    """Every text of up to four members, written well and badly; and no state is a dead end."""
    expr = concat(literal("{"), build(members(needs), COMMA, more, *bounds), literal("}"))  # type: ignore[operator]
    automaton = automaton_of(expr)
    for count in range(5):
        for names in itertools.product("abcx", repeat=count):
            for text in {",".join(names), "".join(names), ",".join(names) + ","}:
                data = "{" + text + "}"
                assert accepts(automaton, data) == matches(expr, data.encode()), data
    if bounds[1] is not None or build is joined or more == NEVER:
        never_stuck(automaton)


@pytest.mark.parametrize("build", [joined, picks])
def test_shortest_way_has_as_many_as_there_have_to_be(build: object) -> None:
    """Where the number of members counts, the way is still a shortest one."""
    long, short = Member(literal("long"), False), Member(literal("s"), False)
    expr = concat(literal("{"), build([long, short], COMMA, literal("xx"), 3, None), literal("}"))  # type: ignore[operator]
    automaton = automaton_of(expr)
    assert len(automaton.shortest(START)) == len("{s,xx,xx}")
    assert accepts(automaton, automaton.shortest(START).decode())


def test_any_order_of_many_members_costs_what_is_written() -> None:
    """Two hundred members have 200! orders; one of them visits a few states for each member."""
    many = [Member(literal(f'"m{i}":1'), required=i % 2 == 0) for i in range(200)]
    automaton = automaton_of(concat(literal("{"), picks(many, COMMA), literal("}")))
    text = "{" + ",".join(f'"m{i}":1' for i in reversed(range(200))) + "}"
    assert accepts(automaton, text)
    assert not accepts(automaton, text.replace('"m7"', '"m8"'))
    assert len(automaton) < 20 * 200


def test_a_name_that_begins_another_is_told_apart() -> None:
    """Members whose texts begin alike are open side by side until they differ."""
    automaton = automaton_of(picks([Member(literal(name), True) for name in ("a", "ab", "abc")], COMMA))
    assert [accepts(automaton, text) for text in ("abc,a,ab", "a,ab,abc", "a,a,ab", "ab,abc")] == [
        True,
        True,
        False,
        False,
    ]


def test_nested_members_keep_their_own_sets() -> None:
    """A member inside a member may be written again."""
    inner = concat(literal("("), picks(members((True, True)), COMMA), literal(")"))
    automaton = automaton_of(
        picks([Member(concat(literal("a"), inner), True), Member(concat(literal("b"), inner), True)], COMMA)
    )
    assert accepts(automaton, "b(a,b),a(b,a)")
    assert not accepts(automaton, "b(a,a),a(b,a)")


def test_pointer_of_picked_elements_is_their_number() -> None:
    """The third element of an array of distinct ones is number two."""
    choices = [Member(mark(None, literal(name)), False) for name in ("one", "two", "three")]
    automaton = automaton_of(concat(literal("["), picks(choices, COMMA, NEVER, 1, 3), literal("]")))
    assert automaton.pointer(automaton.walk(START, b"[two,three,on")) == "/2"


@pytest.mark.parametrize("build", [joined, picks])
def test_restored_tables_go_on(build: object) -> None:
    """Counts and sets survive a round trip through bytes in the middle of a text."""
    expr = concat(literal("{"), build(members((False, True, True)), COMMA, OTHER, 2, 4), literal("}"))  # type: ignore[operator]
    vocabulary = awkward_vocabulary()
    tokens = tokens_of(automaton_of(expr), vocabulary)
    for text in (b"{b,c,x}", b"{a,b,c,x}", b"{b,c"):
        Matcher(tokens).advance_bytes(text)
    again = restore(*unpack(pack(*capture(tokens))), token_index(vocabulary))
    for text in texts("abcx,", 4):
        data = b"{b," + text.encode() + b"}"
        one, other = tokens.automaton.walk(START, data), again.automaton.walk(START, data)
        assert (one == DEAD, tokens.automaton.accepting[one]) == (other == DEAD, again.automaton.accepting[other])


def test_counted_members_of_a_thousand_are_linear() -> None:
    """One copy of each member, whatever the bounds."""
    sizes = []
    for count in (250, 1000):
        each = [Member(literal(f"m{i};"), False) for i in range(count)]
        sizes.append(automaton_of(joined(each, COMMA, NEVER, 2, count - 1)).nfa.states)
    assert sizes[1] < 4.5 * sizes[0]


def test_repeats_inside_members_count_apart() -> None:
    """A counted repeat in a counted member has a frame of its own."""
    body = concat(literal("<"), repeat(alt(literal("1"), literal("22")), 2, 3), literal(">"))
    automaton = automaton_of(joined([Member(body, False), Member(body, False)], COMMA, body, 2, 3))
    assert [accepts(automaton, text) for text in ("<11>,<122>", "<11>", "<11>,<1>", "<11>,<11>,<11>,<11>")] == [
        True,
        False,
        False,
        False,
    ]


def test_shortest_way_through_members_in_any_order_tries_no_orders() -> None:
    """Twenty of forty members have to come: the search goes straight on, and the cost is exact once it has begun."""
    many = [Member(literal(f'"m{i}": {"9" * (i % 7 + 1)}'), required=i % 2 == 0) for i in range(40)]
    automaton = automaton_of(concat(literal("{"), picks(many, literal(", "), literal("x"), 30), literal("}")))
    way = automaton.shortest(START)
    assert accepts(automaton, way.decode())
    assert len(way) - 1 == automaton.cost(automaton.walk(START, b"{"))
    assert len(automaton) < 3_000


@pytest.mark.parametrize(("low", "possible"), [(3, True), (4, True), (5, False), (10**40, False)])
def test_a_minimum_of_different_keys(low: int, possible: bool) -> None:
    """Two declared members and two keys that are apart are four; more there cannot be, however many are asked for."""
    apart = [byte_class([(0x78, 0x78)]), byte_class([(0x79, 0x79)])]
    some = Members(members((False, False)), [], OTHER, COMMA, any_order=False, parts=apart)
    assert possible is (together(some, low, None) != NEVER)
