"""The NFA while it grows: lists of states, moves and repeats, and the arrays that they become.

In: states and moves, one by one. Out: `Nfa`. Cost: constant for each (a state is a number in one list, a move some
numbers in another), and one sort at the end. Bounded: a schema that writes out more than `MAX_NFA_STATES` characters is
refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from schemas_cache.errors import Finding, SchemaTooComplexError
from schemas_cache.grammar import Joined, Machine, Never, Picks, Repeat, merge_ranges
from schemas_cache.limits import MAX_NFA_STATES
from schemas_cache.nfa import ANY_COUNT, BY_REPEAT, CALL, NONE, NOT_FREE, RETURN, TAIL, UNBOUNDED, Int32, Nfa
from schemas_cache.work import spend

STATES_A_LOOK = 256  # states are made so fast that work is counted for many at once


@dataclass(frozen=True, slots=True)
class Text:
    """States whose meaning inside the text is known by a name, whatever stands around them."""

    first: int
    end: int
    exit: int
    content: bytes

    def moved(self, by: int) -> Text:
        """Return the same text from another state on."""
        leave = self.exit if self.exit == BY_REPEAT else self.exit + by
        return Text(self.first + by, self.end + by, leave, self.content)


class NfaTable:
    """States and moves so far; `path` is the pointer that new states are given."""

    def __init__(self, spellable: frozenset[int] | None) -> None:
        self.spellable = merge_ranges((byte, byte) for byte in spellable) if spellable is not None else ((0, 255),)
        self.run_end = [-1] * 256  # of each byte: the last one up to which all can be spelled
        for first, last in self.spellable:
            self.run_end[first : last + 1] = [last] * (last + 1 - first)
        self.edges: list[int] = []  # four numbers for each: state, first byte, last byte, state that follows
        self.moves: list[int] = []  # two for each: state, state that follows without a byte
        self.ops: dict[int, tuple[int, int, int, int, int]] = {}
        self.free: dict[int, int] = {}
        self.pointer_ids: dict[tuple[str | None, ...], int] = {(): 0}
        self.pointer_of: list[int] = []
        self.path = ()
        self.counted = False  # whether None in a path means the count of this block's frame
        self.repeats: list[tuple[int, int, int, int, int, int]] = []
        self.members: list[tuple[bool, ...]] = []  # of each repeat: whether each member to pick is required
        self.more: list[bool] = []
        self.texts: list[Text] = []

    @property
    def path(self) -> tuple[str | None, ...]:
        """Pointer segments since the block began."""
        return self._path

    @path.setter
    def path(self, path: tuple[str | None, ...]) -> None:
        self._path = path
        self._pointer = self.pointer_ids.setdefault(path, len(self.pointer_ids))

    def states(self, count: int) -> int:
        """Add some states without operations; the first one, which the others follow in number."""
        first = len(self.pointer_of)
        if first + count > MAX_NFA_STATES:
            reason = f"more than {MAX_NFA_STATES} characters and alternatives to match, which is the limit"
            raise SchemaTooComplexError([Finding("#", "", reason, "write less, or split it")])
        spend(2 * count)
        self.pointer_of += [self._pointer] * count
        return first

    def state(self) -> int:
        """Add a state without an operation."""
        number = len(self.pointer_of)
        if number >= MAX_NFA_STATES:
            return self.states(1)
        if number % STATES_A_LOOK == 0:
            spend(2 * STATES_A_LOOK)
        self.pointer_of.append(self._pointer)
        return number

    def operation(self, op: int, arg: int = 0, to: int = 0, low: int = 0, high: int = 0) -> int:
        """Add a state that carries an operation."""
        state = self.state()
        self.ops[state] = (op, arg, to, low, high)
        return state

    def edge(self, state: int, low: int, high: int, to: int) -> None:
        """Add a byte edge, cut down to what can be spelled."""
        if high <= self.run_end[low]:
            self.edges += (state, low, high, to)
            return
        for first, last in self.spellable:
            if first <= high and low <= last:
                self.edges += (state, max(low, first), min(high, last), to)

    def move(self, state: int, to: int) -> None:
        """Add a move that needs no byte."""
        self.moves += (state, to)

    def after(self, state: int) -> int:
        """Add a state that follows another without a byte."""
        following = self.state()
        self.moves += (state, following)
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
        count = len(self.pointer_of)
        edge_start, edges = _by_state(np.array(self.edges, np.int32).reshape(-1, 4), count)
        epsilon_start, epsilons = _by_state(np.array(self.moves, np.int32).reshape(-1, 2), count)
        op, op_arg, op_to, op_low, op_high = self._operations(edge_start, epsilon_start, epsilons[:, 1]).T.copy()
        kind, repeat_min, repeat_max, body, again, leave = np.array(self.repeats, np.int32).reshape(-1, 6).T.copy()
        free = np.full(count, NOT_FREE, np.int32)
        free[list(self.free)] = list(self.free.values())
        return Nfa(
            start,
            edge_start,
            edges[:, 1].astype(np.uint8),
            edges[:, 2].astype(np.uint8),
            edges[:, 3].copy(),
            epsilon_start,
            epsilons[:, 1].copy(),
            op.astype(np.uint8),
            op_arg,
            op_to,
            op_low,
            op_high,
            kind.astype(np.uint8),
            repeat_min,
            repeat_max,
            body,
            again,
            leave,
            np.cumsum([0, *map(len, self.members)], dtype=np.int32),
            np.array([required for members in self.members for required in members], np.bool_),
            np.array(self.more, np.bool_),
            free,
            *self._texts(),
            np.array(self.pointer_of, np.int32),
            tuple(self.pointer_ids),
        )

    def _texts(self) -> tuple[Int32, Int32, Int32, NDArray[np.uint8]]:
        """Texts in the order of their states; the digests are of the bytes that can be spelled, too."""
        texts = sorted(self.texts, key=lambda text: text.first)
        spellable = np.array(self.spellable, np.uint8).tobytes()
        content = b"".join(blake2b(text.content + spellable, digest_size=16).digest() for text in texts)
        first, end, leave = np.array([(text.first, text.end, text.exit) for text in texts], np.int32).reshape(-1, 3).T
        return first.copy(), end.copy(), leave.copy(), np.frombuffer(content, np.uint8).reshape(-1, 16)

    def _operations(self, edge_start: Int32, epsilon_start: Int32, epsilon_to: Int32) -> Int32:
        """Operation, argument, target and bounds of each state, int32 (S, 5); calls that nothing follows are marked."""
        table = np.zeros((len(self.pointer_of), 5), np.int32)
        table[list(self.ops)] = np.array(list(self.ops.values()), np.int32).reshape(-1, 5)
        only_moves = np.diff(epsilon_start) - np.diff(edge_start).astype(np.bool_) * 2 == 1
        goes_on = np.where(only_moves & (table[:, 0] == NONE), epsilon_start[:-1], -1).tolist()
        for state in np.flatnonzero(table[:, 0] == CALL).tolist():
            end = int(table[state, 2])
            while goes_on[end] >= 0:
                end = int(epsilon_to[goes_on[end]])
            if table[end, 0] == RETURN:
                table[state, 2] = TAIL
        return table


def _by_state(rows: Int32, count: int) -> tuple[Int32, Int32]:
    """Sort rows by their first column, keeping their order, and say where those of each state begin."""
    states: NDArray[np.int32] = rows[:, 0]
    start = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(states, minlength=count), out=start[1:])
    return start, rows[np.argsort(states, kind="stable")]
