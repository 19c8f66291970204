"""Keys and values of the sequences under way, and of some that are over.

In: tokens that are about to be fed to a slot. Out: the array that their keys and values belong into. Cost: for SmolLM2
46 kB a token; finding a common prefix takes a few microseconds a slot, copying it 10 microseconds a token, where
computing it again takes 500 or more.

Each slot has one array for all layers, as long as the sequence may become, so that attention reads it without a copy.
All arrays together hold at most `capacity_tokens`: a sequence takes its room before it begins (`reserve`), and one that
has no room waits; so no sequence breaks off in the middle for want of memory. What a sequence leaves behind stays in
its slot until the room is needed, as a prefix that others may begin with.

Rejected: one array of slots x context, in which most of the memory belongs to tokens that will never be; pages of a few
tokens, which attention would have to gather at each step, several times the memory traffic of reading them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from engine.models.llama.config import FloatArray, LlamaConfig

GRAIN_TOKENS = 64  # room is taken in multiples, so that sequences of like length can follow each other in a slot
GROWTH = 1.5  # of a slot that took no room before it was fed

IntArray = NDArray[np.int32]


class CacheFullError(MemoryError):
    """No room is left for the tokens of a sequence that did not reserve it."""


@dataclass(slots=True, eq=False)
class Slot:
    """One sequence's place."""

    data: FloatArray  # (L, 2 K, C, S): keys of each head, then values; the first `length` of C tokens are written
    token_ids: IntArray = field(default_factory=lambda: np.zeros(0, np.int32))  # (C,): what the tokens are
    length: int = 0
    held: bool = False  # by a sequence under way
    released: int = 0  # when it was left, as a count; the least goes first

    @property
    def capacity(self) -> int:
        """Tokens that it has room for, C."""
        return len(self.token_ids)


class KvCache:
    """Slots of keys and values within one bound of memory; used by one thread.

    Parameters
    ----------
    config : LlamaConfig
        Sizes.
    size_bytes : int
        Most memory that all slots take together.

    Raises
    ------
    ValueError
        When that is less than `GRAIN_TOKENS` tokens take.
    """

    def __init__(self, config: LlamaConfig, size_bytes: int) -> None:
        self._shape = config.layers, 2 * config.kv_heads, config.head_size
        self.token_bytes = int(np.prod(self._shape)) * np.dtype(np.float32).itemsize
        self.capacity_tokens = size_bytes // self.token_bytes
        if self.capacity_tokens < GRAIN_TOKENS:
            needed = GRAIN_TOKENS * self.token_bytes
            raise ValueError(f"{size_bytes:,} bytes are too few for a KV cache: {GRAIN_TOKENS} tokens take {needed:,}")
        self._slots: list[Slot] = []
        self._releases = 0

    def allocate(self, slots: int) -> None:
        """Have this many slots, all of them empty."""
        self._slots = [Slot(self._new_data(0)) for _ in range(slots)]

    def __getitem__(self, slot: int) -> Slot:
        return self._slots[slot]

    @property
    def used_bytes(self) -> int:
        """Memory of all slots now."""
        return sum(slot.capacity for slot in self._slots) * self.token_bytes

    def reserve(self, slot: int, tokens: int) -> bool:
        """Take room for a sequence that will have at most so many tokens; False while others hold too much of it.

        What the slot held before stays in it, as far as it fits.

        Raises
        ------
        CacheFullError
            When it would not fit alone.
        """
        wanted = min(tokens + -tokens % GRAIN_TOKENS, self.capacity_tokens)
        if tokens > wanted:
            raise CacheFullError(
                f"{tokens} tokens need {tokens * self.token_bytes:,} bytes of KV cache; "
                f"there are {self.capacity_tokens * self.token_bytes:,}, for {self.capacity_tokens} tokens"
            )
        place = self._slots[slot]
        if wanted + sum(other.capacity for other in self._slots if other.held and other is not place) > (
            self.capacity_tokens
        ):
            return False
        self._evict(place, wanted)
        self._resize(place, wanted)
        place.held = True
        return True

    def release(self, slot: int) -> None:
        """The sequence is over; its tokens stay for others to begin with until the room is needed."""
        place = self._slots[slot]
        self._releases += 1
        place.held, place.released = False, self._releases

    def reset(self, slot: int) -> None:
        """Forget the sequence, over or not; its room is the first that is given up."""
        place = self._slots[slot]
        place.length, place.held, place.released = 0, False, 0

    def reuse_prefix(self, slot: int, token_ids: IntArray) -> int:
        """Let a slot begin with what some slot holds of these tokens already, and say how many those are.

        At most all but the last, whose logits will be wanted. The rest of what the slot held is forgotten.
        """
        wanted = np.asarray(token_ids[:-1], np.int32)
        common = [self.common_prefix(other, wanted) for other in range(len(self._slots))]
        best = max(range(len(common)), key=lambda number: (common[number], number == slot))
        self.copy_prefix(best, slot, min(common[best], self._slots[slot].capacity))
        return self._slots[slot].length

    def common_prefix(self, slot: int, token_ids: IntArray) -> int:
        """How many of these tokens, int32 (N,), a slot begins with."""
        place = self._slots[slot]
        length = min(place.length, len(token_ids))
        differs = place.token_ids[:length] != token_ids[:length]
        return int(differs.argmax()) if differs.any() else length

    def copy_prefix(self, from_slot: int, to_slot: int, tokens: int) -> None:
        """Make the first tokens of one slot all that another holds; the other has room for them.

        Raises
        ------
        ValueError
            When the one has not so many, or the other no room for them.
        """
        source, target = self._slots[from_slot], self._slots[to_slot]
        if not tokens <= min(source.length, target.capacity):
            raise ValueError(f"{tokens} tokens of {source.length} do not fit into room for {target.capacity}")
        if source is not target:
            target.data[:, :, :tokens] = source.data[:, :, :tokens]
            target.token_ids[:tokens] = source.token_ids[:tokens]
        target.length = tokens

    def extend(self, slot: int, token_ids: IntArray) -> int:
        """Note tokens that are about to be fed, and return the position of the first of them.

        Raises
        ------
        CacheFullError
            When they do not fit, and others hold the memory for more room.
        """
        place, start = self._slots[slot], self._slots[slot].length
        end = start + len(token_ids)
        if end > place.capacity:
            self._grow(slot, end)
        place.token_ids[start:end] = token_ids
        place.length = end
        return start

    def _grow(self, slot: int, tokens: int) -> None:
        generous = min(int(GROWTH * tokens), self.capacity_tokens)
        if not (self.reserve(slot, max(tokens, generous)) or self.reserve(slot, tokens)):
            raise CacheFullError(f"no KV cache is left for {tokens} tokens; all {self.capacity_tokens} are taken")

    def _evict(self, place: Slot, wanted: int) -> None:
        """Give up what sequences left behind, oldest first, until there is room for `wanted` tokens in `place`."""
        others = [other for other in self._slots if other is not place]
        left_behind = sorted((other for other in others if not other.held), key=lambda other: other.released)
        total = sum(other.capacity for other in others)
        for other in left_behind:
            if total + wanted <= self.capacity_tokens:
                return
            total -= other.capacity
            self._resize(other, 0)

    def _resize(self, place: Slot, capacity: int) -> None:
        if capacity == place.capacity:
            return
        kept = min(place.length, capacity)
        data, token_ids = self._new_data(capacity), np.zeros(capacity, np.int32)
        data[:, :, :kept] = place.data[:, :, :kept]
        token_ids[:kept] = place.token_ids[:kept]
        place.data, place.token_ids, place.length = data, token_ids, kept

    def _new_data(self, capacity: int) -> FloatArray:
        layers, heads, head_size = self._shape
        return np.empty((layers, heads, capacity, head_size), np.float32)
