"""Whole exploration and minimisation, for automata that are finite.

In: an `Automaton`. Out: `FiniteAutomaton`, every state and transition as an array, or None when there are more states
than asked for (recursion has no end). Cost: one closure for each live (state, class) pair; minimisation is Moore's
partition refinement in numpy, O(S * C) for each round, at most S rounds and in practice about the longest literal.
Source: Moore, "Gedanken-experiments on sequential machines" (1956). Rejected: Hopcroft's algorithm, whose better bound
does not pay where a round is one vectorised pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from schemas_cache.alphabet import Alphabet
from schemas_cache.automaton import DEAD, START, Automaton
from schemas_cache.work import spend


@dataclass(frozen=True, slots=True, eq=False)
class FiniteAutomaton:
    """A whole automaton; state 0 is dead, state 1 is where texts start."""

    alphabet: Alphabet
    next_state: NDArray[np.int32]  # int32 (S, C)
    accepting: NDArray[np.bool_]  # bool (S,)

    @property
    def states(self) -> int:
        """How many states there are, the dead one left out."""
        return len(self.accepting) - 1

    def accepts(self, data: bytes) -> bool:
        """Whether a whole text is accepted."""
        state = START
        for byte in data:
            state = int(self.next_state[state, self.alphabet.class_of[byte]])
        return bool(self.accepting[state])


def explore(automaton: Automaton, max_states: int) -> FiniteAutomaton | None:
    """Visit every state that bytes can reach; None when there are more than `max_states`."""
    number = {DEAD: 0, START: 1}
    order = [DEAD, START]
    letters = np.arange(automaton.alphabet.classes, dtype=np.uint8)
    rows = [np.zeros(len(letters), np.int32)]
    while len(rows) < len(order):
        spend(20 + len(letters) // 4)
        following = automaton.step_many(np.full(len(letters), order[len(rows)], np.int32), letters)
        for to in np.unique(following).tolist():
            if to not in number:
                number[to] = len(order)
                order.append(to)
        if len(order) - 1 > max_states:
            return None
        rows.append(np.array([number[to] for to in following.tolist()], np.int32))
    accepting = np.array([automaton.accepting[state] for state in order])
    return FiniteAutomaton(automaton.alphabet, np.stack(rows), accepting)


def minimize(finite: FiniteAutomaton) -> FiniteAutomaton:
    """Merge states that no continuation tells apart; numbered by first visit, so that equal languages look equal."""
    block = finite.accepting.astype(np.int64)
    while True:
        spend(finite.next_state.size // 8)
        refined = _refine(block, finite.next_state)
        if refined.max() == block.max():
            return _renumber(finite, refined)
        block = refined


def _refine(block: NDArray[np.int64], next_state: NDArray[np.int32]) -> NDArray[np.int64]:
    """Tell states apart by their block and those of all that follow; several columns at once in an integer."""
    bits = max(int(block.max()).bit_length(), 1)
    columns = [block, *block[next_state].T]
    packed = [
        reduce(lambda packed, column: packed << bits | column, columns[at : at + 62 // bits])
        for at in range(0, len(columns), 62 // bits)
    ]
    order = np.lexsort(packed)
    is_new = np.zeros(len(order), np.bool_)
    for words in packed:
        is_new[1:] |= np.diff(words[order]) != 0
    refined = np.empty(len(order), np.int64)
    refined[order] = np.cumsum(is_new)
    return refined


def _renumber(finite: FiniteAutomaton, block: NDArray[np.int64]) -> FiniteAutomaton:
    """One state for each block, in breadth-first order from the start; the dead block stays 0."""
    if block[START] == block[0]:  # accepts nothing; the start stays a state of its own
        return FiniteAutomaton(finite.alphabet, np.zeros_like(finite.next_state[:2]), finite.accepting[:2])
    number = {int(block[0]): 0}
    members = [0]
    for state in _breadth_first(finite):
        if int(block[state]) not in number:
            number[int(block[state])] = len(members)
            members.append(state)
    old = finite.next_state[members]
    next_state = np.array([[number[int(block[to])] for to in row] for row in old.tolist()], np.int32)
    return FiniteAutomaton(finite.alphabet, next_state, finite.accepting[members])


def _breadth_first(finite: FiniteAutomaton) -> list[int]:
    order, seen = [START], {START}
    for state in order:
        for to in finite.next_state[state].tolist():
            if to not in seen:
                seen.add(to)
                order.append(to)
    return order
