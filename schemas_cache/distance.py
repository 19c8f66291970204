"""How far each NFA state is from the end of its block, in bytes; infinite where the end cannot be reached.

In: an `Nfa`. Out: int64 (S,), the fewest bytes from a state to its block's RETURN, LOOP or LEAVE. A state at infinite
distance is a dead end: the automaton never makes a configuration of it, so every configuration it makes can reach
acceptance. For members that are counted the distance is a lower bound, exact in whether it is infinite. Cost:
one visit to each state and move, in the order of the distances. Source: Knuth, "A generalization of Dijkstra's
algorithm" (IPL 6(1), 1977).
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from schemas_cache.nfa import (
    CALL,
    COUNT,
    ENTER,
    GO_ON,
    LEAVE,
    LOOP,
    LOOPED,
    NONE,
    PASS,
    PICK,
    PICKED,
    RETURN,
    TAIL,
    Nfa,
)
from schemas_cache.work import spend

INFINITE = np.int64(2**62)
_FARTHEST = 2**61  # what finite sums are clipped at
_BY_OPERATION = -1
_GO_ON_KEY = -2  # beside the members' numbers, and MORE
_ONWARD = frozenset({COUNT, PASS, PICK, GO_ON})


def block_distances(nfa: Nfa) -> NDArray[np.int64]:
    """Compute the distances, nearest states first; O(moves + states * log(distances))."""
    far = int(INFINITE)
    begin, users, steps = _users(nfa)
    through = _Operations(nfa)
    distance = [0 if kind in (LOOP, RETURN, LEAVE) else far for kind in nfa.op.tolist()]
    spend(nfa.states)
    near: dict[int, list[int]] = {0: [state for state, known in enumerate(distance) if known == 0]}
    order = [0]  # a heap of the distances that there are
    while order:
        reached = heapq.heappop(order)
        for state in (queue := near.pop(reached)):  # grows while it is read: moves without a byte
            if distance[state] < reached:
                continue
            for at in range(begin[state], begin[state + 1]):
                user, step = users[at], steps[at]
                found = reached + step if step != _BY_OPERATION else through.distance(user, distance)
                if found < distance[user]:
                    distance[user] = found
                    if found == reached:
                        queue.append(user)
                    elif found in near:
                        near[found].append(user)
                    else:
                        near[found] = [user]
                        heapq.heappush(order, found)
    return np.array(distance, np.int64)


def _users(nfa: Nfa) -> tuple[list[int], list[int], list[int]]:
    """From begin[s] on: who may come nearer when state s does, and the bytes between, or _BY_OPERATION."""
    states = np.arange(nfa.states, dtype=np.int32)
    operations = np.array(_uses_of_operations(nfa), np.int32).reshape(-1, 2)
    groups = (
        (np.repeat(states, np.diff(nfa.edge_start)), nfa.edge_to, 1),
        (np.repeat(states, np.diff(nfa.epsilon_start)), nfa.epsilon_to, 0),
        (operations[:, 0], operations[:, 1], _BY_OPERATION),
    )
    users = np.concatenate([sources for sources, _, _ in groups])
    used = np.concatenate([targets for _, targets, _ in groups])
    steps = np.concatenate([np.full(len(targets), step, np.int32) for _, targets, step in groups])
    order = np.lexsort((users, used))
    begin = np.searchsorted(used[order], np.arange(nfa.states + 1))
    return begin.tolist(), users[order].tolist(), steps[order].tolist()


def _uses_of_operations(nfa: Nfa) -> list[tuple[int, int]]:
    """Each state with an operation, with each state that its distance depends on."""
    picks, found = _picks(nfa), list[tuple[int, int]]()
    for state in np.flatnonzero(nfa.op != NONE).tolist():
        op, arg, to = int(nfa.op[state]), int(nfa.op_arg[state]), int(nfa.op_to[state])
        needed = [arg, to] if op == CALL and to != TAIL else [arg] if op == CALL else [to] if op in _ONWARD else []
        if op == ENTER:
            needed = [int(part[arg]) for part in (nfa.repeat_body, nfa.repeat_again, nfa.repeat_exit)]
            needed += picks.get(arg, {}).values()
        found += [(state, other) for other in needed]
    return found


class _Operations:
    """Distances by the operation of a state, from those of the states that it leads to."""

    def __init__(self, nfa: Nfa) -> None:
        self._nfa, self._picks = nfa, _picks(nfa)

    def distance(self, state: int, known: list[int]) -> int:
        """Distance of a state that carries an operation."""
        op, arg, to = (int(part[state]) for part in (self._nfa.op, self._nfa.op_arg, self._nfa.op_to))
        if op == CALL:
            return _sum(known[arg], 0 if to == TAIL else known[to])
        if op != ENTER:
            return known[to]
        return self._all_picked(arg, known) if self._nfa.repeat_kind[arg] == PICKED else self._round_trip(arg, known)

    def _all_picked(self, repeat: int, known: list[int]) -> int:
        """Fewest bytes of all members that have to be there, in any order, and on to the end of the block."""
        nfa, picks = self._nfa, self._picks[repeat]
        lengths = {member: known[state] for member, state in picks.items() if member != _GO_ON_KEY}
        begin, end = int(nfa.pick_start[repeat]), int(nfa.pick_start[repeat + 1])
        required = [lengths.get(int(i), int(INFINITE)) for i in np.flatnonzero(nfa.pick_required[begin:end])]
        shortest, count = min(lengths.values()), max(len(required), int(nfa.repeat_min[repeat]), 1)
        besides = count - len(required)
        separator = 0
        if count > 1:
            separator = _difference(known[picks[_GO_ON_KEY]], known[int(nfa.repeat_body[repeat])])
        parts = (*required, besides * shortest if besides else 0, (count - 1) * separator)
        return _sum(*(min(part, int(INFINITE)) for part in parts), known[int(nfa.repeat_exit[repeat])])

    def _round_trip(self, repeat: int, known: list[int]) -> int:
        """Fewest bytes through a repeat and on to the end of the surrounding block.

        For members that are counted it is a lower bound: how many there have to be is not looked at.
        """
        nfa = self._nfa
        further = max(int(nfa.repeat_min[repeat]), 1) - 1 if nfa.repeat_kind[repeat] == LOOPED else 0
        once, leave = known[int(nfa.repeat_body[repeat])], known[int(nfa.repeat_exit[repeat])]
        again = known[int(nfa.repeat_again[repeat])] if further else 0
        return _sum(once, leave, again if again >= INFINITE else min(further * again, _FARTHEST))


def _picks(nfa: Nfa) -> dict[int, dict[int, int]]:
    """For each repeat in any order: where each member is picked, and under `_GO_ON_KEY` where its separator begins."""
    picks: dict[int, dict[int, int]] = {}
    for state in np.flatnonzero((nfa.op == PICK) | (nfa.op == GO_ON)).tolist():
        key = int(nfa.op_low[state]) if nfa.op[state] == PICK else _GO_ON_KEY
        picks.setdefault(int(nfa.op_arg[state]), {})[key] = state
    return picks


def _difference(far: int, near: int) -> int:
    return int(INFINITE) if far >= INFINITE or near >= INFINITE else far - near


def _sum(*distances: int) -> int:
    """Add up, so that what is only very far does not become infinite."""
    return int(INFINITE) if max(distances) >= INFINITE else min(sum(distances), _FARTHEST)
