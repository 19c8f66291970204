"""How far each NFA state is from the end of its block, in bytes; infinite where the end cannot be reached.

In: an `Nfa`. Out: int64 (S,), the fewest bytes from a state to its block's RETURN, LOOP or LEAVE. A state at infinite
distance is a dead end: the automaton never makes a configuration of it, so every configuration it makes can reach
acceptance. For members whose number is in a frame the distance is a lower bound, exact in whether it is infinite. Cost:
one visit to each state and move, in the order of the distances. Source: Knuth, "A generalization of Dijkstra's
algorithm" (IPL 6(1), 1977).
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from schemas_cache.nfa import CALL, COUNT, ENTER, GO_ON, LEAVE, LOOP, LOOPED, NONE, PASS, PICK, RETURN, TAIL, Nfa

INFINITE = np.int64(2**62)
_FARTHEST = 2**61  # what finite sums are clipped at
_BY_OPERATION = -1
_ONWARD = frozenset({COUNT, PASS, PICK, GO_ON})


def block_distances(nfa: Nfa) -> NDArray[np.int64]:
    """Compute the distances, nearest states first; O(moves * log(states))."""
    far = int(INFINITE)
    users = _users(nfa)
    through = _Operations(nfa)
    distance = [0 if kind in (LOOP, RETURN, LEAVE) else far for kind in nfa.op.tolist()]
    queue = [(0, state) for state, known in enumerate(distance) if known == 0]
    while queue:
        near, state = heapq.heappop(queue)
        if near > distance[state]:
            continue
        for user, step in users[state]:
            found = near + step if step != _BY_OPERATION else through.distance(user, distance)
            if found < distance[user]:
                distance[user] = found
                heapq.heappush(queue, (found, user))
    return np.array(distance, np.int64)


def _users(nfa: Nfa) -> list[list[tuple[int, int]]]:
    """List for each state who may come nearer when it does: the state and the bytes between, or _BY_OPERATION."""
    users: list[list[tuple[int, int]]] = [[] for _ in range(nfa.states)]
    for start, targets, step in ((nfa.edge_start, nfa.edge_to, 1), (nfa.epsilon_start, nfa.epsilon_to, 0)):
        sources = np.repeat(np.arange(nfa.states), np.diff(start)).tolist()
        for source, to in zip(sources, targets.tolist(), strict=True):
            users[to].append((source, step))
    for state in np.flatnonzero(nfa.op != NONE).tolist():
        op, arg, to = int(nfa.op[state]), int(nfa.op_arg[state]), int(nfa.op_to[state])
        needed = [arg, to] if op == CALL and to != TAIL else [arg] if op == CALL else [to] if op in _ONWARD else []
        if op == ENTER:
            needed = [int(part[arg]) for part in (nfa.repeat_body, nfa.repeat_again, nfa.repeat_exit)]
        for other in needed:
            users[other].append((state, _BY_OPERATION))
    return users


class _Operations:
    """Distances by the operation of a state, from those of the states that it leads to."""

    def __init__(self, nfa: Nfa) -> None:
        self._nfa = nfa

    def distance(self, state: int, known: list[int]) -> int:
        """Distance of a state that carries an operation."""
        op, arg, to = (int(part[state]) for part in (self._nfa.op, self._nfa.op_arg, self._nfa.op_to))
        if op == CALL:
            return _sum(known[arg], 0 if to == TAIL else known[to])
        return self._round_trip(arg, known) if op == ENTER else known[to]

    def _round_trip(self, repeat: int, known: list[int]) -> int:
        """Fewest bytes through a repeat and on to the end of the surrounding block.

        For members it is a lower bound: how many there have to be is not looked at.
        """
        nfa = self._nfa
        further = max(int(nfa.repeat_min[repeat]), 1) - 1 if nfa.repeat_kind[repeat] == LOOPED else 0
        once, leave = known[int(nfa.repeat_body[repeat])], known[int(nfa.repeat_exit[repeat])]
        again = known[int(nfa.repeat_again[repeat])] if further else 0
        return _sum(once, leave, again if again >= INFINITE else min(further * again, _FARTHEST))


def _sum(*distances: int) -> int:
    """Add up, so that what is only very far does not become infinite."""
    return int(INFINITE) if max(distances) >= INFINITE else min(sum(distances), _FARTHEST)
