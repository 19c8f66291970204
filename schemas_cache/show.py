"""Each stage as text, for people and golden tests, and as Graphviz where it is a graph.

In: a `Grammar`, an `Nfa` or a `FiniteAutomaton`. Out: text, one line for a rule, a state or an edge group; equal inputs
give equal text. Cost: linear in what is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from schemas_cache.alphabet import Alphabet
from schemas_cache.automaton import DEAD, START
from schemas_cache.finite import FiniteAutomaton
from schemas_cache.grammar import (
    Alt,
    ByteClass,
    CharClass,
    Concat,
    Empty,
    Expr,
    Grammar,
    Joined,
    Literal,
    Machine,
    Mark,
    Never,
    Other,
    Picks,
    Ref,
    Repeat,
    merge_ranges,
)
from schemas_cache.nfa import (
    CALL,
    COUNT,
    ENTER,
    GO_ON,
    LEAVE,
    LOOP,
    PASS,
    PICK,
    RETURN,
    TAIL,
    UNBOUNDED,
    Nfa,
)

Edge = tuple[int, int, str]  # from, to, label

_ON_MEMBERS = {COUNT: "count", PASS: "pass", PICK: "pick", GO_ON: "go on"}


def show_grammar(grammar: Grammar) -> str:
    """One line for each rule, the start rule first."""
    names = sorted(grammar.rules, key=lambda name: (name != grammar.start, name))
    return "".join(f"{name} = {show_expr(grammar.rules[name])}\n" for name in names)


def show_expr(expr: Expr) -> str:
    """An expression in the notation of regular expressions, with references as `<rule>`."""
    match expr:
        case Never():
            return "∅"
        case Empty():
            return "ε"
        case Literal(data):
            return f'"{_text(data)}"'
        case ByteClass(ranges):
            return _byte_ranges(ranges)
        case CharClass(ranges):
            return "[" + "".join(f"U+{low:04X}-U+{high:04X}" for low, high in ranges) + "]"
        case Concat(parts):
            return " ".join(map(show_expr, parts))
        case Alt(choices):
            return "(" + " | ".join(map(show_expr, choices)) + ")"
        case Repeat(body, minimum, maximum, separator):
            between = "" if isinstance(separator, Empty) else f" % {show_expr(separator)}"
            return f"({show_expr(body)}{between}){{{minimum},{'' if maximum is None else maximum}}}"
        case Joined() | Picks():
            return _show_members(expr)
        case Ref(rule):
            return f"<{rule}>"
        case Machine(accepting=accepting):
            return f"automaton({len(accepting) - 1})"
        case Other(texts):
            return f"text(not {' '.join(map(_text, texts))})"
        case Mark(segment, body):
            return f"/{'#' if segment is None else segment}:{show_expr(body)}"


def _show_members(expr: Joined | Picks) -> str:
    shown = [show_expr(member.body) + ("" if member.required else "?") for member in expr.members]
    shown += [] if isinstance(expr.more, Never) else [show_expr(expr.more) + "*"]
    counts = "" if (expr.minimum, expr.maximum) == (0, None) else f"{{{expr.minimum},{_bound(expr.maximum)}}}"
    order = " ; " if isinstance(expr, Joined) else " & "
    return f"<{show_expr(expr.separator)}>({order.join(shown)}){counts}"


def show_nfa(nfa: Nfa, *, dot: bool = False) -> str:
    """States with their moves; the start state is named in the first line."""
    edges = list(_nfa_edges(nfa))
    returns = [state for state in range(nfa.states) if nfa.op[state] == RETURN]
    if dot:
        return _dot(nfa.start, returns, edges)
    lines = [f"states {nfa.states} start {nfa.start}"]
    lines += [f"{state}: {label} -> {to}" for state, to, label in edges]
    lines += [f"{state}: return" for state in returns]
    return "\n".join(lines) + "\n"


def show_dfa(finite: FiniteAutomaton, *, dot: bool = False) -> str:
    """States with transitions by byte ranges; the dead state and what leads to it are left out."""
    edges = list(dfa_edges(finite))
    accepting = [state for state in range(len(finite.accepting)) if finite.accepting[state]]
    if dot:
        return _dot(START, accepting, edges)
    lines = [f"states {finite.states} classes {finite.alphabet.classes} start {START}"]
    for state in range(START, len(finite.accepting)):
        moves = " ".join(f"{label}->{to}" for at, to, label in edges if at == state)
        lines.append(f"{state}{' accept' if finite.accepting[state] else ''}: {moves}".rstrip())
    return "\n".join(lines) + "\n"


def _nfa_edges(nfa: Nfa) -> Iterator[Edge]:
    for state in range(nfa.states):
        by_target: dict[int, list[tuple[int, int]]] = {}
        for edge in range(nfa.edge_start[state], nfa.edge_start[state + 1]):
            by_target.setdefault(int(nfa.edge_to[edge]), []).append((int(nfa.edge_lo[edge]), int(nfa.edge_hi[edge])))
        yield from ((state, to, _byte_ranges(merge_ranges(ranges))) for to, ranges in by_target.items())
        for to in nfa.epsilon_to[nfa.epsilon_start[state] : nfa.epsilon_start[state + 1]].tolist():
            yield state, to, "ε"
        yield from _op_edges(nfa, state)


def _op_edges(nfa: Nfa, state: int) -> Iterator[Edge]:
    op, arg, to = int(nfa.op[state]), int(nfa.op_arg[state]), int(nfa.op_to[state])
    if op == CALL:
        yield state, arg, "tail call" if to == TAIL else f"call, return to {to}"
    elif op == ENTER:
        maximum = int(nfa.repeat_max[arg])
        yield state, int(nfa.repeat_body[arg]), f"repeat {nfa.repeat_min[arg]} to {_bound(maximum)}"
    elif op == LOOP:
        yield state, int(nfa.repeat_again[arg]), "again"
        yield state, int(nfa.repeat_exit[arg]), "leave"
    elif op == LEAVE:
        yield state, int(nfa.repeat_exit[arg]), "leave"
    elif op in _ON_MEMBERS:
        yield state, to, f"{_ON_MEMBERS[op]} {int(nfa.op_low[state])}" if op == PICK else _ON_MEMBERS[op]


def _bound(maximum: int | None) -> str:
    return "any" if maximum in (None, UNBOUNDED) else str(maximum)


def dfa_edges(finite: FiniteAutomaton) -> Iterator[Edge]:
    """Give the transitions as (from, to, bytes), bytes that lead to one state together; none to the dead state."""
    for state in range(START, len(finite.accepting)):
        row = finite.next_state[state]
        for to in dict.fromkeys(row.tolist()):
            if to != DEAD:
                yield state, to, _letters(finite.alphabet, np.flatnonzero(row == to).tolist())


def _letters(alphabet: Alphabet, letters: list[int]) -> str:
    members = np.flatnonzero(np.isin(alphabet.class_of, letters)).tolist()
    return _byte_ranges(merge_ranges((byte, byte) for byte in members))


def _byte_ranges(ranges: Iterable[tuple[int, int]]) -> str:
    shown = [_byte(low) if low == high else f"{_byte(low)}-{_byte(high)}" for low, high in ranges]
    return "[" + "".join(shown) + "]"


def _byte(byte: int) -> str:
    return chr(byte) if 0x20 < byte < 0x7F and chr(byte) not in "[]-\\" else f"\\x{byte:02x}"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").replace('"', '\\"')


def _dot(start: int, accepting: Iterable[int], edges: Iterable[Edge]) -> str:
    lines = ["digraph automaton {", "  rankdir=LR;", '  node [shape=circle, fontname="monospace"];']
    lines.append(f"  begin [shape=point]; begin -> {start};")
    lines += [f"  {state} [shape=doublecircle];" for state in accepting]
    lines += [f'  {state} -> {to} [label="{_quote(label)}"];' for state, to, label in edges]
    return "\n".join([*lines, "}"]) + "\n"


def _quote(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"')
