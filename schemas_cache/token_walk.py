"""Which tokens a state allows: byte by byte where few bytes can follow, and by whole levels of the trie elsewhere.

In: an `Automaton`, a `TokenIndex` and a state. Out: token ids. Inside names, punctuation and literals a handful of
bytes can follow, in numbers some more, and numpy's cost for each operation is many times that of looking the few nodes
up one by one: 20 us instead of 250. Where many bytes can follow, the nodes met there go on together in `trie.walk_on`.
Both decide over all bytes of a token. Source: ours.
"""

from __future__ import annotations

import numpy as np

from schemas_cache.automaton import DEAD, Automaton
from schemas_cache.token_index import TokenIndex
from schemas_cache.trie import Int32, walk_on
from schemas_cache.work import spend

ROOT = 0
_FEW = 8  # bytes, or nodes of the trie, that are looked up one by one anywhere; at the root, where many are, all are


def allowed_tokens(automaton: Automaton, index: TokenIndex, state: int) -> tuple[list[int], Int32]:
    """Find the tokens allowed in a state, in two parts: those found byte by byte, and int32 (K,) of the others."""
    found: list[int] = []
    wide: list[tuple[int, int]] = []
    todo = [(0, state)]
    visited = 0
    while todo:
        node, at = todo.pop()
        visited += 1
        following = automaton.closure.few_bytes(automaton.configurations[at])
        if following is None or (len(following) > _FEW and node != ROOT and index.children(node) > _FEW):
            wide.append((node, at))
            continue
        for byte, child in index.children_among(node, following):
            to = automaton.step(at, byte)
            if to != DEAD:
                todo.append((child, to))
                if index.is_token(child):
                    found += index.tokens_at(child)
    spend(2 * visited)
    if not wide:
        return found, np.zeros(0, np.int32)
    nodes, states = np.array(wide, np.int32).T.copy()
    return found, walk_on(automaton, index.trie, nodes, states)[0]
