"""Which states can still be finished with whole tokens, for vocabularies with holes.

In: states of an `Automaton` and a `TokenIndex`. Out: yes or no. A vocabulary made of bytes or of characters spells
every way that the automaton keeps; one that has `y` and `yes` but no `es` does not, and a token into such a dead end
must not be allowed. Cost: a search that follows the shortest ways first, remembered for every state it decides; made-up
and very small vocabularies only, as those of real models are made of bytes. A search that finds no end within its bound
counts as finishable: if it is not, the sequence finds all tokens forbidden later, and no wrong text comes out.
"""

from __future__ import annotations

import heapq

import numpy as np

from schemas_cache.automaton import DEAD, END, Automaton
from schemas_cache.token_index import TokenIndex
from schemas_cache.trie import Int32, TokenTrie, walk

_MAX_SEARCHED_STATES = 500
"""States of one search, about a tenth of a second."""


class Reach:
    """Answers and remembers; used under the automaton's lock."""

    def __init__(self, automaton: Automaton, index: TokenIndex) -> None:
        self._automaton, self._index = automaton, index
        self._known: dict[int, bool] = {DEAD: False, END: True}

    def walk(self, trie: TokenTrie, state: int) -> tuple[Int32, Int32]:
        """Walk as `trie.walk` does, and leave out the tokens after which no whole text can be spelled."""
        token_ids, states = walk(self._automaton, trie, state)
        kept = np.array([self.can_finish(to) for to in states.tolist()], np.bool_)
        return token_ids[kept], states[kept]

    def can_finish(self, state: int) -> bool:
        """Whether some tokens lead from here to a place where the text may end."""
        known = self._known.get(state)
        return self._search(state) if known is None else known

    def _search(self, start: int) -> bool:
        came_from = {start: DEAD}
        queue = [(self._automaton.cost(start), start)]
        while queue and len(came_from) <= _MAX_SEARCHED_STATES:
            _, state = heapq.heappop(queue)
            if self._known.get(state) or self._automaton.accepting[state]:
                while state != DEAD:
                    self._known[state] = True
                    state = came_from[state]
                return True
            for to in np.unique(walk(self._automaton, self._index.trie, state)[1]).tolist():
                if to not in came_from and self._known.get(to, True):
                    came_from[to] = state
                    heapq.heappush(queue, (self._automaton.cost(to), to))
        if queue:
            self._known[start] = True
        else:
            self._known.update(dict.fromkeys(came_from, False))
        return bool(queue)
