"""How far each NFA state is from the end of its block, in bytes; infinite where the end cannot be reached.

In: an `Nfa`. Out: int64 (S,), the fewest bytes from a state to its block's RETURN, LOOP or LEAVE. A state at infinite
distance is a dead end: the automaton never makes a configuration of it, so every configuration it makes can reach
acceptance. For members whose number is in a frame the distance is a lower bound, exact in whether it is infinite. Cost:
a few sweeps over the moves, until nothing changes (each sweep runs against the order of construction, which is nearly
topological). Source: Knuth, "A generalization of Dijkstra's algorithm" (IPL 6(1), 1977), by relaxation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from schemas_cache.nfa import CALL, COUNT, ENTER, GO_ON, LEAVE, LOOP, LOOPED, PASS, PICK, RETURN, TAIL, Nfa

INFINITE = np.int64(2**62)
_FARTHEST = 2**61  # what finite sums are clipped at
_ONWARD = frozenset({COUNT, PASS, PICK, GO_ON})


def block_distances(nfa: Nfa) -> NDArray[np.int64]:
    """Compute the distances; O(moves) for each of a few sweeps."""
    far = int(INFINITE)
    edge_start, edge_to = nfa.edge_start.tolist(), nfa.edge_to.tolist()
    epsilon_start, epsilon_to = nfa.epsilon_start.tolist(), nfa.epsilon_to.tolist()
    op: list[int] = nfa.op.tolist()
    op_arg: list[int] = nfa.op_arg.tolist()
    op_to: list[int] = nfa.op_to.tolist()
    distance: list[int] = [0 if kind in (LOOP, RETURN, LEAVE) else far for kind in op]

    def through(state: int) -> int:
        """Distance by the state's operation."""
        if op[state] == CALL:
            return _sum(distance[op_arg[state]], 0 if op_to[state] == TAIL else distance[op_to[state]])
        if op[state] == ENTER:
            return _round_trip(nfa, op_arg[state], distance)
        return distance[op_to[state]] if op[state] in _ONWARD else far

    changed = True
    while changed:
        changed = False
        for state in range(len(op) - 1, -1, -1):
            best = min(distance[state], through(state))
            for to in edge_to[edge_start[state] : edge_start[state + 1]]:
                best = min(best, distance[to] + 1)
            for to in epsilon_to[epsilon_start[state] : epsilon_start[state + 1]]:
                best = min(best, distance[to])
            if best < distance[state]:
                distance[state], changed = best, True
    return np.minimum(np.array(distance, np.object_), far).astype(np.int64)


def _round_trip(nfa: Nfa, repeat: int, distance: list[int]) -> int:
    """Fewest bytes through a counted repeat and on to the end of the surrounding block.

    For members it is a lower bound: how many there have to be is not looked at.
    """
    further = max(int(nfa.repeat_min[repeat]), 1) - 1 if nfa.repeat_kind[repeat] == LOOPED else 0
    once, leave = distance[int(nfa.repeat_body[repeat])], distance[int(nfa.repeat_exit[repeat])]
    again = distance[int(nfa.repeat_again[repeat])] if further else 0
    return _sum(once, leave, again if again >= INFINITE else min(further * again, _FARTHEST))


def _sum(*distances: int) -> int:
    """Add up, so that what is only very far does not become infinite."""
    return int(INFINITE) if max(distances) >= INFINITE else min(sum(distances), _FARTHEST)
