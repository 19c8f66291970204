"""Languages of keys: what `patternProperties`, `propertyNames` and declared names leave for each kind of key.

In: patterns, and a language of all keys that are allowed. Out: `FiniteAutomaton`s over values, disjoint: one for each
combination of patterns that some key matches. So patterns that overlap are conjoined exactly, and a key that matches
none is a further kind. Cost: a product for each pattern and kind; bounded. Rejected: one alternative for each pattern
(a key that matches two would satisfy one of them only).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from schemas_cache.automaton import DEAD, START
from schemas_cache.code_points import ANY
from schemas_cache.finite import FiniteAutomaton
from schemas_cache.grammar import CharClass, char_class, concat, repeat
from schemas_cache.limits import MAX_KEY_KINDS, MAX_LISTED_KEYS
from schemas_cache.machines import intersect, is_empty, machine_of, subtract
from schemas_cache.pattern import search_language

_PRINTABLE = range(0x20, 0x7F)


class TooManyKindsError(Exception):
    """Patterns overlap in more than `MAX_KEY_KINDS` combinations; says so in words."""

    def __init__(self) -> None:
        super().__init__(f"the patterns overlap in more than {MAX_KEY_KINDS} combinations")


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Keys that match exactly these patterns."""

    matched: frozenset[str]
    keys: FiniteAutomaton


@lru_cache(maxsize=256)
def pattern_keys(pattern: str) -> FiniteAutomaton:
    """All keys in which a pattern matches; raises `PatternError` and `MachineTooLargeError`."""
    return machine_of(search_language(pattern))


def kinds(keys: FiniteAutomaton, patterns: Iterable[str]) -> list[Kind]:
    """Tell `keys` apart by the patterns that they match; raises `MachineTooLargeError` and `TooManyKindsError`."""
    found = [] if is_empty(keys) else [Kind(frozenset(), keys)]
    for pattern in patterns:
        matching = pattern_keys(pattern)
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
    return found


def listed(keys: FiniteAutomaton) -> list[str] | None:
    """All keys of a language in order, shorter ones first, where they are `MAX_LISTED_KEYS` at most, else None."""
    level: list[tuple[bytes, int]] = [(b"", START)] if not is_empty(keys) else []
    texts: list[str] = []
    while level:
        texts += [text.decode() for text, state in level if keys.accepting[state]]
        level = [(text + bytes([byte]), to) for text, state in level for byte, to in _onward(keys, state)]
        if max(len(texts), len(level)) > MAX_LISTED_KEYS:  # every beginning leads to a key of its own
            return None
    return texts


def by_first_character(keys: FiniteAutomaton) -> list[FiniteAutomaton]:
    """The same keys in parts, so that keys of two parts are never equal: by printable ASCII first characters."""
    first = [char_class([(code, code)]) for code in _PRINTABLE if keys.next_state[START, keys.alphabet.class_of[code]]]
    parts = [intersect(keys, machine_of(concat(char, repeat(CharClass(ANY), 0, None)))) for char in first]
    plain = char_class([(_PRINTABLE.start, _PRINTABLE.stop - 1)])
    parts.append(subtract(keys, machine_of(concat(plain, repeat(CharClass(ANY), 0, None)))))
    return [part for part in parts if not is_empty(part)]


def _onward(keys: FiniteAutomaton, state: int) -> list[tuple[int, int]]:
    """Bytes that can come next, each with the state behind it."""
    following = keys.next_state[state, keys.alphabet.class_of].tolist()
    return [(byte, to) for byte, to in enumerate(following) if to != DEAD]
