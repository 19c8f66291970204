"""Mask rows that all schemas of one vocabulary share, in memory: those whose name says all that decides them.

In: packed rows by name. Out: the row of a name, or None. Bounded by the memory that they take; the row used longest ago
goes first. Cost: a dictionary look-up. Safe from several threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

SHARED_ROW_BYTES = 16 << 20
"""2,700 rows for 49,152 tokens. 1,000 real schemas have some hundred different rows inside their strings."""

_ROW_OVERHEAD_BYTES = 250  # of Python objects for each row


class SharedRows:
    """Rows used last, by name."""

    def __init__(self, max_bytes: int = SHARED_ROW_BYTES) -> None:
        self._max_bytes, self.size_bytes = max_bytes, 0
        self._rows: OrderedDict[bytes, Words] = OrderedDict()
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, name: bytes) -> Words | None:
        """Return a row, uint32 (W,), read-only; None where there is none."""
        with self._mutex:
            words = self._rows.get(name)
            if words is not None:
                self._rows.move_to_end(name)
            return words

    def add(self, name: bytes, words: Words) -> None:
        """Keep a copy of a row, uint32 (W,), and let others go for it."""
        kept = words.copy()
        kept.flags.writeable = False
        with self._mutex:
            if name not in self._rows:
                self._rows[name] = kept
                self.size_bytes += kept.nbytes + _ROW_OVERHEAD_BYTES
            while self.size_bytes > self._max_bytes:
                self.size_bytes -= self._rows.popitem(last=False)[1].nbytes + _ROW_OVERHEAD_BYTES

    def clear(self) -> None:
        """Let all rows go."""
        with self._mutex:
            self._rows.clear()
            self.size_bytes = 0
