"""The automaton lifted from bytes to tokens.

In: an `Automaton` and a `TokenIndex`. Out: `TokenAutomaton`: the mask row of a state and the state after a token. For a
finite automaton and a small vocabulary the dense table of state by token is built as well, so that a step is one
look-up; otherwise a step walks the token's bytes, which are few. Cost of the table: one walk of the trie for each state
at a token's border. Source: Willard and Louf, "Efficient guided generation for large language models" (2023), section
3; the lazy rows are ours. Rejected: the table for every schema, which a vocabulary of 50,000 makes too large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas_cache.automaton import DEAD, END, START, Automaton
from schemas_cache.fewest_tokens import FewestTokens
from schemas_cache.limits import MAX_LIFTED_STATES
from schemas_cache.masks import NOT_COMPUTED, MaskRows, pack_mask
from schemas_cache.size import least_states
from schemas_cache.token_index import NO_NODE, TokenIndex
from schemas_cache.trie import Int32, walk, walk_on

_KEPT_WALKS = 4
"""States whose tokens are kept with the states after them: 0.4 MB each for 49,152 tokens. A text that is led to its end
asks again for the same one, in the body of a string that has no bound."""
_KEPT_MASKS = 256  # after the ends of prompts: 6 KB each for 49,152 tokens; many more than rows that wait at once


_LEAST_LIFTED_STATES = 64
"""Where there is room for fewer states than this, the vocabulary is too large: hardly a schema would fit."""


@dataclass(frozen=True, slots=True, eq=False)
class DenseTable:
    """State by token; D states are reachable by whole tokens."""

    states: NDArray[np.int32]  # int32 (D,): the automaton's state of each row; the first is START
    row_of_state: NDArray[np.int32]  # int32 (S,): row of each state, or NOT_COMPUTED
    next_state: NDArray[np.int32]  # int32 (D, V): the automaton's states; DEAD where forbidden, END after an end token


class TokenAutomaton:
    """Rows and steps by token. May be shared between threads."""

    def __init__(self, automaton: Automaton, index: TokenIndex) -> None:
        self.automaton, self.index = automaton, index
        self.rows = MaskRows(automaton, index)
        self.fewest = FewestTokens(automaton, index)
        self.dense: DenseTable | None = None
        self._followed: dict[int, tuple[Int32, Int32]] = {}
        self._after: dict[tuple[int, bytes], NDArray[np.uint32]] = {}
        self._token_bytes = index.vocabulary.token_bytes
        self._ends = frozenset(index.vocabulary.end_ids)

    def step(self, state: int, token_id: int) -> int:
        """Return the state after a token; DEAD where it is not allowed, END after an end token."""
        dense = self.dense
        if not 0 <= token_id < len(self._token_bytes):
            return DEAD
        if dense is not None and state < len(dense.row_of_state) and dense.row_of_state[state] != NOT_COMPUTED:
            return int(dense.next_state[dense.row_of_state[state], token_id])
        if token_id in self._ends:
            return END if self.automaton.accepting[state] and state != END else DEAD
        data = self._token_bytes[token_id]
        following = self.automaton.walk(state, data) if data else DEAD
        return following if self._finishable(following) else DEAD

    def following(self, state: int) -> tuple[Int32, Int32]:
        """Find the tokens that are allowed in a state, end tokens left out.

        Returns
        -------
        token_ids, states : int32 (K,), int32 (K,)
            The allowed tokens and the state after each.
        """
        dense = self.dense
        if dense is not None and state < len(dense.row_of_state) and dense.row_of_state[state] != NOT_COMPUTED:
            row = dense.next_state[dense.row_of_state[state]]
            token_ids = np.flatnonzero((row != DEAD) & (row != END)).astype(np.int32)
            return token_ids, row[token_ids]
        with self.automaton.lock:
            known = self._followed.pop(state, None) or self._walk(state)
            self._followed[state] = known  # the latest is the last to go
            if len(self._followed) > _KEPT_WALKS:
                del self._followed[next(iter(self._followed))]
            return known

    def _walk(self, state: int) -> tuple[Int32, Int32]:
        """Walk the tries; a block of plain tokens, all but a few of them in a string, is looked at by their lengths."""
        automaton, index, reach = self.automaton, self.index, self.rows.reach
        if reach is not None:
            return reach.walk(index.trie, state)
        characters = self.rows.counted_block(state)
        if not characters:
            return walk(automaton, index.trie, state)
        found = [walk(automaton, index.leaving, state)]
        for token_ids in index.plain_by_length(characters):
            to = automaton.walk(state, self._token_bytes[token_ids[0]])
            found.append((token_ids, np.full(len(token_ids), to, np.int32)))
        return np.concatenate([ids for ids, _ in found]), np.concatenate([states for _, states in found])

    def mask_within(self, state: int, tokens: int) -> NDArray[np.uint32]:
        """Return the mask of a state, narrowed to the tokens after which `tokens` more are enough to end the text.

        End tokens stay. uint32 (W,), not shared.
        """
        token_ids, states = self.following(state)
        distinct, which = np.unique(states, return_inverse=True)
        fits = np.array([self.fewest.fit(to, tokens) for to in distinct.tolist()], np.bool_)
        allowed = np.zeros(self.rows.words * 32, np.bool_)
        allowed[token_ids[fits[which]]] = True
        if self.automaton.accepting[state] and state != END:
            allowed[list(self._ends)] = True
        return pack_mask(allowed)

    def mask_after(self, state: int, prefix: bytes) -> NDArray[np.uint32]:
        """Return the tokens that begin with these bytes and go on with what may come in a state; uint32 (W,), shared.

        Kept for a while: who could not wait for it finds it known the next time.
        """
        with self.automaton.lock, self.automaton.expanding():
            known = self._after.pop((state, prefix), None)
            if known is None:
                known = self._walk_after(state, prefix)
            self._after[state, prefix] = known  # the latest is the last to go
            if len(self._after) > _KEPT_MASKS:
                del self._after[next(iter(self._after))]
            return known

    def _walk_after(self, state: int, prefix: bytes) -> NDArray[np.uint32]:
        allowed = np.zeros(self.rows.words * 32, np.bool_)
        node = 0
        for byte in prefix:
            node = self.index.child(node, byte)
            if node == NO_NODE:
                break
        else:
            found = walk_on(self.automaton, self.index.trie, np.full(1, node, np.int32), np.full(1, state, np.int32))
            token_ids, states = found
            if self.rows.reach is not None:
                token_ids = token_ids[np.array([self._finishable(to) for to in states.tolist()], np.bool_)]
            allowed[token_ids] = True
        return pack_mask(allowed)

    def _finishable(self, state: int) -> bool:
        reach = self.rows.reach
        if reach is None:
            return True
        with self.automaton.lock:
            return reach.can_finish(state)

    def lift(self, max_entries: int) -> None:
        """Build the dense table and its mask rows, unless it would have more entries than this."""
        most = max_entries // len(self._token_bytes)
        if most < _LEAST_LIFTED_STATES or least_states(self.automaton.nfa) > most:
            return
        order, number, table = [START], {START: 0}, list[NDArray[np.int32]]()
        while len(table) < len(order):
            if len(order) * len(self._token_bytes) > max_entries or len(self.automaton) > MAX_LIFTED_STATES:
                return
            state = order[len(table)]
            table.append(self._token_row(state))
            for to in np.unique(table[-1]).tolist():
                if to not in number and to not in (DEAD, END):
                    number[to] = len(order)
                    order.append(to)
        next_state = np.stack(table)
        for state, row in zip(order, next_state != DEAD, strict=True):
            self.rows.put(state, row)
        self.adopt(np.array(order, np.int32), next_state)

    def adopt(self, states: NDArray[np.int32], next_state: NDArray[np.int32]) -> None:
        """Take a dense table, int32 (D,) and int32 (D, V), whose mask rows are known."""
        row_of_state = np.full(len(self.automaton), NOT_COMPUTED, np.int32)
        row_of_state[states] = np.arange(len(states))
        self.dense = DenseTable(states, row_of_state, next_state)

    def _token_row(self, state: int) -> NDArray[np.int32]:
        row = np.full(len(self._token_bytes), DEAD, np.int32)
        token_ids, states = self.following(state)
        row[token_ids] = states
        if self.automaton.accepting[state]:
            row[list(self._ends)] = END
        return row
