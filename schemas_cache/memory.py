"""The schemas used last, in memory, bounded by their number and by the memory that they take.

In: entries as they are compiled or loaded. Out: those asked for, and those that have to leave. Cost: a dictionary
look-up; measuring all takes some microseconds for each entry. They go on learning while text is decoded, so they are
measured again and again, not only when they come; mask rows that schemas share count once. What leaves is freed once
the sequences that use it are over.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from contextlib import ExitStack
from dataclasses import dataclass, field

from schemas_cache.compile import CompiledSchema

MEMORY_BYTES = 256 << 20  # 500 schemas of usual size, and as much as a server may spend beside a small model
TRIM_EVERY_S = 1.0  # a sequence learns some megabytes in that time at the most


@dataclass(slots=True, eq=False)
class Entry:
    """Tables in memory, and what of them is on disk.

    Attributes
    ----------
    key : str
        Of the entry on disk.
    compiled : CompiledSchema
        The tables; they grow while text is decoded.
    tables_generation : int
        How far the tables on disk are; -1 for not there.
    seen_generation : int
        How far they were when they were last looked at.
    rows_written : int
        How many of the rows that they computed are on disk.
    stamp : bytes
        Of the content on disk that these tables know; empty for none.
    is_deleted : bool
        Whether somebody deleted the entry: it is not written any more.
    hold : ExitStack
        The lock across processes, to be let go once the tables are on disk.
    """

    key: str
    compiled: CompiledSchema
    tables_generation: int = -1
    seen_generation: int = -1
    rows_written: int = 0
    stamp: bytes = b""
    is_deleted: bool = False
    created_s: float = field(default_factory=time.time)
    last_used_s: float = field(default_factory=time.time)
    hold: ExitStack = field(default_factory=ExitStack)


class MemoryTier:
    """The entries used last; safe from several threads."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self.max_entries, self.max_bytes = max_entries, max_bytes
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._used: set[str] = set()
        self._mutex = threading.Lock()
        self._measured_bytes = 0  # when all were measured last, and what came since
        self._trimmed_s = time.monotonic()  # on the monotonic clock

    def get(self, key: str) -> Entry | None:
        """Return an entry, which becomes the one used last; None for one whose automaton is nearly full.

        The sequences that use such an automaton keep it; new ones start with the tables on disk, where only the first
        states are, or compile afresh. That is how a schema that lives long stays within its limit of states.
        """
        with self._mutex:
            entry = self._entries.get(key)
            if entry is None or entry.compiled.exhausted:
                return None
            self._entries.move_to_end(key)
            entry.last_used_s = time.time()
            self._used.add(key)
            return entry

    def put(self, entry: Entry) -> list[Entry]:
        """Add an entry and return those that had to go for it, one of its key too; the new one always stays."""
        with self._mutex:
            replaced = [self._entries.pop(entry.key)] if entry.key in self._entries else []
            self._entries[entry.key] = entry
            self._measured_bytes += entry.compiled.size_bytes
            is_within = self._measured_bytes <= self.max_bytes and len(self._entries) <= self.max_entries
        return replaced if is_within else [*replaced, *self.trim()]

    def trim(self) -> list[Entry]:
        """Measure all entries, and take out those used longest ago while they are too many or too large."""
        with self._mutex:
            self._trimmed_s = time.monotonic()
            total_bytes = sum(each.compiled.size_bytes for each in self._entries.values()) + self._shared_bytes()
            evicted = []
            while len(self._entries) > 1 and (len(self._entries) > self.max_entries or total_bytes > self.max_bytes):
                evicted.append(self._entries.popitem(last=False)[1])
                total_bytes -= evicted[-1].compiled.size_bytes
            self._measured_bytes = total_bytes
            return evicted

    def _shared_bytes(self) -> int:
        """Memory of the mask rows that the schemas of each vocabulary share; they stay when entries go."""
        shared = {id(rows): rows.size_bytes for rows in (each.compiled.shared_rows for each in self._entries.values())}
        return sum(shared.values())

    def trim_if_due(self) -> list[Entry]:
        """Trim, unless that was done a moment ago."""
        return self.trim() if time.monotonic() - self._trimmed_s > TRIM_EVERY_S else []

    def remove(self, schema_hash: str | None) -> list[Entry]:
        """Take out the entries of one schema, or all, for good."""
        with self._mutex:
            all_entries = list(self._entries.values())
            removed = [entry for entry in all_entries if schema_hash in (None, entry.compiled.schema_hash)]
            for entry in removed:
                entry.is_deleted = True
                del self._entries[entry.key]
            return removed

    def entries(self) -> list[Entry]:
        """All entries, the one used longest ago first."""
        with self._mutex:
            return list(self._entries.values())

    def take_used(self) -> set[str]:
        """Return the keys asked for since the last call."""
        with self._mutex:
            used, self._used = self._used, set()
            return used
