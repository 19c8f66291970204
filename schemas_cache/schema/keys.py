"""Languages of keys: what `patternProperties`, `propertyNames` and declared names leave for each kind of key.

In: patterns and names. Out: `FiniteAutomaton`s over values, disjoint: one for each combination of patterns that some
key matches. So patterns that overlap are conjoined exactly, and a key that matches none is a further kind. Cost: a
product for each pattern and kind; bounded, and kept for the next object with the same patterns.

Rejected: one alternative for each pattern (a key that matches two would satisfy one of them only), and taking declared
names out before the patterns are told apart (a hundred names have a thousand states, and most kinds none of them).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from schemas_cache.alphabet import Alphabet
from schemas_cache.automaton import DEAD, START
from schemas_cache.finite import FiniteAutomaton
from schemas_cache.grammar import Expr, alt, char_class, concat
from schemas_cache.limits import MAX_KEY_KINDS, MAX_LISTED_KEYS
from schemas_cache.machines import any_text, expr_of, intersect, is_empty, machine_of, subtract, trim
from schemas_cache.schema.names import ANY_TEXT
from schemas_cache.schema.strings import pattern_machine

_PRINTABLE = range(0x20, 0x7F)
_PARTS = 16


class TooManyKindsError(Exception):
    """Patterns overlap in more than `MAX_KEY_KINDS` combinations; says so in words."""

    def __init__(self) -> None:
        super().__init__(f"the patterns overlap in more than {MAX_KEY_KINDS} combinations")


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Keys that match exactly these patterns."""

    matched: frozenset[str]
    keys: FiniteAutomaton


@lru_cache(maxsize=64)
def kinds(patterns: tuple[str, ...]) -> tuple[Kind, ...]:
    """Tell all keys apart by the patterns that they match; raises `MachineTooLargeError` and `TooManyKindsError`."""
    found = [Kind(frozenset(), any_text())]
    for pattern in patterns:
        matching = pattern_machine(pattern)
        halves = [
            half
            for kind in found
            for half in (
                Kind(kind.matched | {pattern}, intersect(kind.keys, matching)),
                Kind(kind.matched, subtract(kind.keys, matching)),
            )
        ]
        found = [half for half in halves if not is_empty(half.keys)]
        if len(found) > MAX_KEY_KINDS:
            raise TooManyKindsError
    return tuple(found)


def without(keys: FiniteAutomaton, names: Iterable[str]) -> FiniteAutomaton:
    """`keys` but for these names; raises `MachineTooLargeError`."""
    present = [name for name in names if keys.accepts(name.encode())]
    return subtract(keys, tree(present)) if present else keys


def tree(names: Iterable[str]) -> FiniteAutomaton:
    """These names and no others, as a prefix tree: nothing to determinise or to make smaller."""
    texts = [name.encode() for name in names]
    letters = sorted({byte for text in texts for byte in text})
    class_of = np.zeros(256, np.uint8)
    class_of[letters] = np.arange(1, len(letters) + 1)
    other = min(set(range(256)) - set(letters))  # no UTF-8 has every byte
    sizes = np.array([256 - len(letters), *(1 for _ in letters)], np.int32)
    rows: list[dict[int, int]] = [{}, {}]
    ends = set()
    for text in texts:
        state = START
        for letter in class_of[list(text)].tolist():
            if letter not in rows[state]:
                rows[state][letter] = len(rows)
                rows.append({})
            state = rows[state][letter]
        ends.add(state)
    next_state = np.zeros((len(rows), len(sizes)), np.int32)
    for state, row in enumerate(rows):
        next_state[state, list(row)] = list(row.values())
    alphabet = Alphabet(class_of, np.array([other, *letters], np.uint8), sizes)
    return FiniteAutomaton(alphabet, next_state, np.isin(np.arange(len(rows)), list(ends)))


def expression(keys: FiniteAutomaton) -> Expr:
    """The same keys as an expression: where anything may follow it is free text, which masks allow as a block."""
    free = _anything(keys)
    if free is None or free == START:
        return expr_of(keys) if free is None else ANY_TEXT
    states = np.arange(len(keys.accepting))
    cut = np.where((states == free)[:, None], DEAD, keys.next_state).astype(np.int32)
    before = trim(FiniteAutomaton(keys.alphabet, cut, states == free))
    others = trim(FiniteAutomaton(keys.alphabet, cut, keys.accepting & (states != free)))
    return alt(expr_of(others), concat(expr_of(before), ANY_TEXT))


def _anything(keys: FiniteAutomaton) -> int | None:
    """The state from which every text is accepted, if there is one; in a small automaton there are no two."""
    ascii_letters = np.unique(keys.alphabet.class_of[:0x80])
    loops = (keys.next_state[:, ascii_letters] == np.arange(len(keys.accepting))[:, None]).all(axis=1)
    for state in np.flatnonzero(loops & keys.accepting).tolist():
        number = np.arange(len(keys.accepting), dtype=np.int32)
        number[[START, state]] = state, START
        moved = FiniteAutomaton(keys.alphabet, number[keys.next_state[number]], keys.accepting[number])
        if is_empty(subtract(any_text(), moved)):
            return state
    return None


def listed(keys: FiniteAutomaton) -> list[str] | None:
    """All keys of a language in order, shorter ones first, where they are `MAX_LISTED_KEYS` at most, else None."""
    if is_empty(keys):
        return []
    onward: dict[int, list[tuple[int, int]]] = {}
    level: list[tuple[bytes, int]] = [(b"", START)]
    texts: list[str] = []
    for _ in range(len(keys.accepting)):  # a longer text goes round in a circle
        texts += [text.decode() for text, state in level if keys.accepting[state]]
        for _, state in level:
            if state not in onward:
                onward[state] = _onward(keys, state)
        count = sum(len(onward[state]) for _, state in level)
        if max(len(texts), count) > MAX_LISTED_KEYS:  # every beginning leads to a key of its own
            return None
        level = [(text + bytes([byte]), to) for text, state in level for byte, to in onward[state]]
    return None if level else texts


def by_first_character(keys: FiniteAutomaton) -> list[FiniteAutomaton]:
    """The same keys in parts, so that keys of two parts are never equal; raises `MachineTooLargeError`.

    One part for each value of the last four bits of a printable ASCII first character, and one for all other keys. More
    parts would be more sets of them in frames.
    """
    first = [char_class((code, code) for code in _PRINTABLE if code % _PARTS == part) for part in range(_PARTS)]
    parts = [intersect(keys, machine_of(concat(characters, ANY_TEXT))) for characters in first]
    parts.append(subtract(keys, machine_of(concat(char_class([(_PRINTABLE[0], _PRINTABLE[-1])]), ANY_TEXT))))
    return [part for part in parts if not is_empty(part)]


def _onward(keys: FiniteAutomaton, state: int) -> list[tuple[int, int]]:
    """Bytes that can come next, each with the state behind it."""
    following = keys.next_state[state, keys.alphabet.class_of].tolist()
    return [(byte, to) for byte, to in enumerate(following) if to != DEAD]
