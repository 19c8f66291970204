"""Dumps of each stage, as a reader sees them, and Graphviz that is well formed."""

from __future__ import annotations

import re

from schemas_cache.finite import explore, minimize
from schemas_cache.grammar import Grammar, Member, Ref, alt, byte_class, concat, joined, literal, mark, repeat
from schemas_cache.show import show_dfa, show_grammar, show_nfa
from schemas_cache.thompson import build_nfa
from tests.schemas_cache.machines import automaton_of, pattern_automaton


def test_grammar_in_the_notation_of_patterns() -> None:
    """Counts, separators, members, marks and references, the start rule first."""
    members = [Member(mark("a", literal("1")), True), Member(Ref("z"), False)]
    body = concat(literal("{"), joined(members, literal(", ")), repeat(Ref("z"), 0, 3, literal(",")), literal("}"))
    grammar = Grammar("start", {"a": alt(literal("x"), literal("é")), "start": body, "z": byte_class([(0x30, 0x39)])})
    expected = 'start = "{" <", ">(/a:"1" ; <z>?) (<z> % ","){0,3} "}"\na = ("x" | "é")\nz = [0-9]\n'
    assert show_grammar(grammar) == expected


def test_dfa_of_the_article() -> None:
    """`true|false` is a fork by letters; ten states there, nine when the two ends are one."""
    finite = explore(pattern_automaton("true|false"), 100)
    assert finite is not None
    expected = """states 9 classes 9 start 1
1: [f]->2 [t]->3
2: [a]->4
3: [r]->5
4: [l]->6
5: [u]->7
6: [s]->8
7: [e]->9
8: [e]->9
9 accept:
"""
    assert show_dfa(finite) == expected
    assert minimize(finite).states == 8


def test_nfa_names_its_operations() -> None:
    """Calls say where they return to, repeats say their bounds."""
    expr = concat(literal("<"), repeat(Ref("x"), 2, 5), literal(">"))
    shown = show_nfa(build_nfa(Grammar("start", {"start": expr, "x": literal("ab")})))
    assert "repeat 2 to 5" in shown
    assert re.search(r"call, return to \d+ -> \d+", shown)
    assert shown.count(": return") == 2


def test_graphviz_is_well_formed() -> None:
    """One statement a line, labels quoted, quotes and backslashes in them escaped."""
    automaton = automaton_of(alt(literal('"\\'), literal("a")))
    finite = explore(automaton, 10)
    assert finite is not None
    for dot in (show_nfa(automaton.nfa, dot=True), show_dfa(finite, dot=True)):
        lines = dot.splitlines()
        assert (lines[0], lines[-1]) == ("digraph automaton {", "}")
        assert all(line.endswith(";") for line in lines[1:-1])
        labels = re.findall(r'label="((?:[^"\\]|\\.)*)"\];$', dot, re.MULTILINE)
        assert len(labels) == dot.count("label=") > 0
