"""Expression to NFA: Thompson's construction with calls and counters instead of copies.

In: a `Grammar`. Out: `Nfa`; linear in the grammar's size, whatever its counts and its recursion. Source: Thompson,
"Regular expression search algorithm" (CACM 11(6), 1968), with the operations of `nfa`. Rejected: unrolling counts (a
`maxLength` of 10,000 would cost 10,000 states before the first token) and inlining rules (recursion would not end).
"""

from __future__ import annotations

from functools import lru_cache
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

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
    Member,
    Never,
    Other,
    Picks,
    Ref,
    Repeat,
    repeat,
)
from schemas_cache.nfa import (
    ANY_COUNT,
    ANY_INDEX,
    CALL,
    COUNT,
    COUNTED,
    ENTER,
    GO_ON,
    LEAVE,
    LOOP,
    LOOPED,
    MORE,
    NONE,
    PASS,
    PICK,
    PICKED,
    RETURN,
    UNBOUNDED,
    Int32,
    Nfa,
)
from schemas_cache.nfa_table import NfaTable
from schemas_cache.other_text import BOUNDARY, STATES, excluded_tree, leaving


def build_nfa(grammar: Grammar, spellable: frozenset[int] | None = None) -> Nfa:
    """Build the NFA of every rule that the start rule reaches; O(size of those rules).

    Edges are cut down to the bytes in `spellable`, where it is given: those that a vocabulary made of bytes can write.
    """
    builder = _Builder(grammar, spellable)
    start = builder.rule(grammar.start)
    builder.rules()
    return builder.freeze(start)


class _Builder(NfaTable):
    def __init__(self, grammar: Grammar, spellable: frozenset[int] | None) -> None:
        super().__init__(spellable)
        self.grammar = grammar
        self.rule_start: dict[str, int] = {}
        self.todo: list[str] = []
        self.text_states: list[int] = []
        self.leaving: dict[tuple[int, frozenset[int]], int] = {}

    def rules(self) -> None:
        """Build the rules that were called for, and those that they call for."""
        while self.todo:
            name = self.todo.pop()
            end = self.build(self.grammar.rules[name], self.rule_start[name])
            self.move(end, self.operation(RETURN))

    def rule(self, name: str) -> int:
        """Start state of a rule; its block is built later, so that recursion and depth cost no stack."""
        if name not in self.rule_start:
            outer, self.path = self.path, ()
            self.rule_start[name] = self.state()
            self.path = outer
            self.todo.append(name)
        return self.rule_start[name]

    def build(self, expr: Expr, entry: int) -> int:
        """Add states so that `expr` leads from `entry` to the state returned, which has no outgoing move yet."""
        match expr:
            case Never():
                return self.state()
            case Empty():
                return entry
            case Literal(data):
                return self.literal(data, entry)
            case ByteClass(ranges):
                return self.byte_class(ranges, entry)
            case Concat(parts):
                for part in parts:
                    entry = self.build(part, entry)
                return entry
            case Alt(choices):
                return self.alt(choices, entry)
            case Repeat():
                counted = expr.minimum > 1 or expr.maximum not in (None, 1)
                return self.count(expr, entry) if counted else self.loop(expr, entry)
            case Joined():
                plain = expr.minimum == 0 and expr.maximum is None
                return self.joined(expr, entry) if plain else self.in_frame(expr, entry)
            case Picks():
                return self.in_frame(expr, entry)
            case Ref(rule):
                return self.call(rule, entry)
            case Mark(segment, body):
                return self.mark(segment, body, entry)
            case Machine():
                return self.machine(expr, entry)
            case Other(texts):
                return self.other(texts, entry)
            case CharClass():
                raise TypeError("a value expression reached the NFA; spell it first")
            case _:
                assert_never(expr)

    def literal(self, data: bytes, entry: int) -> int:
        for following, byte in enumerate(data, self.states(len(data))):
            self.edge(entry, byte, byte, following)
            entry = following
        return entry

    def byte_class(self, ranges: tuple[tuple[int, int], ...], entry: int) -> int:
        following = self.state()
        for low, high in ranges:
            self.edge(entry, low, high, following)
        return following

    def alt(self, choices: tuple[Expr, ...], entry: int) -> int:
        leave = self.state()
        literals = [choice.data for choice in choices if isinstance(choice, Literal)]
        self.prefix_tree(literals, entry, leave)
        for choice in choices:
            if not isinstance(choice, Literal):
                branch = self.state()
                self.move(entry, branch)
                self.move(self.build(choice, branch), leave)
        return leave

    def prefix_tree(self, literals: list[bytes], entry: int, leave: int) -> None:
        """Add alternatives with shared beginnings, so that a long enumeration is a few configurations at each byte."""
        if not literals:
            return
        root = self.state()
        self.move(entry, root)
        known: dict[tuple[int, int], int] = {}
        for data in literals:
            at = root
            for byte in data:
                following = known.get((at, byte))
                if following is None:
                    following = known[at, byte] = self.state()
                    self.edge(at, byte, byte, following)
                at = following
            self.move(at, leave)

    def loop(self, expr: Repeat, entry: int) -> int:
        """Add a repeat that needs no counter: `?`, `*` and `+`."""
        body, leave = self.state(), self.state()
        self.move(entry, body)
        if expr.minimum == 0:
            self.move(entry, leave)
        if expr.free_text and expr.maximum is None:
            self.free[body] = UNBOUNDED
        outer, self.counted = self.counted, False
        end = self.free_character(expr.body, body) if expr.free_text else self.build(expr.body, body)
        self.move(end, leave)
        if expr.maximum is None:
            self.move(self.build(expr.separator, self.after(end)), body)
        self.counted = outer
        return leave

    def free_character(self, expr: Expr, entry: int) -> int:
        """Add a copy of states that were built before: all strings have the same few expressions for a character."""
        edges, moves, count = _character(expr)
        first = self.states(count)
        self.copy_edges(edges, first)
        self.moves += (moves + first).ravel().tolist()
        self.move(entry, first)
        return first + 1

    def copy_edges(self, edges: Int32, first: int) -> None:
        """Add edges between states that are numbered from `first` on."""
        moved = edges + np.array([first, 0, 0, first], np.int32)
        if self.has_all_bytes:
            self.edges += moved.ravel().tolist()
        else:
            for edge in moved.tolist():
                self.edge(*edge)

    def count(self, expr: Repeat, entry: int) -> int:
        """Add a repeat whose count is in the frame: one copy of the body, whatever the bounds."""
        number = len(self.repeats)
        enter, leave = self.operation(ENTER, number), self.state()
        self.move(entry, enter)
        if expr.minimum == 0:
            self.move(entry, leave)
        outer, self.path, self.counted = (self.path, self.counted), (), True
        body, again = self.state(), self.state()
        self.owner(LOOPED, expr, body, again, leave)
        if expr.free_text:
            self.free[body] = number
        end = self.free_character(expr.body, body) if expr.free_text else self.build(expr.body, body)
        self.move(end, self.operation(LOOP, number))
        self.move(self.build(expr.separator, again), body)
        self.path, self.counted = outer
        return leave

    def in_frame(self, expr: Joined | Picks, entry: int) -> int:
        """Add members whose number, or which of them are written, is in a frame."""
        number = len(self.repeats)
        enter, leave = self.operation(ENTER, number), self.state()
        self.move(entry, enter)
        if expr.minimum == 0 and not any(member.required for member in expr.members):
            self.move(entry, leave)
        outer, self.path, self.counted = (self.path, self.counted), (), True
        first = self.state()
        self.owner(COUNTED if isinstance(expr, Joined) else PICKED, expr, first, first, leave)
        if isinstance(expr, Joined):
            self.counted_members(expr, number, first)
        else:
            self.picked_members(expr, number, first)
        self.path, self.counted = outer
        return leave

    def counted_members(self, expr: Joined, number: int, fresh: int) -> None:
        """Add the two tracks of `joined`, each step with the counts from which the total can still be reached."""
        repeated = () if isinstance(expr.more, Never) else (Member(expr.more, required=False),)
        members = expr.members + repeated
        at: int | None = fresh
        written: int | None = None
        for index, member in enumerate(members):
            is_more = index == len(expr.members)
            low, high = _bounds_before(expr, index if is_more else index + 1)
            begin, between, joint = self.state(), self.state(), self.state()
            self.move(self.build(expr.separator, between), begin)
            if at is not None and low <= 1 <= high:
                self.move(at, begin)
            for before in (written, joint if is_more else None):
                if before is not None:
                    self.move(before, self.operation(PASS, number, between, low - 1, high - 1))
            self.move(self.build(member.body, begin), self.operation(COUNT, number, joint, low, high))
            if not member.required and written is not None:
                self.move(written, self.operation(PASS, number, joint, low, high))
            at = None if member.required else at
            written = joint
        if written is not None:
            self.move(written, self.operation(LEAVE, number))

    def picked_members(self, expr: Picks, number: int, hub: int) -> None:
        """Add a hub that every member leaves from and, over the separator, comes back to."""
        done = self.state()
        bodies = [*enumerate(member.body for member in expr.members)]
        bodies += [] if isinstance(expr.more, Never) else [(MORE, expr.more)]
        for index, body in bodies:
            begin = self.state()
            self.move(hub, self.operation(PICK, number, begin, index))
            self.move(self.build(body, begin), done)
        between = self.state()
        self.move(self.build(expr.separator, between), hub)
        self.move(done, self.operation(GO_ON, number, between))
        self.move(done, self.operation(LEAVE, number))

    def joined(self, expr: Joined, entry: int) -> int:
        """Add two tracks, nothing written yet and something written, which share each member's states."""
        fresh: int | None = entry
        written: int | None = None
        for member in expr.members:
            begin = self.state()
            if fresh is not None:
                self.move(fresh, begin)
            if written is not None:
                self.move(self.build(expr.separator, self.after(written)), begin)
            joint = self.after(self.build(member.body, begin))
            if member.required:
                fresh = None
            elif written is not None:
                self.move(written, joint)
            written = joint
        if not isinstance(expr.more, Never):
            begin = self.state()
            if fresh is not None:
                self.move(fresh, begin)
            if written is not None:
                self.move(self.build(expr.separator, self.after(written)), begin)
            joint = self.after(self.build(repeat(expr.more, 1, None, expr.separator), begin))
            if written is not None:
                self.move(written, joint)
            written = joint
        leave = self.state()
        self.move(written if written is not None else entry, leave)
        if fresh is not None:
            self.move(fresh, leave)
        return leave

    def call(self, rule: str, entry: int) -> int:
        back = self.state()
        self.move(entry, self.operation(CALL, self.rule(rule), back))
        return back

    def mark(self, segment: str | None, body: Expr, entry: int) -> int:
        outer = self.path
        self.path = (*outer, ANY_INDEX if segment is None and not self.counted else segment)
        end = self.build(body, self.after(entry))
        self.path = outer
        return self.after(end)

    def machine(self, expr: Machine, entry: int) -> int:
        """Add the states of an automaton one for one."""
        if expr.counts is not None and expr.between is not None:
            return self.counted_machine(expr, expr.counts, expr.between, entry)
        leave, first = self.state(), self.states(len(expr.accepting))
        self.move(entry, first + 1)
        self.copy_edges(_machine_edges(expr), first)
        for state in np.flatnonzero(expr.accepting).tolist():
            self.move(first + state, leave)
        return leave

    def other(self, texts: tuple[bytes, ...], entry: int) -> int:
        """Add the prefix tree of excluded texts; what leaves it is a call into the block of all text."""
        tree, leave = excluded_tree(texts), self.state()
        first = self.states(len(tree) - 1)
        states = [entry, *range(first, first + len(tree) - 1)]
        calls: dict[int, int] = {}
        for node, at in zip(tree, states, strict=True):
            for byte, below in node.children.items():
                self.edge(at, byte, byte, states[below])
            if node.place == BOUNDARY and not node.is_excluded:
                self.move(at, leave)
            start = self.leaving_text(node.place, frozenset(node.children))
            if start not in calls:
                calls[start] = self.operation(CALL, start, leave)
            self.move(at, calls[start])
        return leave

    def leaving_text(self, place: int, children: frozenset[int]) -> int:
        """State of the block of all text from where anything but these bytes goes on."""
        if (place, children) not in self.leaving:
            outer, self.path = self.path, ()
            states, begin = self.all_text(), self.state()
            self.leaving[place, children] = begin
            for low, high, to in leaving(place, children):
                self.edge(begin, low, high, states[to])
            if place == BOUNDARY:  # the node that it leaves takes the other bytes: together they take every character
                self.free[begin] = UNBOUNDED
            self.path = outer
        return self.leaving[place, children]

    def all_text(self) -> list[int]:
        """States of a block of all text, in the order of `STATES`; built on first use."""
        if not self.text_states:
            self.text_states = [self.state() for _ in STATES]
            for at, edges in zip(self.text_states, STATES, strict=True):
                for low, high, to in edges:
                    self.edge(at, low, high, self.text_states[to])
            self.free[self.text_states[BOUNDARY]] = UNBOUNDED
            self.move(self.text_states[BOUNDARY], self.operation(RETURN))
        return self.text_states

    def counted_machine(self, expr: Machine, counts: Int32, between: NDArray[np.bool_], entry: int) -> int:
        """Add an automaton whose characters are counted in a frame, as members that are written."""
        number = len(self.repeats)
        enter, leave = self.operation(ENTER, number), self.state()
        self.move(entry, enter)
        outer, self.path, self.counted = (self.path, self.counted), (), True
        first = self.states(len(expr.accepting))
        self.owner(COUNTED, expr, first + 1, first + 1, leave)
        bounds: list[tuple[int, int]] = list(map(tuple, counts.tolist()))
        entries: dict[tuple[int, int], int] = {}
        for at, low, high, to in _machine_edges(expr).tolist():
            op = COUNT if between[at] else NONE if bounds[at] == bounds[to] else PASS
            if bounds[to][0] <= bounds[to][1] and (op, to) not in entries:
                target = first + to
                entries[op, to] = target if op == NONE else self.operation(op, number, target, *bounds[to])
            if (op, to) in entries:
                self.edge(first + at, low, high, entries[op, to])
        end = self.operation(LEAVE, number)
        for state in np.flatnonzero(expr.accepting).tolist():
            self.move(first + state, end)
        self.path, self.counted = outer
        return leave


@lru_cache(maxsize=64)
def _character(expr: Expr) -> tuple[Int32, Int32, int]:
    """Edges, moves and number of states of an expression without rules and counts; from state 0 to state 1."""
    builder = _Builder(Grammar("", {}), None)
    begin, end = builder.state(), builder.state()
    builder.move(builder.build(expr, begin), end)
    edges, moves = np.array(builder.edges, np.int32), np.array(builder.moves, np.int32)
    return edges.reshape(-1, 4), moves.reshape(-1, 2), len(builder.pointer_of)


def _machine_edges(expr: Machine) -> Int32:
    """State, first and last byte, state that follows, int32 (E, 4); neighbouring bytes with one target are one edge."""
    states = len(expr.accepting)
    following = np.zeros((states, 257), np.int32)  # one byte more, so that every run ends
    following[:, :256] = expr.next_state[:, expr.class_of]
    flat = following.ravel()
    begins = np.flatnonzero(np.diff(flat, prepend=-1))
    ends = np.append(begins[1:], len(flat)) - 1
    kept = np.flatnonzero(flat[begins])
    begins, ends = begins[kept], ends[kept]
    return np.stack([begins // 257, begins % 257, ends % 257, flat[begins]], axis=1).astype(np.int32)


def _bounds_before(expr: Joined, index: int) -> tuple[int, int]:
    """Least and greatest count of members before `index` from which a permitted total can be reached."""
    rest = expr.members[index:]
    low = 0 if not isinstance(expr.more, Never) else max(expr.minimum - len(rest), 0)
    if expr.maximum is None or expr.maximum >= ANY_COUNT:
        return low, ANY_COUNT
    return low, expr.maximum - sum(member.required for member in rest)
