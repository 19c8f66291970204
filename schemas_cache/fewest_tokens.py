"""How few tokens a document takes: the number behind `minimum_tokens`.

In: a `TokenAutomaton`. Out: the fewest tokens that spell its shortest text, or where no tokens spell that one, the
fewest that spell any text. Cost: linear in the text times the longest token; the second case is a breadth-first search
over states. The result is an upper bound on the true minimum, since a longer text may take fewer tokens.
"""

from __future__ import annotations

import numpy as np

from schemas_cache.automaton import DEAD, END, START
from schemas_cache.errors import Finding, UnsatisfiableSchemaError
from schemas_cache.token_automaton import TokenAutomaton
from schemas_cache.trie import TokenTrie, walk

_UNREACHED = 2**31
_MAX_SEARCHED_STATES = 2_000
"""States of the search where the shortest text cannot be spelled: a second of work, for vocabularies with holes."""


def minimum_tokens(tokens: TokenAutomaton) -> int:
    """Count the fewest tokens of a whole text, the end token left out.

    Raises
    ------
    UnsatisfiableSchemaError
        When the vocabulary can spell no text, or none was found within the bound of the search.
    """
    fewest = fewest_tokens(tokens.index.trie, tokens.automaton.shortest(START))
    if fewest is None:
        fewest = _search(tokens)
    if fewest is None:
        reason = "the vocabulary cannot spell any document that satisfies this"
        hint = "use a model whose tokens cover the characters of the schema"
        raise UnsatisfiableSchemaError([Finding("#", "", reason, hint)])
    return fewest


def fewest_tokens(trie: TokenTrie, data: bytes) -> int | None:
    """Count the fewest tokens that spell `data`; None where no tokens do. Dynamic programming from the end."""
    best = [_UNREACHED] * len(data) + [0]
    for begin in range(len(data) - 1, -1, -1):
        for end in _token_ends(trie, data, begin):
            best[begin] = min(best[begin], best[end] + 1)
    return best[0] if best[0] < _UNREACHED else None


def _token_ends(trie: TokenTrie, data: bytes, begin: int) -> list[int]:
    """List where a token that starts at `begin` may end."""
    ends, node = [], 0
    for at in range(begin, len(data)):
        first, last = int(trie.child_start[node]), int(trie.child_end[node])
        node = first + int(np.searchsorted(trie.byte[first:last], data[at]))
        if node == last or trie.byte[node] != data[at]:
            break
        if trie.token_start[node] < trie.token_start[node + 1]:
            ends.append(at + 1)
    return ends


def _search(tokens: TokenAutomaton) -> int | None:
    """Breadth first over whole tokens."""
    seen, level, depth = {START}, [START], 0
    while level and len(seen) <= _MAX_SEARCHED_STATES:
        if any(tokens.automaton.accepting[state] for state in level):
            return depth
        following = (np.unique(walk(tokens.automaton, tokens.index.trie, state)[1]).tolist() for state in level)
        level = sorted({state for states in following for state in states} - seen - {DEAD, END})
        seen.update(level)
        depth += 1
    return None
