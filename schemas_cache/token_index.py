"""A vocabulary sorted for masks: the tries, and the plain tokens that a free string takes as a block.

In: a `Vocabulary`. Out: `TokenIndex`, built once for each vocabulary. Cost: 0.5 s for 49,152 tokens. In that vocabulary
only 671 tokens are not plain, so the walk inside strings is over a trie of 671 instead of 49,152.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from schemas_cache.remainders import Remainders
from schemas_cache.shared_rows import SharedRows
from schemas_cache.trie import build_trie
from schemas_cache.vocabulary import Vocabulary

_NOT_PLAIN = frozenset(b'"\\') | frozenset(range(0x20))
NO_NODE = -1
_KEPT_INDEXES = 8  # models served at once, and some room


class TokenIndex:
    """Tries and plain tokens of one vocabulary, frozen after construction, and the mask rows that schemas share."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        lengths = [_plain_length(data) for data in vocabulary.token_bytes]
        plain = sorted((length, i) for i, length in enumerate(lengths) if length)
        self.plain_ids = np.array([i for _, i in plain], np.int32)  # int32 (P,), by length
        self._plain_lengths = np.array([length for length, _ in plain], np.int32)  # int32 (P,), in characters
        self.longest_plain = int(self._plain_lengths.max(initial=0))
        firsts = {vocabulary.token_bytes[i][0] for _, i in plain}
        self.plain_first_bytes = np.array(sorted(firsts), np.uint8)  # uint8 (<= 256,)
        self.trie = build_trie(vocabulary.token_bytes, range(len(vocabulary)))
        self.leaving = build_trie(vocabulary.token_bytes, [i for i, length in enumerate(lengths) if not length])
        self.remainders = Remainders(vocabulary.token_bytes)
        self.shared_rows = SharedRows()
        self._bytes = self.trie.byte.tobytes()  # these three give Python's integers without numpy's cost for each
        self._child_start, self._child_end = self.trie.child_start.data, self.trie.child_end.data
        self._token_start = self.trie.token_start.data

    def plain_by_length(self, characters: int) -> list[NDArray[np.int32]]:
        """List the plain tokens of 1 character, of 2 and so on up to so many: int32 arrays, none of them empty."""
        ids, lengths = self.plain_ids, self._plain_lengths
        starts = np.flatnonzero(np.diff(lengths, prepend=0))
        ends = np.append(starts[1:], len(ids))[: len(starts)].tolist()
        spans = zip(starts.tolist(), ends, strict=True)
        return [ids[start:end] for start, end in spans if lengths[start] <= characters]

    def child(self, node: int, byte: int) -> int:
        """Return the node of `trie` after one more byte, or NO_NODE."""
        return self._bytes.find(byte, self._child_start[node], self._child_end[node])

    def children(self, node: int) -> int:
        """How many nodes of `trie` follow one."""
        return self._child_end[node] - self._child_start[node]

    def children_among(self, node: int, following: list[int]) -> list[tuple[int, int]]:
        """Each of some bytes with the node of `trie` after it, where there is one."""
        first, end = self._child_start[node], self._child_end[node]
        if end - first <= len(following):
            return [(self._bytes[child], child) for child in range(first, end) if self._bytes[child] in following]
        found = [(byte, self._bytes.find(byte, first, end)) for byte in following]
        return [pair for pair in found if pair[1] != NO_NODE]

    def is_token(self, node: int) -> bool:
        """Whether a token ends at a node of `trie`."""
        return self._token_start[node] < self._token_start[node + 1]

    def tokens_at(self, node: int) -> list[int]:
        """Tokens that end at a node of `trie`."""
        ids: list[int] = self.trie.token_ids[self._token_start[node] : self._token_start[node + 1]].tolist()
        return ids

    def plain_up_to(self, characters: int) -> int:
        """Count the plain tokens of at most so many characters."""
        return int(np.searchsorted(self._plain_lengths, characters, "right"))


@lru_cache(maxsize=_KEPT_INDEXES)
def token_index(vocabulary: Vocabulary) -> TokenIndex:
    """Return the index of a vocabulary, built on first use."""
    return TokenIndex(vocabulary)


def _plain_length(data: bytes) -> int:
    """Characters of a token that a JSON string takes as it stands; 0 for any other token."""
    if not _NOT_PLAIN.isdisjoint(data):
        return 0
    try:
        return len(data.decode("utf-8"))
    except UnicodeDecodeError:
        return 0
