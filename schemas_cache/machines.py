"""Finite automata over the UTF-8 of values, and what the front ends do with them: and, not, lengths.

In: value-level expressions. Out: `FiniteAutomaton`s, combined, and as expressions again (`Machine`). So `pattern` and
`maxLength` and `format` and `not` on one string are a product, exact whatever they are, before anything is spelled as
JSON. Every automaton here accepts well-formed UTF-8 only, so a code point is a byte that is no continuation byte.

Cost: a product visits the pairs of states that are reached; bounded, since an intersection may multiply. Sources:
Rabin and Scott, "Finite automata and their decision problems" (1959), for the product and the complement. Rejected:
derivatives of extended expressions, which need no product but a simplifier that is never strong enough.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from schemas_cache.alphabet import Alphabet, build_alphabet
from schemas_cache.automaton import DEAD, START, Automaton
from schemas_cache.code_points import ANY
from schemas_cache.finite import FiniteAutomaton, explore, minimize
from schemas_cache.grammar import NEVER, CharClass, Expr, Grammar, Machine, char_class, repeat
from schemas_cache.limits import MAX_MACHINE_STATES, Limits
from schemas_cache.spelling import utf8
from schemas_cache.thompson import build_nfa
from schemas_cache.work import spend

_LIMITS = Limits(max_states=2 * MAX_MACHINE_STATES)
_MINIMIZED_STATES = 1_000  # beyond, refining partitions takes longer than the states it saves
_CONTINUATION = np.arange(256) & 0xC0 == 0x80


class MachineTooLargeError(Exception):
    """An automaton needs more than `MAX_MACHINE_STATES` states; says so in words."""

    def __init__(self) -> None:
        super().__init__(f"it needs more than {MAX_MACHINE_STATES} states of an automaton, which is the limit")


def machine_of(expr: Expr) -> FiniteAutomaton:
    """Build the smallest automaton of a value-level expression.

    Raises
    ------
    MachineTooLargeError
        Beyond `MAX_MACHINE_STATES`.
    """
    nfa = build_nfa(Grammar("value", {"value": utf8(expr, None)}))
    finite = explore(Automaton(nfa, build_alphabet(nfa), _LIMITS), MAX_MACHINE_STATES)
    if finite is None:
        raise MachineTooLargeError
    return _small(finite)


@lru_cache(maxsize=1)
def any_text() -> FiniteAutomaton:
    """All values: well-formed UTF-8."""
    return machine_of(repeat(CharClass(ANY), 0, None))


@lru_cache(maxsize=8)
def texts_of(characters: frozenset[str]) -> FiniteAutomaton:
    """All values of these characters."""
    return machine_of(repeat(char_class((ord(char), ord(char)) for char in characters), 0, None))


def intersect(one: FiniteAutomaton, other: FiniteAutomaton) -> FiniteAutomaton:
    """What both accept; raises `MachineTooLargeError`."""
    return _product(one, other, lambda a, b: a & b, needs=(True, True))


def subtract(one: FiniteAutomaton, other: FiniteAutomaton) -> FiniteAutomaton:
    """What the first accepts and the second does not; raises `MachineTooLargeError`."""
    return _product(one, other, lambda a, b: a & ~b, needs=(True, False))


def unite(one: FiniteAutomaton, other: FiniteAutomaton) -> FiniteAutomaton:
    """What either accepts; raises `MachineTooLargeError`."""
    return _product(one, other, lambda a, b: a | b, needs=(False, False))


def with_length(machine: FiniteAutomaton, minimum: int, maximum: int | None) -> FiniteAutomaton:
    """What `machine` accepts of so many code points; raises `MachineTooLargeError`.

    States are pairs of a state and a count, which stops at the minimum where there is no maximum.
    """
    alphabet = _joint_alphabet(machine.alphabet, Alphabet(_CONTINUATION.astype(np.uint8), _two_bytes(), _two_counts()))
    letters = machine.alphabet.class_of[alphabet.representative]
    counted = ~_CONTINUATION[alphabet.representative]
    most = minimum if maximum is None else maximum

    def follow(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        state, count = pairs[:, 0, None], pairs[:, 1, None]
        following = machine.next_state[state, letters].astype(np.int64)
        counts = np.minimum(count + counted, most) if maximum is None else count + counted
        following[counts > most] = DEAD
        return np.stack([following, np.where(following == DEAD, 0, counts)], axis=-1)

    def accept(pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        return machine.accepting[pairs[:, 0]] & (pairs[:, 1] >= minimum)

    return _small(_crawl(alphabet, (START, 0), follow, accept))


def is_empty(machine: FiniteAutomaton) -> bool:
    """Whether it accepts nothing at all."""
    return not machine.accepting.any()


def expr_of(machine: FiniteAutomaton) -> Expr:
    """Return the automaton as an expression; `NEVER` where it accepts nothing."""
    if is_empty(machine):
        return NEVER
    return Machine(machine.alphabet.class_of, machine.next_state, machine.accepting)


def trim(finite: FiniteAutomaton) -> FiniteAutomaton:
    """Send every transition that cannot reach acceptance to the dead state, and drop such states."""
    alive = _reaches_acceptance(finite)
    kept = np.flatnonzero(alive | (np.arange(len(alive)) <= START))
    number = np.zeros(len(alive), np.int32)
    number[kept] = np.arange(len(kept))
    number[~alive] = DEAD
    return FiniteAutomaton(finite.alphabet, number[finite.next_state[kept]], finite.accepting[kept])


def _small(finite: FiniteAutomaton) -> FiniteAutomaton:
    finite = trim(finite)
    return minimize(finite) if finite.states <= _MINIMIZED_STATES else finite


def _reaches_acceptance(finite: FiniteAutomaton) -> NDArray[np.bool_]:
    """Breadth first against the transitions, bool (S,)."""
    sources = np.repeat(np.arange(len(finite.next_state)), finite.next_state.shape[1])
    targets = finite.next_state.ravel()
    order = np.argsort(targets, kind="stable")
    begin = np.searchsorted(targets[order], np.arange(len(finite.next_state) + 1))
    alive = finite.accepting.copy()
    level = np.flatnonzero(alive)
    while len(level):
        before = np.concatenate([sources[order[begin[state] : begin[state + 1]]] for state in level])
        level = np.unique(before[~alive[before]])
        alive[level] = True
    alive[DEAD] = False
    return alive


def _joint_alphabet(one: Alphabet, other: Alphabet) -> Alphabet:
    """Classes that both tell apart or neither does."""
    pairs = one.class_of.astype(np.int32) * 256 + other.class_of
    _, representative, class_of, size = np.unique(pairs, return_index=True, return_inverse=True, return_counts=True)
    return Alphabet(class_of.astype(np.uint8), representative.astype(np.uint8), size.astype(np.int32))


def _two_bytes() -> NDArray[np.uint8]:
    return np.array([0x00, 0x80], np.uint8)


def _two_counts() -> NDArray[np.int32]:
    return np.array([192, 64], np.int32)


def _product(
    one: FiniteAutomaton,
    other: FiniteAutomaton,
    combine: Callable[[NDArray[np.bool_], NDArray[np.bool_]], NDArray[np.bool_]],
    needs: tuple[bool, bool],
) -> FiniteAutomaton:
    """Pairs of states that are reached together; `needs`: which of the two must not be dead."""
    alphabet = _joint_alphabet(one.alphabet, other.alphabet)
    letters = one.alphabet.class_of[alphabet.representative], other.alphabet.class_of[alphabet.representative]

    def follow(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        first = one.next_state[pairs[:, 0, None], letters[0]].astype(np.int64)
        second = other.next_state[pairs[:, 1, None], letters[1]].astype(np.int64)
        lost = (needs[0] & (first == DEAD)) | (needs[1] & (second == DEAD))
        return np.stack([np.where(lost, DEAD, first), np.where(lost, DEAD, second)], axis=-1)

    def accept(pairs: NDArray[np.int64]) -> NDArray[np.bool_]:
        return combine(one.accepting[pairs[:, 0]], other.accepting[pairs[:, 1]])

    return _small(_crawl(alphabet, (START, START), follow, accept))


def _crawl(
    alphabet: Alphabet,
    start: tuple[int, int],
    follow: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    accept: Callable[[NDArray[np.int64]], NDArray[np.bool_]],
) -> FiniteAutomaton:
    """Explore pairs level by level; the pair (0, 0) is dead.

    `follow` takes pairs (N, 2) to pairs (N, C, 2), `accept` takes pairs (N, 2) to bool (N,).
    """
    number = {(0, 0): DEAD, start: START}
    rows: list[NDArray[np.int32]] = [np.zeros((1, alphabet.classes), np.int32)]
    accepting = [np.zeros(1, np.bool_)]
    level = np.array([start], np.int64)
    while len(level):
        following = follow(level)
        spend(50 + following.size // 4)
        codes, inverse = np.unique(following[..., 0] << 32 | following[..., 1], return_inverse=True)
        pairs = [(code >> 32, code & 0xFFFFFFFF) for code in codes.tolist()]
        fresh = [pair for pair in pairs if pair not in number]
        for pair in fresh:
            number[pair] = len(number)
        if len(number) > MAX_MACHINE_STATES:
            raise MachineTooLargeError
        numbers = np.array([number[pair] for pair in pairs], np.int32)
        rows.append(numbers[inverse.reshape(-1)].reshape(following.shape[:2]))
        accepting.append(accept(level))
        level = np.array(fresh, np.int64).reshape(-1, 2)
    return FiniteAutomaton(alphabet, np.concatenate(rows), np.concatenate(accepting))
