"""Automaton times trie: one row of bits for each state, computed on first visit and shared by what looks alike.

In: an `Automaton` and a `Vocabulary`. Out: `MaskRows`, packed rows: bit t % 32 of word t // 32 is 1 when token t is
allowed, decided over all bytes of the token. End tokens are allowed exactly where the text may end, special tokens
never.

A row's key is a digest of what one token can see: NFA states, counts clipped beyond the longest token, frames cut where
the longest token cannot reach. So the positions of a long string and the elements of an array share rows, and rows
learnt by different processes merge without conflict.

A vocabulary with holes is the exception on both counts: see `reach`.

In the body of a free string every plain token (whole characters, none of which needs an escape) is allowed as a block,
those no longer than the characters left; only the trie of the other tokens is walked.

Cost: a look-up for a state seen before; a digest (some tens of microseconds) for a new state whose row is known; a walk
otherwise. Rejected: deciding by a token's first character, which lets broken texts through.

Threads: any number may read and compute; rows are added under the automaton's lock.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from schemas_cache.automaton import END, Automaton
from schemas_cache.nfa import NOT_FREE, UNBOUNDED
from schemas_cache.reach import Reach
from schemas_cache.sight import EVERYTHING, Sight
from schemas_cache.token_index import TokenIndex
from schemas_cache.trie import walk

Words = NDArray[np.uint32]

NOT_COMPUTED = -1
_WHOLE_TEXT = 2**31
_INITIAL_ROWS = 16
_INITIAL_STATES = 256


class MaskRows:
    """Packed rows by state; grows while it is used."""

    def __init__(self, automaton: Automaton, index: TokenIndex) -> None:
        self.automaton, self.index = automaton, index
        self.words = (len(index.vocabulary) + 31) // 32
        self.row_of_state = np.full(_INITIAL_STATES, NOT_COMPUTED, np.int32)  # int32 (>= S,)
        self.bits: Words = np.zeros((_INITIAL_ROWS, self.words), np.uint32)  # uint32 (>= R, W)
        self._rows: dict[bytes, int] = {}
        self.reach = Reach(automaton, index) if index.vocabulary.has_holes else None
        self._sight = Sight(automaton, EVERYTHING if self.reach else index.vocabulary.longest_token_bytes)

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, state: int) -> int:
        """Return the number of a state's row in `bits`, computing it on first visit."""
        if state < len(self.row_of_state) and self.row_of_state[state] != NOT_COMPUTED:
            return int(self.row_of_state[state])
        with self.automaton.lock:
            digest = self._sight.digest(state)
            row = self._rows.get(digest)
            if row is None:
                row = self._add(digest, self.compute(state))
            self._assign(state, row)
            return row

    def mask(self, state: int) -> Words:
        """Return a state's row, uint32 (W,), read-only."""
        row = self.row(state)  # may replace the array
        words: Words = self.bits[row]
        words.flags.writeable = False
        return words

    def rows(self, states: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the row numbers of many states, int32 (B,) each."""
        if len(states) and int(states.max()) < len(self.row_of_state):
            found = self.row_of_state[states]
            if found.min() != NOT_COMPUTED:
                return found
        return np.array([self.row(state) for state in states.tolist()], np.int32)

    def compute(self, state: int) -> Words:
        """Work out one row, uint32 (W,), from the tries."""
        allowed = np.zeros(self.words * 32, np.bool_)
        free = self._free_characters(state)
        whole_block = free >= self.index.longest_plain
        if self.reach is not None:
            allowed[self.reach.walk(self.index.trie, state)[0]] = True
        elif free and (whole_block or self._only_free_text(state)):
            allowed[self.index.plain_ids[: self.index.plain_up_to(free)]] = True
            allowed[walk(self.automaton, self.index.leaving, state)[0]] = True
        else:
            allowed[walk(self.automaton, self.index.trie, state)[0]] = True
        if self.automaton.accepting[state] and state != END:
            allowed[list(self.index.vocabulary.end_ids)] = True
        return _pack(allowed)

    def put(self, state: int, allowed: NDArray[np.bool_]) -> None:
        """Take a row worked out elsewhere, bool (V,)."""
        padded = np.zeros(self.words * 32, np.bool_)
        padded[: len(allowed)] = allowed
        with self.automaton.lock:
            digest = self._sight.digest(state)
            row = self._rows.get(digest)
            self._assign(state, self._add(digest, _pack(padded)) if row is None else row)

    def learned(self) -> dict[bytes, bytes]:
        """Return every row by its digest, as bytes."""
        with self.automaton.lock:
            return {digest: self.bits[row].tobytes() for digest, row in self._rows.items()}

    def add(self, rows: dict[bytes, bytes]) -> None:
        """Take rows that another process learnt; those of another width are ignored."""
        with self.automaton.lock:
            for digest, data in rows.items():
                if digest not in self._rows and len(data) == 4 * self.words:
                    self._add(digest, np.frombuffer(data, np.uint32))

    def digests(self) -> list[bytes]:
        """Return the rows' digests in the order of the rows."""
        return list(self._rows)

    def adopt(self, digests: NDArray[np.uint8], bits: Words, row_of_state: NDArray[np.int32]) -> None:
        """Take rows into an empty table, as another process learnt them: uint8 (R, 16), uint32 (R, W), int32 (S,)."""
        for digest, words in zip(digests, bits, strict=True):
            self._add(digest.tobytes(), words)
        self.row_of_state = row_of_state.copy()

    def _add(self, digest: bytes, words: Words) -> int:
        row = len(self._rows)
        if row == len(self.bits):
            self.bits = np.concatenate([self.bits, np.zeros_like(self.bits)])
        self.bits[row] = words
        self._rows[digest] = row
        return row

    def _assign(self, state: int, row: int) -> None:
        if state >= len(self.row_of_state):
            room = np.full(max(state + 1, 2 * len(self.row_of_state)), NOT_COMPUTED, np.int32)
            room[: len(self.row_of_state)] = self.row_of_state
            self.row_of_state = room
        self.row_of_state[state] = row

    def _free_characters(self, state: int) -> int:
        """Most free characters that can follow; 0 outside strings, a very large number without a bound."""
        nfa, most = self.automaton.nfa, 0
        for at, frame in self.automaton.configurations[state]:
            repeat = int(nfa.free_text[at])
            if repeat == NOT_FREE:
                continue
            if repeat == UNBOUNDED or nfa.repeat_max[repeat] == UNBOUNDED:
                return _WHOLE_TEXT
            lowest = self.automaton.frames.counts(frame)[0][0]
            most = max(most, int(nfa.repeat_max[repeat]) - lowest)
        return most

    def _only_free_text(self, state: int) -> bool:
        """Whether plain tokens can only be taken as free characters: nothing beside or behind them begins plainly."""
        automaton, nfa = self.automaton, self.automaton.nfa
        bodies = [pair for pair in automaton.configurations[state] if nfa.free_text[pair[0]] != NOT_FREE]
        if len(bodies) != 1:
            return False
        body, frame = bodies[0]
        free = set(automaton.closure.important(body))
        beside = tuple(pair for pair in automaton.configurations[state] if pair[0] not in free)
        leave = int(nfa.repeat_exit[nfa.free_text[body]])
        parents = [parent for _, _, parent in automaton.frames.counts(frame)]
        behind = (pair for parent in parents for pair in automaton.closure.close({leave: parent})[0])
        letters = automaton.closure.live_letters((*beside, *behind))
        return not letters[automaton.alphabet.class_of[self.index.plain_first_bytes]].any()


def _pack(allowed: NDArray[np.bool_]) -> Words:
    return np.packbits(allowed, bitorder="little").view(np.uint32)
