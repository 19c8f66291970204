"""What tokens have behind a quote: a small trie, which tells the ends of two strings apart as far as any token can.

In: the bytes of all tokens. Out: `Remainders`, and for a state of an automaton the set of remainders that it takes, as
bits. In SmolLM2's vocabulary of 49,152 tokens 163 have a quote, and 63 different remainders are behind those quotes. So
whatever is behind a string, some dozen steps say all that the masks inside the string can ever show of it. Cost: one
pass over the tokens; a set is a walk over the live part of the trie.

Every quote of a token counts, as which of them ends the string depends on where in the string the token begins.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas_cache.automaton import DEAD, Automaton
from schemas_cache.work import spend

QUOTE_BYTE = 0x22

_NO_REMAINDER = 0
_NOTHING_MORE = 1  # a token that ends with the quote; always taken


class Remainders:
    """The trie; frozen after construction."""

    def __init__(self, token_bytes: Iterable[bytes]) -> None:
        found = {behind for data in token_bytes for behind in _behind_quotes(data)}
        self._children: list[dict[int, int]] = [{}]
        self._bit = [_NOTHING_MORE]  # of the remainder that ends at a node
        for number, remainder in enumerate(sorted(found), start=1):
            node = 0
            for byte in remainder:
                node = self._children[node].setdefault(byte, len(self._children))
                if node == len(self._children):
                    self._children.append({})
                    self._bit.append(_NO_REMAINDER)
            self._bit[node] = 1 << number

    def taken(self, automaton: Automaton, state: int) -> int:
        """Return the remainders, as bits, that can follow in a state, never 0; used under the automaton's lock."""
        found, todo, steps = self._bit[0], [(0, state)], 0
        while todo:
            node, at = todo.pop()
            children = self._children[node]
            few = automaton.closure.few_bytes(automaton.configurations[at])
            for byte in children if few is None else few:
                child = children.get(byte)
                if child is not None and (to := automaton.step(at, byte)) != DEAD:
                    found |= self._bit[child]
                    todo.append((child, to))
            steps += 2
        spend(steps)
        return found


def _behind_quotes(data: bytes) -> list[bytes]:
    """List what is behind each quote of a token, where anything is."""
    return [data[at:] for at in range(1, len(data)) if data[at - 1] == QUOTE_BYTE]
