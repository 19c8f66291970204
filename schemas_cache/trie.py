"""The vocabulary as a flat trie, and the walk that finds which tokens an automaton allows.

In: token bytes. Out: `TokenTrie`, breadth first, so that a level is a range of nodes and the walk is one numpy pass
for each level instead of a Python loop for each node. Cost: building sorts the tokens once (0.2 s for 49,152); a walk
visits only live nodes. Derived from the recursive sketch `visit(node, state): for child: visit(child, step(state,
byte))` by keeping all (node, state) pairs of a level in two arrays. Rejected: a depth-first array with subtree sizes,
which suits a compiled loop but not numpy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas_cache.automaton import DEAD, Automaton
from schemas_cache.work import spend

Int32 = NDArray[np.int32]

_FEW_CHILDREN = 12  # nodes that cost less one by one than numpy's operations for a level


@dataclass(frozen=True, slots=True, eq=False)
class TokenTrie:
    """M nodes, node 0 the root; several tokens may have the same bytes."""

    byte: NDArray[np.uint8]  # uint8 (M,): the last byte of each node's prefix
    child_start: Int32  # int32 (M,)
    child_end: Int32  # int32 (M,)
    token_start: Int32  # int32 (M + 1,): tokens that end at node m are token_ids[token_start[m]:token_start[m + 1]]
    token_ids: Int32  # int32 (T,)


def build_trie(token_bytes: tuple[bytes, ...], ids: Iterable[int]) -> TokenTrie:
    """Build the trie of the tokens `ids`; those with empty bytes are left out. O(bytes), level by level."""
    order = sorted((i for i in ids if token_bytes[i]), key=token_bytes.__getitem__)
    lengths = np.array([len(token_bytes[i]) for i in order], np.int32)
    width = int(lengths.max(initial=0))
    padded = b"".join(token_bytes[i].ljust(width, b"\0") for i in order)
    letters = np.frombuffer(padded, np.uint8).reshape(len(order), width)
    node = np.zeros(len(order), np.int32)  # where each token's prefix of the current length ends
    parents, bytes_, size = [np.full(1, -1, np.int32)], [np.zeros(1, np.uint8)], 1
    for depth in range(width):
        longer = np.flatnonzero(lengths > depth)
        parent, letter = node[longer], letters[longer, depth]
        is_new = np.ones(len(longer), np.bool_)
        is_new[1:] = (parent[1:] != parent[:-1]) | (letter[1:] != letter[:-1])
        node[longer] = size - 1 + np.cumsum(is_new, dtype=np.int32)
        parents.append(parent[is_new])
        bytes_.append(letter[is_new])
        size += int(is_new.sum())
    parent_of = np.concatenate(parents)
    numbers = np.arange(size, dtype=np.int32)
    by_node = np.argsort(node, kind="stable")
    return TokenTrie(
        np.concatenate(bytes_),
        np.searchsorted(parent_of, numbers, "left").astype(np.int32),
        np.searchsorted(parent_of, numbers, "right").astype(np.int32),
        np.searchsorted(node[by_node], np.arange(size + 1)).astype(np.int32),
        np.array(order, np.int32)[by_node],
    )


def walk(automaton: Automaton, trie: TokenTrie, state: int) -> tuple[Int32, Int32]:
    """Find the tokens allowed in a state, decided over all their bytes.

    Returns
    -------
    token_ids, states : int32 (K,), int32 (K,)
        The allowed tokens and the state after each.
    """
    return walk_on(automaton, trie, np.zeros(1, np.int32), np.full(1, state, np.int32))


def walk_on(automaton: Automaton, trie: TokenTrie, nodes: Int32, states: Int32) -> tuple[Int32, Int32]:
    """Find the tokens that go on from these nodes, int32 (N,), in the states there, int32 (N,); as `walk`."""
    found_tokens, found_states = [], []
    while len(nodes):
        spend(30 + len(nodes) // 16)
        children, which = _ranges(trie.child_start[nodes], trie.child_end[nodes])
        if len(children) <= _FEW_CHILDREN:
            tokens, ends = _walk_few(automaton, trie, nodes, states)
            found_tokens.append(tokens)
            found_states.append(ends)
            break
        following = automaton.step_many(states[which], automaton.alphabet.class_of[trie.byte[children]])
        alive = following != DEAD
        nodes, states = children[alive], following[alive]
        tokens, which = _ranges(trie.token_start[nodes], trie.token_start[nodes + 1])
        found_tokens.append(trie.token_ids[tokens])
        found_states.append(states[which])
    return np.concatenate(found_tokens), np.concatenate(found_states)


def _walk_few(automaton: Automaton, trie: TokenTrie, nodes: Int32, states: Int32) -> tuple[Int32, Int32]:
    """Do as `walk_on`, node by node: where tokens go on that have fifty blanks, a level has one or two nodes."""
    letters, child_start, child_end, token_start = (
        part.data for part in (trie.byte, trie.child_start, trie.child_end, trie.token_start)
    )
    ends: list[tuple[int, int]] = []
    todo = list(zip(nodes.tolist(), states.tolist(), strict=True))
    while todo:
        node, state = todo.pop()
        for child in range(child_start[node], child_end[node]):
            following = automaton.step(state, letters[child])
            if following != DEAD:
                todo.append((child, following))
                ends += [(at, following) for at in range(token_start[child], token_start[child + 1])]
    spend(2 * len(ends))
    found = np.array(ends, np.int32).reshape(-1, 2)
    return trie.token_ids[found[:, 0]], found[:, 1]


def _ranges(start: Int32, end: Int32) -> tuple[Int32, Int32]:
    """Concatenate start[i]:end[i] over all i; the members, and for each the i it came from."""
    counts = end - start
    which = np.repeat(np.arange(len(start), dtype=np.int32), counts)
    before = np.cumsum(counts) - counts
    return np.arange(len(which), dtype=np.int32) + (start - before)[which], which
