"""How few tokens lead from a state to the end of a text: `minimum_tokens`, and what a token limit leaves room for.

In: an `Automaton`, a `TokenIndex` and a state. Out: the fewest tokens that spell a shortest way from there to
acceptance, an upper bound on the true minimum, since a longer text may take fewer tokens. A state's way is one byte and
the way of the state after it. So ways form a tree, and the bound has the property that a budget needs: in a state that
needs n tokens, some token leads to a state that needs n - 1.

Cost: tens of microseconds for each state that is met for the first time on a way, a look-up afterwards; a text of n
bytes that goes on has most of its way in common with the one before. No state is looked at before it is asked for.
Whether a number of tokens suffices is mostly decided without: each token spells one byte at least, so that as many
tokens as bytes are enough.

Where the automaton's `cost` is a lower bound only, the way is searched for. Where no tokens spell it, in a vocabulary
with holes, the fewest tokens to a state are counted from which they do: a breadth-first search over whole tokens.

Rejected: the true minimum, a search over all tokens at each state; the segmentation of a way that is found anew at each
state, since the next state's may take more tokens than this one's rest.
"""

from __future__ import annotations

import numpy as np

from schemas_cache.automaton import DEAD, END, Automaton
from schemas_cache.nfa import LOOPED
from schemas_cache.token_index import NO_NODE, TokenIndex
from schemas_cache.trie import walk
from schemas_cache.work import spend

NO_WAY = 2**31
"""More tokens than any text has: no tokens lead to an end, or none were found within the bound of the search."""

_WORK = 15  # steps for a state on a way

_MAX_SEARCHED_STATES = 2_000
"""States of the search where the shortest way cannot be spelled: a second of work, for vocabularies with holes."""


class FewestTokens:
    """Counts and remembers; may be shared between threads."""

    def __init__(self, automaton: Automaton, index: TokenIndex) -> None:
        self._automaton, self._index = automaton, index
        self._has_holes = index.vocabulary.has_holes
        self._cost_is_exact = bool((automaton.nfa.repeat_kind == LOOPED).all())
        self._letters: list[int] = automaton.alphabet.representative.tolist()
        self._longest = index.vocabulary.longest_token_bytes
        self._costs: dict[int, int] = {}
        self._onward: dict[int, tuple[int, int]] = {}  # the byte and the state that a state's way goes on with
        self._spelled: dict[int, int] = {}  # tokens of a state's way
        self._needed: dict[int, int] = {}

    def forget(self) -> None:
        """Forget everything, since states have other numbers now."""
        for known in (self._costs, self._onward, self._spelled, self._needed):
            known.clear()

    def fit(self, state: int, tokens: int) -> bool:
        """Whether so many tokens are enough to end the text."""
        known = self._needed.get(state)
        if known is not None:
            return known <= tokens
        if tokens < 0:
            return False
        if self._cost_is_exact and not self._has_holes:
            cost = self._cost(state)
            if cost <= tokens or cost > tokens * self._longest:
                return cost <= tokens
        return self.needed(state) <= tokens

    def needed(self, state: int) -> int:
        """Fewest tokens from here to acceptance, the end token left out; NO_WAY where none lead there."""
        known = self._needed.get(state)
        if known is None:
            with self._automaton.lock:
                known = self._spell(state)
                if known >= NO_WAY:
                    known = self._search(state)
                self._needed[state] = known
        return known

    def _cost(self, state: int) -> int:
        known = self._costs.get(state)
        if known is None:
            known = self._costs[state] = self._automaton.cost(state)
        return known

    def _spell(self, state: int) -> int:
        """Fewest tokens that spell the way from here; NO_WAY where none do. From the end back, without recursion."""
        met, at = list[int](), state
        while at not in self._spelled and not self._ends(at):
            spend(_WORK)
            if at not in self._onward:
                self._find_way(at)
            met.append(at)
            at = self._onward[at][1]
        self._spelled.setdefault(at, 0)
        for at in reversed(met):
            self._spelled[at] = min(
                1 + min(map(self._spelled.__getitem__, self._after_tokens(at)), default=NO_WAY), NO_WAY
            )
        return self._spelled[state]

    def _ends(self, state: int) -> bool:
        return state == END or self._automaton.accepting[state]

    def _after_tokens(self, state: int) -> list[int]:
        """List the states on the way of this one that a token leads to."""
        child, node, found = self._index.child, 0, list[int]()
        while not self._ends(state):
            byte, state = self._onward[state]
            node = child(node, byte)
            if node == NO_NODE:
                break
            if self._index.is_token(node):
                found.append(state)
        return found

    def _find_way(self, start: int) -> None:
        """Note the way of a state, and of those on it: nearer with each byte, else as the search finds it."""
        steps, at = list[tuple[int, int, int]](), start
        while at not in self._onward and not self._ends(at):
            step = self._nearer(at)
            if step is None:
                steps = self._searched_way(start)
                break
            steps.append((at, *step))
            at = step[1]
        for state, byte, following in steps:
            self._onward.setdefault(state, (byte, following))

    def _nearer(self, state: int) -> tuple[int, int] | None:
        """Return the first of the preferred bytes that leads a byte nearer to the end, and the state after it."""
        nearer = self._cost(state) - 1
        for letter in np.flatnonzero(self._automaton.next_state[state] != DEAD).tolist():
            byte = self._letters[letter]
            following = self._automaton.step(state, byte)
            if following != DEAD and self._cost(following) == nearer:
                return byte, following
        return None

    def _searched_way(self, start: int) -> list[tuple[int, int, int]]:
        steps, at = [], start
        for byte in self._automaton.shortest(start):
            following = self._automaton.step(at, byte)
            steps.append((at, byte, following))
            at = following
        return steps

    def _search(self, start: int) -> int:
        """Count the fewest tokens to a state whose way tokens spell, and on from there; breadth first."""
        seen, level, depth, fewest = {start}, [start], 0, NO_WAY
        while level and depth < fewest and len(seen) <= _MAX_SEARCHED_STATES:
            spelled = {state: self._spell(state) for state in level}
            fewest = min(fewest, *(depth + tokens for tokens in spelled.values()))
            following = set[int]()
            for state in (state for state in level if spelled[state] >= NO_WAY):
                following.update(walk(self._automaton, self._index.trie, state)[1].tolist())
            level = sorted(following - seen - {DEAD, END})
            seen.update(level)
            depth += 1
        return fewest
