"""Whether an automaton is certainly too large to explore whole, told from its NFA.

In: an `Nfa`. Out: a lower bound on the states, infinite for recursion; a count up to n means n states at least. Cost:
one pass over the moves. It saves the exploration that would only find out that there is no end to it.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from schemas_cache.nfa import CALL, ENTER, LEAVE, LOOP, LOOPED, NONE, RETURN, TAIL, Nfa

INFINITELY_MANY = 2**62


def least_states(nfa: Nfa) -> int:
    """Bound the number of states from below."""
    if _is_recursive(nfa):
        return INFINITELY_MANY
    rounds = nfa.repeat_kind == LOOPED
    return int(max(nfa.repeat_max[rounds].max(initial=1), nfa.repeat_min[rounds].max(initial=1)))


def _is_recursive(nfa: Nfa) -> bool:
    """Whether a rule calls itself, directly or through others."""
    calls: dict[int, set[int]] = {}
    todo = [nfa.start]
    while todo:
        start = todo.pop()
        if start not in calls:
            calls[start] = _called(nfa, start)
            todo.extend(calls[start])
    try:
        TopologicalSorter(calls).prepare()
    except CycleError:
        return True
    return False


def _called(nfa: Nfa, start: int) -> set[int]:
    """Collect the starts of the rules that the rule at `start` calls."""
    called, seen, todo = set[int](), {start}, [start]
    while todo:
        state = todo.pop()
        if nfa.op[state] == CALL:
            called.add(int(nfa.op_arg[state]))
        for to in _moves(nfa, state):
            if to not in seen:
                seen.add(to)
                todo.append(to)
    return called


def _moves(nfa: Nfa, state: int) -> list[int]:
    """List the states of the same rule that one move leads to."""
    op, arg = int(nfa.op[state]), int(nfa.op_arg[state])
    moves: list[int] = nfa.edge_to[nfa.edge_start[state] : nfa.edge_start[state + 1]].tolist()
    moves += nfa.epsilon_to[nfa.epsilon_start[state] : nfa.epsilon_start[state + 1]].tolist()
    if op == CALL and nfa.op_to[state] != TAIL:
        moves.append(int(nfa.op_to[state]))
    elif op == ENTER:
        moves += [int(nfa.repeat_body[arg]), int(nfa.repeat_exit[arg])]
    elif op == LOOP:
        moves.append(int(nfa.repeat_again[arg]))
    elif op not in (NONE, CALL, RETURN, LEAVE):
        moves.append(int(nfa.op_to[state]))
    return moves
