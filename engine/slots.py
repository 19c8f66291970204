"""Slots of one model for the sequences that run: who gets which, with what room, and what it begins with.

In: sequences that want to run. Out: a slot for each, or None while there is none. A model without memory of its own has
as much room as slots. One that keeps keys and values has a bound: a sequence takes room for all its tokens before it
begins, so it never breaks off for want of memory; the next in line waits until there is room, and nobody overtakes it.

A sequence begins with what any slot still holds of its tokens. Its prompt's is looked for first: a free slot that holds
the most of it is taken, so that nothing is copied and nothing of use is overwritten; else the one that was left longest
ago. A sequence whose beginning another one is just being fed waits for it instead of computing it again: so the choices
of one request compute their prompt once, and so do requests that came together.

Cost: a few microseconds a slot for each sequence that joins.

Rejected: taking room as a sequence grows, after which one of two has to go when both are half done; a tree of prefixes,
which is for more slots than a few dozen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.models import CachingModel, IntArray
from engine.sequence import Sequence

WORTH_WAITING_TOKENS = 32  # what a sequence has to save to wait for another: a fraction of a second of prefill


class Slots:
    """Numbered places, the latest that came free first.

    Parameters
    ----------
    count : int
        How many there are.
    reset : callable
        Makes the model forget what a slot had.
    """

    def __init__(self, count: int, reset: Callable[[int], None]) -> None:
        self._free = list(range(count - 1, -1, -1))
        self._reset = reset

    @property
    def free(self) -> int:
        """How many nobody has."""
        return len(self._free)

    def take(self, _row: Sequence) -> int | None:
        """A slot for a sequence; None while there is none."""
        return self._free.pop() if self._free else None

    def give_back(self, row: Sequence) -> None:
        """A sequence is over, or gone."""
        self._free.append(row.slot)

    def start(self, row: Sequence) -> None:
        """Make a sequence's slot ready; all that it will be fed first is known."""
        self._reset(row.slot)

    def begin(self) -> bool:
        """Let sequences begin that are ready; whether any of them has to wait."""
        return False

    def waits(self, _row: Sequence) -> bool:
        """Whether a sequence that is ready has to wait."""
        return False


class CachingSlots(Slots):
    """Places in a model's memory of keys and values.

    Parameters
    ----------
    count : int
        How many there are.
    model : CachingModel
        Its cache holds what their sequences had.
    reuse : bool
        Whether a sequence begins with what is held already.
    """

    def __init__(self, count: int, model: CachingModel, reuse: bool) -> None:
        super().__init__(count, model.reset)
        self._cache, self._reuse = model.cache, reuse
        self._starting: list[Sequence] = []  # with a slot, and nothing in it yet
        self._begun: dict[int, Sequence] = {}  # by slot

    def take(self, row: Sequence) -> int | None:
        """A slot with room for all tokens that a sequence may have; None while there is none."""
        if not self._free:
            return None
        slot = self._best(np.array(row.pending[:-1], np.int32)) if self._reuse else self._free[0]
        if not self._cache.reserve(slot, max(1, len(row.pending)) + row.limit):
            return None
        self._free.remove(slot)
        return slot

    def give_back(self, row: Sequence) -> None:
        """A sequence is over; what it had stays until the room is needed, unless a step with it broke off."""
        super().give_back(row)
        if row.error is None:
            self._cache.release(row.slot)
        else:
            self._reset(row.slot)
        self._begun.pop(row.slot, None)
        self._starting = [other for other in self._starting if other is not row]

    def start(self, row: Sequence) -> None:
        """Line a sequence up to begin; all that it will be fed first is known."""
        self._starting.append(row)

    def begin(self) -> bool:
        """Let sequences begin that need not wait for others, with what is held of their tokens."""
        ready, self._starting = self._starting, []
        for row in ready:
            token_ids = reusable(row) if self._reuse else np.zeros(0, np.int32)
            if self._is_being_fed(token_ids[:-1]):
                self._starting.append(row)
            else:
                held = self._cache.reuse_prefix(row.slot, token_ids)
                row.cached_tokens = min(held, len(row.prompt))
                del row.pending[:held]
                self._begun[row.slot] = row
        return bool(self._starting)

    def waits(self, row: Sequence) -> bool:
        """Whether another sequence is just being fed what this one begins with."""
        return row in self._starting

    def _best(self, token_ids: IntArray) -> int:
        """The free slot that holds the most of these tokens; of several the one that was left longest ago."""
        common = [self._cache.common_prefix(slot, token_ids) for slot in self._free]
        return self._free[common.index(max(common))]

    def _is_being_fed(self, token_ids: IntArray) -> bool:
        """Whether another sequence will soon have much more of these tokens than any slot has now."""
        if len(token_ids) < WORTH_WAITING_TOKENS:
            return False
        coming = max((_coming(row, token_ids) for row in self._begun.values() if len(row.pending) > 1), default=0)
        if coming < WORTH_WAITING_TOKENS:
            return False
        held = max(self._cache.common_prefix(slot, token_ids) for slot in (*self._begun, *self._free))
        return coming - held >= WORTH_WAITING_TOKENS


def reusable(row: Sequence) -> IntArray:
    """Tokens of a sequence, before its first, that need not be fed where they are held: int32 (N,).

    Those whose probabilities are wanted have to be.
    """
    request = row.job.request
    if request.prompt_logprobs:
        return np.zeros(0, np.int32)
    scored = request.logprobs is not None or request.diagnostics
    return np.array(row.pending[: len(row.prompt)] if scored else row.pending, np.int32)


def _coming(row: Sequence, token_ids: IntArray) -> int:
    """How many of these tokens a sequence begins with once it has been fed what it has."""
    fed = np.array([*row.prompt, *row.token_ids], np.int32)
    length = min(len(fed), len(token_ids))
    differs = fed[:length] != token_ids[:length]
    return int(differs.argmax()) if differs.any() else length
