"""The NFA while it grows: lists of states, moves and repeats, and the arrays that they become.

In: states and moves, one by one. Out: `Nfa`. Cost: constant for each, and one copy at the end. Bounded: a schema that
writes out more than `MAX_NFA_STATES` characters is refused.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from schemas_cache.errors import Finding, SchemaTooComplexError
from schemas_cache.grammar import Joined, Machine, Never, Picks, Repeat, merge_ranges
from schemas_cache.limits import MAX_NFA_STATES
from schemas_cache.nfa import ANY_COUNT, CALL, NONE, NOT_FREE, RETURN, TAIL, UNBOUNDED, Int32, Nfa

T = TypeVar("T")


class NfaTable:
    """States and moves so far; `path` is the pointer that new states are given."""

    def __init__(self, spellable: frozenset[int] | None) -> None:
        self.spellable = merge_ranges((byte, byte) for byte in spellable) if spellable is not None else ((0, 255),)
        self.edges: list[list[tuple[int, int, int]]] = []
        self.epsilon: list[list[int]] = []
        self.ops: list[tuple[int, int, int, int, int]] = []
        self.free: list[int] = []
        self.pointer_ids: dict[tuple[str | None, ...], int] = {(): 0}
        self.pointer_of: list[int] = []
        self.path: tuple[str | None, ...] = ()
        self.counted = False  # whether None in a path means the count of this block's frame
        self.repeats: list[tuple[int, int, int, int, int, int]] = []
        self.members: list[tuple[bool, ...]] = []  # of each repeat: whether each member to pick is required
        self.more: list[bool] = []

    def state(self, op: int = NONE, arg: int = 0, to: int = 0, low: int = 0, high: int = 0) -> int:
        """Add a state; its operation may be given."""
        if len(self.ops) >= MAX_NFA_STATES:
            reason = f"more than {MAX_NFA_STATES} characters and alternatives to match, which is the limit"
            raise SchemaTooComplexError([Finding("#", "", reason, "write less, or split it")])
        self.edges.append([])
        self.epsilon.append([])
        self.ops.append((op, arg, to, low, high))
        self.free.append(NOT_FREE)
        self.pointer_of.append(self.pointer_ids.setdefault(self.path, len(self.pointer_ids)))
        return len(self.ops) - 1

    def edge(self, state: int, low: int, high: int, to: int) -> None:
        """Add a byte edge, cut down to what can be spelled."""
        for first, last in self.spellable:
            if first <= high and low <= last:
                self.edges[state].append((max(low, first), min(high, last), to))

    def after(self, state: int) -> int:
        """Add a state that follows another without a byte."""
        following = self.state()
        self.epsilon[state].append(following)
        return following

    def owner(self, kind: int, expr: Repeat | Joined | Picks | Machine, body: int, again: int, leave: int) -> None:
        """Add a repeat, which owns the frames of its block."""
        if expr.minimum >= ANY_COUNT:
            reason = f"at least {expr.minimum} times is more than the limit of {ANY_COUNT - 1}"
            raise SchemaTooComplexError([Finding("#", "", reason, "ask for less")])
        maximum = UNBOUNDED if expr.maximum is None or expr.maximum >= ANY_COUNT else expr.maximum
        self.repeats.append((kind, expr.minimum, maximum, body, again, leave))
        self.members.append(tuple(member.required for member in expr.members) if isinstance(expr, Picks) else ())
        self.more.append(isinstance(expr, Picks) and not isinstance(expr.more, Never))

    def freeze(self, start: int) -> Nfa:
        """Return the arrays; `start` is where texts start."""
        ops = [(op, arg, TAIL if op == CALL and self.returns(to) else to, *bounds) for op, arg, to, *bounds in self.ops]
        edge_start, edges = _flatten(self.edges)
        epsilon_start, epsilons = _flatten(self.epsilon)
        edge_table = np.array(edges, np.int32).reshape(-1, 3)
        op_table = np.array(ops, np.int32).reshape(-1, 5)
        kind, repeat_min, repeat_max, body, again, leave = np.array(self.repeats, np.int32).reshape(-1, 6).T.copy()
        pick_start, required = _flatten(list(map(list, self.members)))
        return Nfa(
            start,
            edge_start,
            edge_table[:, 0].astype(np.uint8),
            edge_table[:, 1].astype(np.uint8),
            edge_table[:, 2].copy(),
            epsilon_start,
            np.array(epsilons, np.int32),
            op_table[:, 0].astype(np.uint8),
            op_table[:, 1].copy(),
            op_table[:, 2].copy(),
            op_table[:, 3].copy(),
            op_table[:, 4].copy(),
            kind.astype(np.uint8),
            repeat_min,
            repeat_max,
            body,
            again,
            leave,
            pick_start,
            np.array(required, np.bool_),
            np.array(self.more, np.bool_),
            np.array(self.free, np.int32),
            np.array(self.pointer_of, np.int32),
            tuple(self.pointer_ids),
        )

    def returns(self, state: int) -> bool:
        """Whether nothing but the end of the rule follows `state`."""
        while self.ops[state][0] == NONE and not self.edges[state] and len(self.epsilon[state]) == 1:
            state = self.epsilon[state][0]
        return self.ops[state][0] == RETURN


def _flatten(rows: list[list[T]]) -> tuple[Int32, list[T]]:
    """Concatenate lists, and say where each began."""
    lengths = np.fromiter(map(len, rows), np.int32, len(rows))
    start = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(lengths, out=start[1:])
    return start, [item for row in rows for item in row]
