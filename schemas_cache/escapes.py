"""An automaton over values becomes one over the insides of JSON strings, canonical spelling.

In: a `Machine` over UTF-8 of values. Out: a `Machine` over output bytes, in which the characters that JSON does not
allow raw are spelled by their shortest escapes, as `json.dumps` writes them. Cost: up to six states more for each state
that such a character can leave. Source: RFC 8259, section 7.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from schemas_cache.grammar import Machine

SHORT_ESCAPES = {0x22: '"', 0x5C: "\\", 0x08: "b", 0x0C: "f", 0x0A: "n", 0x0D: "r", 0x09: "t"}
"""Code point to the letter behind the backslash, for those that JSON does not allow raw."""

ESCAPES = {code: "\\" + SHORT_ESCAPES.get(code, f"u{code:04x}") for code in (*range(0x20), 0x22, 0x5C)}
"""Every character that is escaped, with its spelling."""

_PREFIXES = sorted(sorted({text[:end] for text in ESCAPES.values() for end in range(1, len(text))}), key=len)
_LETTERS = sorted({ord(letter) for text in ESCAPES.values() for letter in text})


def spell_machine(machine: Machine, characters: frozenset[str] | None) -> Machine:
    """Spell an automaton over values as the inside of a JSON string; escapes outside `characters` are left out."""
    class_of, representative = _finer_classes(machine.class_of)
    table = machine.next_state[:, machine.class_of[representative]]
    table[:, np.isin(representative, list(ESCAPES))] = 0
    spelled = {code: text for code, text in ESCAPES.items() if characters is None or set(text) <= characters}
    targets = {text: machine.next_state[:, machine.class_of[code]] for code, text in spelled.items()}
    begun = _number_prefixes(targets, len(table))
    size = len(table) + sum(int((numbers > 0).sum()) for numbers in begun.values())
    next_state = np.zeros((size, len(representative)), np.int32)
    next_state[: len(table)] = table
    for text, to in (begun | targets).items():
        before = begun.get(text[:-1], np.arange(len(table)))
        live = np.flatnonzero(to)
        next_state[before[live], class_of[ord(text[-1])]] = to[live]
    accepting = np.zeros(size, np.bool_)
    accepting[: len(table)] = machine.accepting
    if machine.counts is None or machine.between is None:
        return Machine(class_of, next_state, accepting)
    between = np.zeros(size, np.bool_)
    between[: len(table)] = machine.between
    counts = _spell_counts(machine.counts, targets, begun, size)
    return Machine(class_of, next_state, accepting, counts, between, machine.minimum, machine.maximum)


def _spell_counts(
    counts: NDArray[np.int32], targets: dict[str, NDArray[np.int32]], begun: dict[str, NDArray[np.int32]], size: int
) -> NDArray[np.int32]:
    """Counts with which new states may be entered: those with which any of the characters that they begin may end."""
    impossible = np.array([np.iinfo(np.int32).max, -1], np.int32)
    usable = np.where(counts[:, :1] <= counts[:, 1:], counts, impossible)
    usable[0] = impossible
    spelled = np.concatenate([counts, np.tile(impossible, (size - len(counts), 1))])
    for prefix, numbers in begun.items():
        made = np.flatnonzero(numbers)
        if len(made) == 0:
            continue
        ends = np.stack([usable[to[made]] for text, to in targets.items() if text.startswith(prefix)])
        spelled[numbers[made], 0] = ends[:, :, 0].min(axis=0)
        spelled[numbers[made], 1] = ends[:, :, 1].max(axis=0)
    return spelled


def _finer_classes(class_of: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Classes, uint8 (256,), that also tell apart the letters of escapes and the characters that are escaped."""
    own = np.zeros(256, np.int32)
    own[_LETTERS] = np.arange(1, len(_LETTERS) + 1)
    own[[code for code in ESCAPES if code not in _LETTERS]] = len(_LETTERS) + 1
    _, representative, finer = np.unique(class_of * np.int32(256) + own, return_index=True, return_inverse=True)
    return finer.astype(np.uint8), representative


def _number_prefixes(targets: dict[str, NDArray[np.int32]], states: int) -> dict[str, NDArray[np.int32]]:
    """Number new states: for each beginning of an escape, one for each state that can go on from it; 0 for none."""
    begun: dict[str, NDArray[np.int32]] = {}
    free = states
    for prefix in _PREFIXES:
        ways = [to for text, to in targets.items() if text.startswith(prefix)]
        needed = np.any(ways, axis=0) if ways else np.zeros(states, np.bool_)
        begun[prefix] = np.where(needed, free - 1 + np.cumsum(needed), 0).astype(np.int32)
        free += int(needed.sum())
    return begun
