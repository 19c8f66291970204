"""Expression to NFA: Thompson's construction with calls and counters instead of copies.

In: a `Grammar`. Out: `Nfa`; linear in the grammar's size, whatever its counts and its recursion. Source: Thompson,
"Regular expression search algorithm" (CACM 11(6), 1968), with the operations of `nfa`. Rejected: unrolling counts (a
`maxLength` of 10,000 would cost 10,000 states before the first token) and inlining rules (recursion would not end).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, assert_never

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
    concat,
    literal,
)
from schemas_cache.nfa import (
    ANY_COUNT,
    ANY_INDEX,
    BY_REPEAT,
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
from schemas_cache.nfa_table import NfaTable, Text
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
        self.text_end = -1
        self.leaving: dict[tuple[int, frozenset[int]], int] = {}

    def rules(self) -> None:
        """Build the rules that were called for, and those that they call for."""
        while self.todo:
            name = self.todo.pop()
            rule, start = self.grammar.rules[name], self.rule_start[name]
            end = self.copy(rule, start) if name in self.grammar.common else self.build(rule, start)
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
            case Joined() | Picks():
                return self.members_of(expr, entry)
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
        end = self.text_body(expr, body, leave)
        self.move(end, leave)
        if expr.maximum is None:
            self.move(self.build(expr.separator, self.after(end)), body)
        self.counted = outer
        return leave

    def copy(self, expr: Expr, entry: int) -> int:
        """Do as `build`, with a copy of states that were built before: many schemas have these expressions."""
        fragment = _fragment(expr)
        if fragment is None:
            return self.build(expr, entry)
        return self.paste(fragment, entry)

    def paste(self, fragment: _Fragment, entry: int) -> int:
        first = self.states(fragment.states)
        self.copy_edges(fragment.edges, first)
        self.moves += (fragment.moves + first).ravel().tolist()
        self.free.update((first + state, UNBOUNDED) for state in fragment.free)
        self.texts += [text.moved(first) for text in fragment.texts]
        self.move(entry, first)
        return first + fragment.end

    def text_body(self, expr: Repeat, body: int, leave: int) -> int:
        """Add the body of a repeat; free characters, or bytes of one class, are a text with those that follow."""
        fragment = _fragment(expr.body) if expr.free_text else None
        end = self.build(expr.body, body) if fragment is None else self.paste(fragment, body)
        is_text = fragment is not None or isinstance(expr.body, ByteClass)
        if is_text and isinstance(expr.separator, Empty) and (leave == BY_REPEAT or expr.maximum is None):
            content = str(expr.body).encode() if fragment is None else fragment.content
            self.texts.append(Text(body, len(self.pointer_of), leave, content))
        return end

    def copy_edges(self, edges: Int32, first: int) -> None:
        """Add edges between states that are numbered from `first` on."""
        moved = edges + np.array([first, 0, 0, first], np.int32)
        whole = edges[:, 2] <= np.array(self.run_end)[edges[:, 1]]
        self.edges += moved[whole].ravel().tolist()
        for edge in moved[~whole].tolist():
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
        end = self.text_body(expr, body, BY_REPEAT)
        self.move(end, self.operation(LOOP, number))
        self.move(self.build(expr.separator, again), body)
        self.path, self.counted = outer
        return leave

    def members_of(self, expr: Joined | Picks, entry: int) -> int:
        if isinstance(expr, Joined) and expr.minimum == 0 and expr.maximum is None:
            return self.joined(expr, entry)
        return self.in_frame(expr, entry)

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
        """Add members in order, with a hub before each, from where that one is written, or past optional ones another.

        What all members begin with is written before the hub, with the separator. So of a thousand optional names only
        those are told apart that begin with what is written, and a separator is not written a thousand times at once.
        """
        begin = _common_start(expr)
        fresh: int | None = self.literal(begin, entry)  # nothing is written yet
        between: int | None = None  # something is, and the separator behind it
        ends: list[int] = []
        more = None if isinstance(expr.more, Never) else expr.more
        for index, member in enumerate(expr.members):
            start = self.hub(fresh, between)
            end = self.build(_without_start(member.body, len(begin)), start)
            ends = [end] if member.required else [*ends, end]
            fresh = None if member.required else fresh
            if more is not None or index + 1 < len(expr.members):
                passed = None if member.required else between
                between = self.hub(self.literal(begin, self.build(expr.separator, self.after(end))), passed)
        if more is not None:
            start, outer, self.counted = self.hub(fresh, between), self.counted, False
            ends.append(self.build(_without_start(more, len(begin)), start))
            self.move(self.literal(begin, self.build(expr.separator, self.after(ends[-1]))), start)
            self.counted = outer
        leave = self.state()
        for end in [*ends, entry] if fresh is not None else ends:
            self.move(end, leave)
        return leave

    def hub(self, *before: int | None) -> int:
        """Add a state that follows others without a byte."""
        hub = self.state()
        for state in before:
            if state is not None:
                self.move(state, hub)
        return hub

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
        leave, first, edges = self.state(), self.states(len(expr.accepting)), _machine_edges(expr)
        self.move(entry, first + 1)
        self.copy_edges(edges, first)
        self.texts.append(Text(first, len(self.pointer_of), leave, _content("machine", edges, expr.accepting)))
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
            content = f"text without {sorted(children)} at {place}".encode()
            self.texts.append(Text(begin, begin + 1, self.text_end, content))
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
            self.text_end = self.operation(RETURN)
            self.move(self.text_states[BOUNDARY], self.text_end)
            self.texts.append(Text(self.text_states[0], self.text_states[-1] + 1, self.text_end, b"text"))
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
        edges = _machine_edges(expr)
        bounds_in_all = np.array((expr.minimum, -1 if expr.maximum is None else expr.maximum), np.int64)
        content = _content("counted machine", edges, expr.accepting, counts, between, bounds_in_all)
        self.texts.append(Text(first, first + len(expr.accepting), BY_REPEAT, content))
        for at, low, high, to in edges.tolist():
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


@dataclass(frozen=True, slots=True, eq=False)
class _Fragment:
    """States of an expression, from state 0 to `end`, without operations."""

    states: int
    edges: Int32  # int32 (E, 4)
    moves: Int32  # int32 (P, 2)
    free: tuple[int, ...]  # where unbounded free text begins
    texts: tuple[Text, ...]
    end: int
    content: bytes  # digest of all that


@lru_cache(maxsize=128)
def _fragment(expr: Expr) -> _Fragment | None:
    """Build an expression by itself; None where it has rules, counts or pointers."""
    builder = _Builder(Grammar("", {}), None)
    end = builder.build(expr, builder.state())
    if builder.ops or len(builder.pointer_ids) > 1:
        return None
    edges, moves = (np.array(rows, np.int32) for rows in (builder.edges, builder.moves))
    content = _content(f"fragment to {end}", edges, moves, np.array(list(builder.free), np.int32))
    parts = edges.reshape(-1, 4), moves.reshape(-1, 2), tuple(builder.free), tuple(builder.texts)
    return _Fragment(len(builder.pointer_of), *parts, end, content)


def _content(kind: str, *arrays: NDArray[Any]) -> bytes:
    """Digest of arrays."""
    described = blake2b(kind.encode(), digest_size=16)
    for array in arrays:
        described.update(f" {array.dtype} {array.shape} ".encode())
        described.update(np.ascontiguousarray(array).data)
    return described.digest()


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


def _common_start(expr: Joined) -> bytes:
    """Bytes that every member begins with."""
    starts = [_start(member.body) for member in expr.members]
    starts += [] if isinstance(expr.more, Never) else [_start(expr.more)]
    first, last = min(starts, default=b""), max(starts, default=b"")
    shared = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:shared]


def _start(expr: Expr) -> bytes:
    first = expr.parts[0] if isinstance(expr, Concat) else expr
    return first.data if isinstance(first, Literal) else b""


def _without_start(expr: Expr, length: int) -> Expr:
    """The rest of an expression that begins with a literal of so many bytes at least."""
    if length == 0:
        return expr
    first, *rest = expr.parts if isinstance(expr, Concat) else (expr,)
    return concat(literal(_start(first)[length:]), *rest)


def _bounds_before(expr: Joined, index: int) -> tuple[int, int]:
    """Least and greatest count of members before `index` from which a permitted total can be reached."""
    rest = expr.members[index:]
    low = 0 if not isinstance(expr.more, Never) else max(expr.minimum - len(rest), 0)
    if expr.maximum is None or expr.maximum >= ANY_COUNT:
        return low, ANY_COUNT
    return low, expr.maximum - sum(member.required for member in rest)
