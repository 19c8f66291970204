"""Conditions on the characters of a number, together, as one automaton.

In: the shape that a text must have, as a regular expression, and conditions that follow the text state by state
(`decimals` and `multiples` have them). Out: a `FiniteAutomaton` over bytes, trimmed. Cost: sixteen steps of each
condition for each state that is reached, some microseconds each.

Rejected: one automaton per condition and products of those, which cost numpy calls per level and make states of each
alone that the others never let through.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from schemas_cache.alphabet import Alphabet
from schemas_cache.automaton import DEAD, START
from schemas_cache.finite import FiniteAutomaton, minimize
from schemas_cache.limits import MAX_MACHINE_STATES
from schemas_cache.machines import MachineTooLargeError, machine_of, trim
from schemas_cache.pattern import full_language
from schemas_cache.spelling import Characters
from schemas_cache.work import spend

State = tuple[Any, ...]
LETTERS = "0123456789+-.eE"
_MINIMIZED_STATES = 300  # the conditions forget what they need no longer: beyond, little is left to merge


class Condition(Protocol):
    """One condition on a number, decided while its text is read; it relies on the shape of the text."""

    @property
    def start(self) -> State:
        """Where every text starts."""

    def step(self, state: State, letter: str) -> State | None:
        """Read one more character; None: whatever follows, the condition does not hold."""

    def holds(self, state: State) -> bool:
        """Whether the text may end here."""


def spelled(characters: Characters) -> str:
    """The letters of numbers that a vocabulary has."""
    return "".join(letter for letter in LETTERS if characters is None or letter in characters)


def number_machine(shape: str, conditions: Iterable[Condition], letters: str = LETTERS) -> FiniteAutomaton:
    """The automaton of all texts of a shape, a regular expression, that keep all conditions and need no other letters.

    Raises
    ------
    MachineTooLargeError
        Beyond `MAX_MACHINE_STATES`.
    """
    follow, allowed = _shape(shape)
    conditions = tuple(conditions)
    number: dict[State, int] = {(START, *(condition.start for condition in conditions)): START}
    rows = [[DEAD] * (len(LETTERS) + 1)]
    accepting = [False]
    for state in (queue := list(number)):
        row = [DEAD]
        for letter, to in zip(LETTERS, follow[state[0]], strict=True):
            following = _follow(conditions, state, letter, to) if to and letter in letters else None
            if following is not None and following not in number:
                number[following] = len(number) + 1
                queue.append(following)
            row.append(DEAD if following is None else number[following])
        if len(number) > MAX_MACHINE_STATES:
            raise MachineTooLargeError
        spend(sum(map(bool, follow[state[0]])) * (1 + 2 * len(conditions)))
        rows.append(row)
        ends = zip(conditions, state[1:], strict=True)
        accepting.append(allowed[state[0]] and all(condition.holds(at) for condition, at in ends))
    machine = trim(FiniteAutomaton(_alphabet(), np.array(rows, np.int32), np.array(accepting)))
    return minimize(machine) if machine.states <= _MINIMIZED_STATES else machine


def _follow(conditions: tuple[Condition, ...], state: State, letter: str, to: int) -> State | None:
    following: list[Any] = [to]
    for condition, at in zip(conditions, state[1:], strict=True):
        after = condition.step(at, letter)
        if after is None:
            return None
        following.append(after)
    return tuple(following)


@lru_cache(maxsize=16)
def _shape(pattern: str) -> tuple[list[list[int]], list[bool]]:
    """Transitions by state and letter, and which states accept."""
    machine = machine_of(full_language(pattern))
    columns = machine.alphabet.class_of[[ord(letter) for letter in LETTERS]]
    return machine.next_state[:, columns].tolist(), machine.accepting.tolist()


@lru_cache(maxsize=1)
def _alphabet() -> Alphabet:
    """One class for each letter, after one for everything else."""
    class_of = np.zeros(256, np.uint8)
    class_of[[ord(letter) for letter in LETTERS]] = np.arange(1, len(LETTERS) + 1)
    representative = np.array([0, *map(ord, LETTERS)], np.uint8)
    return Alphabet(class_of, representative, np.bincount(class_of).astype(np.int32))
