"""Automaton times trie: one row of bits for each state, computed on first visit and shared by what looks alike.

In: an `Automaton` and a `Vocabulary`. Out: `MaskRows`, packed rows: bit t % 32 of word t // 32 is 1 when token t is
allowed, decided over all bytes of the token. End tokens are allowed exactly where the text may end, special tokens
never.

A row's key is a digest of what one token can see: NFA states, counts clipped beyond the longest token, frames cut where
the longest token cannot reach. So the positions of a long string and the elements of an array share rows, and rows
learnt by different processes merge without conflict.

Inside strings the key says so in words that mean the same in every schema (see `text_sight`), and the row is shared by
all schemas of the vocabulary. A state that is inside a string and in something else too (a key that may be a declared
name or any other) allows what either allows: the shared row, and the few tokens that the rest takes. Elsewhere a row
costs little more than such a key would: a handful of bytes can follow, and the keys are those of one schema.

Rows that were learnt before a restart, or by other processes, are asked for with `stored` before they are computed.

A vocabulary with holes is the exception on both counts: see `reach`.

In the body of a free string every plain token (whole characters, none of which needs an escape) is allowed as a block,
those no longer than the characters left; only the trie of the other tokens is walked.

Cost: a look-up for a state seen before; a digest (some tens of microseconds) for a new state whose row is known; a walk
otherwise, of 0.1 ms where few bytes can follow and 0.4 ms and more in strings. Rejected: deciding by a token's first
character, which lets broken texts through.

Threads: any number may read and compute; rows are added under the automaton's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from schemas_cache.automaton import END, Automaton
from schemas_cache.closure import Configurations
from schemas_cache.nfa import NOT_FREE, UNBOUNDED
from schemas_cache.reach import Reach
from schemas_cache.sight import DIGEST_BYTES, EVERYTHING, Sight, is_shared
from schemas_cache.text_sight import TextSight
from schemas_cache.token_index import TokenIndex
from schemas_cache.token_walk import allowed_tokens
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
        self.stored: Callable[[bytes], bytes | None] = _nothing  # packed row of a digest, from elsewhere
        self._rows: dict[bytes, int] = {}
        self._computed: list[bytes] = []  # digests of the rows that did not come from `stored`
        self.described = 0  # states whose digest is known
        self._digests = b""  # of the states that were restored, one after another
        self._digest_of_state = np.zeros(0, np.int32)  # int32 (<= S,): which of them, or NOT_COMPUTED
        self.reach = Reach(automaton, index) if index.vocabulary.has_holes else None
        self._sight = Sight(automaton, EVERYTHING if self.reach else index.vocabulary.longest_token_bytes)
        self._known_texts: TextSight | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, state: int) -> int:
        """Return the number of a state's row in `bits`, computing it on first visit."""
        if state < len(self.row_of_state) and self.row_of_state[state] != NOT_COMPUTED:
            return int(self.row_of_state[state])
        with self.automaton.lock, self.automaton.expanding():
            digest = self._digest(state)
            row = self._rows.get(digest)
            if row is None:
                words = self._fetch(digest)
                row = self._add(digest, self._work_out(state)) if words is None else self._keep(digest, words)
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
        free = self._free_characters(state)
        ends = self.index.vocabulary.end_ids if self.automaton.accepting[state] and state != END else ()
        if self.reach is not None:
            few, many = list[int](), [self.reach.walk(self.index.trie, state)[0]]
        elif free and (free >= self.index.longest_plain or self._only_free_text(state)):
            plain = self.index.plain_ids[: self.index.plain_up_to(free)]
            few, many = [], [plain, walk(self.automaton, self.index.leaving, state)[0]]
        else:
            few, others = allowed_tokens(self.automaton, self.index, state)
            many = [others] if len(others) else []
        return _with_tokens(self._packed(many), (*few, *ends))

    def _packed(self, token_ids: list[NDArray[np.int32]]) -> Words:
        """Set the bits of many tokens."""
        if not token_ids:
            return np.zeros(self.words, np.uint32)
        allowed = np.zeros(self.words * 32, np.bool_)
        for some in token_ids:
            allowed[some] = True
        return pack_mask(allowed)

    def counted_block(self, state: int) -> int:
        """Most characters of plain tokens that can be taken as counted free characters here, and as nothing else.

        Such a token leads to a state that depends on its length alone. 0 where there are none.
        """
        nfa = self.automaton.nfa
        if self.reach is not None or any(
            nfa.free_text[at] == UNBOUNDED for at, _ in self.automaton.configurations[state]
        ):
            return 0
        free = self._free_characters(state)
        return free if free and self._only_free_text(state) else 0

    def put(self, state: int, allowed: NDArray[np.bool_]) -> None:
        """Take a row worked out elsewhere, bool (V,)."""
        padded = np.zeros(self.words * 32, np.bool_)
        padded[: len(allowed)] = allowed
        with self.automaton.lock:
            digest = self._digest(state)
            row = self._rows.get(digest)
            self._assign(state, self._add(digest, pack_mask(padded)) if row is None else row)

    def learned(self) -> dict[bytes, bytes]:
        """Return every row by its digest, as bytes."""
        with self.automaton.lock:
            return {digest: self.bits[row].tobytes() for digest, row in self._rows.items()}

    @property
    def distinct(self) -> int:
        """How many rows are known, those that were restored and not looked at yet included."""
        return len({*self._rows, *self._restored()})

    @property
    def computed_rows(self) -> int:
        """How many rows did not come from `stored`."""
        return len(self._computed)

    def computed(self, since: int) -> dict[bytes, bytes]:
        """Return the rows that did not come from `stored`, from the `since`th on, by their digests."""
        with self.automaton.lock:
            return {digest: self.bits[self._rows[digest]].tobytes() for digest in self._computed[since:]}

    def add(self, rows: dict[bytes, bytes]) -> None:
        """Take rows that another process computed; those of another width are ignored."""
        with self.automaton.lock:
            for digest, data in rows.items():
                if digest not in self._rows and len(data) == 4 * self.words:
                    self._add(digest, np.frombuffer(data, np.uint32))

    def digests(self, states: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        """Return the digests known for the first `states` states.

        Returns
        -------
        digests, which : uint8 (R, 16), int32 (S,)
            Distinct digests, and for each state the place of its own, or NOT_COMPUTED.
        """
        with self.automaton.lock:
            own = list(self._rows)
            restored = self._restored()
            distinct = {digest: place for place, digest in enumerate(dict.fromkeys([*own, *restored]))}
            places = np.array([*(distinct[digest] for digest in [*own, *restored]), NOT_COMPUTED], np.int32)
            computed, known = self.row_of_state[:states], self._digest_of_state[:states]
            which = np.full(states, NOT_COMPUTED, np.int32)
            which[: len(known)] = np.where(known == NOT_COMPUTED, NOT_COMPUTED, places[len(own) + known])
            which[: len(computed)] = np.where(computed == NOT_COMPUTED, which[: len(computed)], places[computed])
            return np.frombuffer(b"".join(distinct), np.uint8).reshape(-1, DIGEST_BYTES), which

    def adopt(self, digests: NDArray[np.uint8], states: NDArray[np.int32], which: NDArray[np.int32]) -> None:
        """Take the digests of states as another process learnt them: uint8 (R, 16), int32 (K,), int32 (K,)."""
        with self.automaton.lock:
            before, room = len(self._digests) // DIGEST_BYTES, len(self.automaton)
            table = np.full(room, NOT_COMPUTED, np.int32)
            table[: len(self._digest_of_state)] = self._digest_of_state
            self.described += int((table[states] == NOT_COMPUTED).sum())
            table[states] = before + which
            self._digests += digests.tobytes()
            self._digest_of_state = table

    def _restored(self) -> list[bytes]:
        return [self._digests[at : at + DIGEST_BYTES] for at in range(0, len(self._digests), DIGEST_BYTES)]

    def _digest(self, state: int) -> bytes:
        """Return the digest of what a token can see from a state."""
        place = self._digest_of_state[state] if state < len(self._digest_of_state) else NOT_COMPUTED
        if place == NOT_COMPUTED:
            self.described += 1
            inside, elsewhere = self._split(state)
            return self._sight.digest(state) if elsewhere or not inside else self._texts.name(inside)
        return self._digests[DIGEST_BYTES * place : DIGEST_BYTES * (place + 1)]

    @property
    def _texts(self) -> TextSight:
        """Made when it is first needed: it takes the tables of an automaton that may not be built yet."""
        if self._known_texts is None:
            self._known_texts = TextSight(self.automaton, self._sight, self.index.remainders)
        return self._known_texts

    def _split(self, state: int) -> tuple[Configurations, Configurations]:
        """Tell apart what is inside texts and what is not; twice () where there is nothing worth sharing."""
        automaton = self.automaton
        configurations = automaton.configurations[state]
        if self.reach is not None or automaton.accepting[state] or not len(automaton.nfa.text_first):
            return (), ()
        if automaton.closure.few_bytes(configurations) is not None:
            return (), ()
        return self._texts.split(configurations)

    def _work_out(self, state: int) -> Words:
        """Work out a row, with what is known of the texts that the state is in: each token takes one of both ways."""
        inside, elsewhere = self._split(state)
        if not inside or not elsewhere or self.automaton.closure.few_bytes(elsewhere) is None:
            return self.compute(state)
        within, beside = (self.automaton.state_of(part, accepting=False) for part in (inside, elsewhere))
        row = self.row(within)  # may replace the array
        words: Words = self.bits[row].copy()
        if self._free_characters(within) >= self.index.longest_plain:
            return _with_tokens(words, walk(self.automaton, self.index.leaving, beside)[0].tolist())
        few, many = allowed_tokens(self.automaton, self.index, beside)
        return _with_tokens(words | self._packed([many]) if len(many) else words, few)

    def _fetch(self, digest: bytes) -> Words | None:
        """Return a row that was learnt elsewhere, or None."""
        words = self.index.shared_rows.find(digest) if is_shared(digest) else None
        if words is not None:
            return words
        data = self.stored(digest)
        return np.frombuffer(data, np.uint32) if data is not None and len(data) == 4 * self.words else None

    def _add(self, digest: bytes, words: Words) -> int:
        """Take a row that nobody has stored yet."""
        self._computed.append(digest)
        return self._keep(digest, words)

    def _keep(self, digest: bytes, words: Words) -> int:
        row = len(self._rows)
        if row == len(self.bits):
            grown = np.zeros((2 * len(self.bits), self.words), np.uint32)  # what is not written to takes no memory
            grown[: len(self.bits)] = self.bits
            self.bits = grown
        self.bits[row] = words
        self._rows[digest] = row
        if is_shared(digest):
            self.index.shared_rows.add(digest, words)
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


def _with_tokens(words: Words, token_ids: Iterable[int]) -> Words:
    """Set the bits of a few tokens, in place."""
    bits = words.data
    for token_id in token_ids:
        bits[token_id >> 5] |= 1 << (token_id & 31)
    return words


def pack_mask(allowed: NDArray[np.bool_]) -> Words:
    """Pack bool (32 W,), True for allowed tokens, into uint32 (W,): bit t % 32 of word t // 32."""
    return np.packbits(allowed, bitorder="little").view("<u4").astype(np.uint32, copy=False)


def _nothing(_digest: bytes) -> None:
    """Find no row."""
