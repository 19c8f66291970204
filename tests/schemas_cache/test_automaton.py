"""The lazily determinised automaton: sizes as measured, and the traps of recursion, counts and dead ends."""

from __future__ import annotations

import itertools
import re
import tracemalloc
from collections.abc import Callable

import pytest

from schemas_cache.automaton import DEAD, START, Automaton
from schemas_cache.errors import SchemaTooComplexError
from schemas_cache.finite import explore, minimize
from schemas_cache.grammar import (
    EMPTY,
    NEVER,
    Expr,
    Member,
    Ref,
    alt,
    byte_class,
    concat,
    joined,
    literal,
    mark,
    optional,
    repeat,
)
from schemas_cache.limits import Limits
from tests.schemas_cache.machines import automaton_of, pattern_automaton, texts
from tests.schemas_cache.reference_matcher import matches

A_OR_B = byte_class([(0x61, 0x62)])
MAX_BYTES = 50 * 2**20


def widest(automaton: Automaton) -> int:
    """Most configurations in one state."""
    return max(map(len, automaton.configurations))


def within_memory(work: Callable[[], Automaton]) -> Automaton:
    """Run and return, and check the peak of what was allocated."""
    tracemalloc.start()
    try:
        automaton = work()
        assert tracemalloc.get_traced_memory()[1] < MAX_BYTES
    finally:
        tracemalloc.stop()
    return automaton


@pytest.mark.parametrize(("count", "states"), [(4, 32), (8, 512), (12, 8192)])
def test_blow_up_series_is_no_larger_than_measured(count: int, states: int) -> None:
    """`(a|b)*a(a|b){n}` has 2^(n+1) states over important states only, and none of them is superfluous."""
    finite = explore(pattern_automaton(f"(a|b)*a(a|b){{{count}}}"), max_states=10_000)
    assert finite is not None
    assert finite.states == states
    assert minimize(finite).states == states


def test_two_recursive_alternatives_keep_configurations_constant() -> None:
    """Three configurations at any depth, and frames linear in it: calls made in one closure share a frame."""
    node = alt(
        concat(literal('{"a": '), Ref("node"), literal("}")),
        concat(literal('{"a": '), Ref("node"), literal(', "b": 1}')),
        literal("1"),
    )

    def work(depth: int) -> Automaton:
        automaton = automaton_of(Ref("node"), {"node": node})
        state = automaton.walk(START, b'{"a": ' * depth + b"1" + b"}" * (depth // 2) + b', "b": 1}' * (depth // 2))
        assert automaton.accepting[state]
        return automaton

    shallow, deep = within_memory(lambda: work(100)), within_memory(lambda: work(200))
    assert widest(shallow) == widest(deep) == 3
    assert len(deep.frames) - len(shallow.frames) <= 5 * 100


def test_many_overlapping_recursive_branches_stay_linear() -> None:
    """Eight branches that share their beginning and all recurse: configurations bounded by the NFA, not by 8^depth."""
    ends = [literal("}" * (i + 1)) for i in range(8)]
    node = alt(literal("1"), *(concat(literal("{"), Ref("node"), end) for end in ends))

    def work() -> Automaton:
        automaton = automaton_of(Ref("node"), {"node": node})
        assert automaton.walk(START, b"{" * 100 + b"1" + b"}" * 100) != DEAD
        return automaton

    assert widest(within_memory(work)) < 100


def test_rule_that_calls_itself_in_tail_position_adds_nothing() -> None:
    """`anyOf: [{"$ref": "#"}, 1]` is `1`: the call needs no frame, and the closure ends."""
    automaton = automaton_of(
        Ref("node"), {"node": alt(Ref("node"), literal("1"), concat(literal("["), Ref("node"), literal("]")))}
    )
    assert automaton.accepting[automaton.walk(START, b"[[[1]]]")]
    assert automaton.walk(START, b"[[1]]]") == DEAD


@pytest.mark.parametrize("closing", ["]", "}]"])
def test_deep_nesting_is_closed_exactly(closing: str) -> None:
    """A thousand levels are opened and closed; one closing too many is refused."""
    opening = "[{"[: len(closing)]
    automaton = automaton_of(Ref("v"), {"v": alt(literal("1"), concat(literal(opening), Ref("v"), literal(closing)))})
    text = opening * 1000 + "1" + closing * 1000
    assert automaton.accepting[automaton.walk(START, text.encode())]
    assert automaton.walk(START, (text + closing).encode()) == DEAD


def test_ambiguous_counts_are_intervals() -> None:
    """`(a|aa){0,800}`: at most a few configurations in each state, one frame more for each."""

    def work() -> Automaton:
        automaton = automaton_of(repeat(alt(literal("a"), literal("aa")), 0, 800))
        finite = explore(automaton, max_states=10_000)
        assert finite is not None
        assert [finite.accepts(b"a" * length) for length in (0, 799, 1600, 1601)] == [True, True, True, False]
        return automaton

    assert widest(within_memory(work)) <= 3


def test_counts_beyond_the_reach_cost_nothing() -> None:
    """`maxLength: 10000` needs as many states for a text of ten characters as `maxLength: 20` does."""
    sizes = []
    for maximum in (20, 10_000):
        automaton = automaton_of(concat(literal('"'), repeat(A_OR_B, 0, maximum), literal('"')))
        automaton.walk(START, b'"ababababab"')
        sizes.append((len(automaton), len(automaton.frames), automaton.nfa.states))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("maximum", [1999, 2000, 2001, 10_000])
def test_long_counts_are_exact(maximum: int) -> None:
    """Exactly as many as the bound says, and not one more."""
    automaton = automaton_of(repeat(A_OR_B, 0, maximum))
    assert automaton.accepting[automaton.walk(START, b"a" * maximum)]
    assert automaton.walk(START, b"a" * (maximum + 1)) == DEAD


def test_nested_counts_are_sums_not_products() -> None:
    """Bounded strings in bounded arrays in bounded arrays: 30 * 30 * 60 characters, a few hundred states visited."""
    string = concat(literal('"'), repeat(A_OR_B, 0, 60), literal('"'))
    row = concat(literal("["), repeat(string, 1, 30, literal(",")), literal("]"))
    automaton = automaton_of(concat(literal("["), repeat(row, 1, 30, literal(",")), literal("]")))
    assert automaton.nfa.states < 60
    text = b"[" + b",".join([b'["ab","ba"]'] * 30) + b"]"
    assert automaton.accepting[automaton.walk(START, text)]
    assert automaton.walk(START, text[:-1] + b",") == DEAD


def test_minimum_beyond_the_reach_is_exact() -> None:
    """`{700,}` counts up to its minimum and no further."""
    automaton = automaton_of(repeat(A_OR_B, 700, None))
    assert [automaton.accepting[automaton.walk(START, b"a" * n)] for n in (699, 700, 5000)] == [False, True, True]
    assert len(automaton.frames) <= 703


@pytest.mark.parametrize(
    ("expr", "rules"),
    [
        (Ref("n"), {"n": concat(literal('{"n": '), Ref("n"), literal("}"))}),
        (
            Ref("n"),
            {"n": alt(concat(literal("["), Ref("n"), literal("]")), concat(literal("{"), Ref("n"), literal("}")))},
        ),
        (concat(literal("a"), Ref("x")), {"x": NEVER}),
        (repeat(Ref("x"), 3, 5), {"x": concat(literal("a"), Ref("x"))}),
        (Ref("n"), {"n": Ref("m"), "m": Ref("n")}),
    ],
    ids=["requires itself", "either requires itself", "impossible part", "impossible element", "calls in a circle"],
)
def test_dead_ends_are_found_at_once(expr: Expr, rules: dict[str, Expr]) -> None:
    """What cannot reach acceptance has no state at all."""
    assert not automaton_of(expr, rules).satisfiable


def test_dead_branches_are_never_offered() -> None:
    """Beside a live branch, a branch that requires itself is not even begun."""
    rules = {"n": concat(literal('{"n": '), Ref("n"), literal("}"))}
    automaton = automaton_of(
        alt(literal("[]"), concat(literal("["), repeat(Ref("n"), 1, 3, literal(",")), literal("]"))), rules
    )
    state = automaton.walk(START, b"[")
    assert automaton.forced(START) == (b"[]", automaton.walk(state, b"]"))


@pytest.mark.parametrize("minimum", [0, 1, 2, 3])
@pytest.mark.parametrize("maximum", [3, 4, None])
@pytest.mark.parametrize(
    ("body", "separator"),
    [("a?", ""), *itertools.product(["a", "aa|a", "(a|b)b?", "(ab){1,2}"], ["", ",", ",?"])],
)
def test_repeats_agree_with_python(body: str, separator: str, minimum: int, maximum: int | None) -> None:
    """Counted repeats with separators against `re` written out by hand, over all short texts."""
    expr, between = pattern_expr(body), pattern_expr(separator) if separator else EMPTY
    automaton = automaton_of(repeat(expr, minimum, maximum, between))
    again = f"({separator}({body})){{{max(minimum - 1, 0)},{'' if maximum is None else maximum - 1}}}"
    pattern = re.compile(f"(({body}){again})" + ("?" if minimum == 0 else ""))
    for text in texts("ab," if separator else "ab", 5):
        assert automaton.accepting[automaton.walk(START, text.encode())] == bool(pattern.fullmatch(text)), text


def pattern_expr(pattern: str) -> Expr:
    """Translate a pattern of this file's own simple kind."""
    from_pattern = {
        "a": literal("a"),
        "aa|a": alt(literal("aa"), literal("a")),
        "(a|b)b?": concat(A_OR_B, optional(literal("b"))),
        "a?": optional(literal("a")),
        "(ab){1,2}": repeat(literal("ab"), 1, 2),
        ",": literal(","),
        ",?": optional(literal(",")),
    }
    return from_pattern[pattern]


@pytest.mark.parametrize(
    "required", [(True, True, True), (False, True, False), (False, False, True), (False, False, False)]
)
def test_members_agree_with_the_slow_matcher(required: tuple[bool, ...]) -> None:
    """Optional members in order, with separators exactly between those present."""
    members = [Member(literal(name), need) for name, need in zip("abc", required, strict=True)]
    expr = concat(literal("{"), joined(members, literal(",")), literal("}"))
    automaton = automaton_of(expr)
    for text in texts("abc,", 5):
        data = b"{" + text.encode() + b"}"
        assert automaton.accepting[automaton.walk(START, data)] == matches(expr, data, {}), text


def test_members_cost_linear_in_their_number() -> None:
    """Four hundred optional members, each nesting another ten: no copy of a member is made."""

    def size(count: int) -> int:
        inner = joined([Member(literal(f"i{i}"), False) for i in range(10)], literal(","))
        body = concat(literal("{"), inner, literal("}"))
        return automaton_of(
            joined([Member(concat(literal(f"m{i}"), body), False) for i in range(count)], literal(","))
        ).nfa.states

    assert size(400) < 4.5 * size(100)


def test_shortest_ways_are_shortest() -> None:
    """Breadth-first search over bytes finds no shorter text, from every state met on the way."""
    rules = {
        "v": alt(
            literal("[]"), concat(literal("["), repeat(Ref("v"), 2, 3, literal(",")), literal("]")), literal("null")
        )
    }
    automaton = automaton_of(concat(literal("<"), Ref("v"), repeat(A_OR_B, 2, 4)), rules)
    for prefix in (b"", b"<", b"<[", b"<[[],", b"<[null,[]", b"<[[],[[],n", b"<[]a"):
        state = automaton.walk(START, prefix)
        way = automaton.shortest(state)
        assert automaton.accepting[automaton.walk(state, way)]
        assert len(way) == automaton.cost(state) == breadth_first_length(automaton, state)


def breadth_first_length(automaton: Automaton, state: int) -> int:
    """Count the bytes of a shortest text, the slow way."""
    level, seen, depth = {state}, {state}, 0
    while not any(automaton.accepting[at] for at in level):
        level = {automaton.step(at, byte) for at in level for byte in range(256)} - seen - {DEAD}
        seen |= level
        depth += 1
    return depth


def test_forced_bytes_end_where_there_is_a_choice_or_an_end() -> None:
    """Literal parts are forced as a whole; a place where the text may end is never passed."""
    automaton = automaton_of(
        concat(literal('{"id": '), byte_class([(0x30, 0x39)]), literal("}"), optional(literal("!")))
    )
    assert automaton.forced(START)[0] == b'{"id": '
    assert automaton.forced(automaton.walk(START, b'{"id": 7'))[0] == b"}"
    assert automaton.forced(automaton.walk(START, b'{"id": 7}'))[0] == b""


def test_pointer_names_the_value_being_written() -> None:
    """Names are escaped, counted elements have their number, uncounted ones a star."""
    element = mark(None, alt(literal("1"), Ref("inner")))
    counted = concat(literal("["), repeat(element, 1, 3, literal(",")), literal("]"))
    uncounted = concat(literal("("), repeat(element, 1, None, literal(",")), literal(")"))
    rules = {"inner": concat(literal("{"), mark("a/b~c", literal("xyz")), literal("}"))}
    automaton = automaton_of(mark("list", alt(counted, uncounted)), rules)
    assert automaton.pointer(automaton.walk(START, b"[1,{xy")) == "/list/1/a~1b~0c"
    assert automaton.pointer(automaton.walk(START, b"(1,{xy")) == "/list/*/a~1b~0c"
    assert automaton.pointer(automaton.walk(START, b"[1,1,")) == "/list/2"


def test_state_limit_is_an_error_with_figure_and_limit() -> None:
    """Growth while decoding is bounded too."""
    automaton = automaton_of(repeat(A_OR_B, 0, 10_000))
    bounded = Automaton(automaton.nfa, automaton.alphabet, limits=Limits(max_states=100))
    with pytest.raises(SchemaTooComplexError, match="100"):
        bounded.walk(START, b"a" * 200)
