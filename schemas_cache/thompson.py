"""Expression to NFA: Thompson's construction with calls and counters instead of copies.

In: a `Grammar`. Out: `Nfa`; linear in the grammar's size, whatever its counts and its recursion. Source: Thompson,
"Regular expression search algorithm" (CACM 11(6), 1968), with the operations of `nfa`. Rejected: unrolling counts (a
`maxLength` of 10,000 would cost 10,000 states before the first token) and inlining rules (recursion would not end).
"""

from __future__ import annotations

from collections.abc import Iterator
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

    def rules(self) -> None:
        """Build the rules that were called for, and those that they call for."""
        while self.todo:
            name = self.todo.pop()
            end = self.build(self.grammar.rules[name], self.rule_start[name])
            self.epsilon[end].append(self.state(RETURN))

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
            case CharClass():
                raise TypeError("a value expression reached the NFA; spell it first")
            case _:
                assert_never(expr)

    def literal(self, data: bytes, entry: int) -> int:
        for byte in data:
            following = self.state()
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
                self.epsilon[entry].append(branch)
                self.epsilon[self.build(choice, branch)].append(leave)
        return leave

    def prefix_tree(self, literals: list[bytes], entry: int, leave: int) -> None:
        """Add alternatives with shared beginnings, so that a long enumeration is a few configurations at each byte."""
        if not literals:
            return
        root = self.state()
        self.epsilon[entry].append(root)
        known: dict[tuple[int, int], int] = {}
        for data in literals:
            at = root
            for byte in data:
                following = known.get((at, byte))
                if following is None:
                    following = known[at, byte] = self.state()
                    self.edge(at, byte, byte, following)
                at = following
            self.epsilon[at].append(leave)

    def loop(self, expr: Repeat, entry: int) -> int:
        """Add a repeat that needs no counter: `?`, `*` and `+`."""
        body, leave = self.state(), self.state()
        self.epsilon[entry].append(body)
        if expr.minimum == 0:
            self.epsilon[entry].append(leave)
        if expr.free_text and expr.maximum is None:
            self.free[body] = UNBOUNDED
        outer, self.counted = self.counted, False
        end = self.build(expr.body, body)
        self.epsilon[end].append(leave)
        if expr.maximum is None:
            self.epsilon[self.build(expr.separator, self.after(end))].append(body)
        self.counted = outer
        return leave

    def count(self, expr: Repeat, entry: int) -> int:
        """Add a repeat whose count is in the frame: one copy of the body, whatever the bounds."""
        number = len(self.repeats)
        enter, leave = self.state(ENTER, number), self.state()
        self.epsilon[entry].append(enter)
        if expr.minimum == 0:
            self.epsilon[entry].append(leave)
        outer, self.path, self.counted = (self.path, self.counted), (), True
        body, again = self.state(), self.state()
        self.owner(LOOPED, expr, body, again, leave)
        if expr.free_text:
            self.free[body] = number
        self.epsilon[self.build(expr.body, body)].append(self.state(LOOP, number))
        self.epsilon[self.build(expr.separator, again)].append(body)
        self.path, self.counted = outer
        return leave

    def in_frame(self, expr: Joined | Picks, entry: int) -> int:
        """Add members whose number, or which of them are written, is in a frame."""
        number = len(self.repeats)
        enter, leave = self.state(ENTER, number), self.state()
        self.epsilon[entry].append(enter)
        if expr.minimum == 0 and not any(member.required for member in expr.members):
            self.epsilon[entry].append(leave)
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
            self.epsilon[self.build(expr.separator, between)].append(begin)
            if at is not None and low <= 1 <= high:
                self.epsilon[at].append(begin)
            for before in (written, joint if is_more else None):
                if before is not None:
                    self.epsilon[before].append(self.state(PASS, number, between, low - 1, high - 1))
            self.epsilon[self.build(member.body, begin)].append(self.state(COUNT, number, joint, low, high))
            if not member.required and written is not None:
                self.epsilon[written].append(self.state(PASS, number, joint, low, high))
            at = None if member.required else at
            written = joint
        if written is not None:
            self.epsilon[written].append(self.state(LEAVE, number))

    def picked_members(self, expr: Picks, number: int, hub: int) -> None:
        """Add a hub that every member leaves from and, over the separator, comes back to."""
        done = self.state()
        bodies = [*enumerate(member.body for member in expr.members)]
        bodies += [] if isinstance(expr.more, Never) else [(MORE, expr.more)]
        for index, body in bodies:
            begin = self.state()
            self.epsilon[hub].append(self.state(PICK, number, begin, index))
            self.epsilon[self.build(body, begin)].append(done)
        between = self.state()
        self.epsilon[self.build(expr.separator, between)].append(hub)
        self.epsilon[done] += [self.state(GO_ON, number, between), self.state(LEAVE, number)]

    def joined(self, expr: Joined, entry: int) -> int:
        """Add two tracks, nothing written yet and something written, which share each member's states."""
        fresh: int | None = entry
        written: int | None = None
        for member in expr.members:
            begin = self.state()
            if fresh is not None:
                self.epsilon[fresh].append(begin)
            if written is not None:
                self.epsilon[self.build(expr.separator, self.after(written))].append(begin)
            joint = self.after(self.build(member.body, begin))
            if member.required:
                fresh = None
            elif written is not None:
                self.epsilon[written].append(joint)
            written = joint
        if not isinstance(expr.more, Never):
            begin = self.state()
            if fresh is not None:
                self.epsilon[fresh].append(begin)
            if written is not None:
                self.epsilon[self.build(expr.separator, self.after(written))].append(begin)
            joint = self.after(self.build(repeat(expr.more, 1, None, expr.separator), begin))
            if written is not None:
                self.epsilon[written].append(joint)
            written = joint
        leave = self.state()
        self.epsilon[written if written is not None else entry].append(leave)
        if fresh is not None:
            self.epsilon[fresh].append(leave)
        return leave

    def call(self, rule: str, entry: int) -> int:
        back = self.state()
        self.epsilon[entry].append(self.state(CALL, self.rule(rule), back))
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
        leave = self.state()
        states = [self.state() for _ in range(len(expr.accepting))]
        self.epsilon[entry].append(states[1])
        for low, high, at, to in _machine_edges(expr):
            self.edge(states[at], low, high, states[to])
        for state in np.flatnonzero(expr.accepting).tolist():
            self.epsilon[states[state]].append(leave)
        return leave

    def counted_machine(self, expr: Machine, counts: Int32, between: NDArray[np.bool_], entry: int) -> int:
        """Add an automaton whose characters are counted in a frame, as members that are written."""
        number = len(self.repeats)
        enter, leave = self.state(ENTER, number), self.state()
        self.epsilon[entry].append(enter)
        outer, self.path, self.counted = (self.path, self.counted), (), True
        states = [self.state() for _ in range(len(expr.accepting))]
        self.owner(COUNTED, expr, states[1], states[1], leave)
        bounds: list[tuple[int, int]] = list(map(tuple, counts.tolist()))
        entries: dict[tuple[int, int], int] = {}
        for low, high, at, to in _machine_edges(expr):
            op = COUNT if between[at] else NONE if bounds[at] == bounds[to] else PASS
            if bounds[to][0] <= bounds[to][1] and (op, to) not in entries:
                entries[op, to] = self.state(op, number, states[to], *bounds[to]) if op != NONE else states[to]
            if (op, to) in entries:
                self.edge(states[at], low, high, entries[op, to])
        end = self.state(LEAVE, number)
        for state in np.flatnonzero(expr.accepting).tolist():
            self.epsilon[states[state]].append(end)
        self.path, self.counted = outer
        return leave


def _machine_edges(expr: Machine) -> Iterator[tuple[int, int, int, int]]:
    """First and last byte, state, state that follows."""
    borders = np.flatnonzero(np.diff(expr.class_of.astype(np.int16), prepend=-1, append=-1))
    for low, high in zip(borders[:-1].tolist(), (borders[1:] - 1).tolist(), strict=True):
        for at, to in enumerate(expr.next_state[:, expr.class_of[low]].tolist()):
            if to:
                yield low, high, at, to


def _bounds_before(expr: Joined, index: int) -> tuple[int, int]:
    """Least and greatest count of members before `index` from which a permitted total can be reached."""
    rest = expr.members[index:]
    low = 0 if not isinstance(expr.more, Never) else max(expr.minimum - len(rest), 0)
    if expr.maximum is None or expr.maximum >= ANY_COUNT:
        return low, ANY_COUNT
    return low, expr.maximum - sum(member.required for member in rest)
