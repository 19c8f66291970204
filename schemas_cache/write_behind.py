"""Writing to disk what was compiled and learnt, behind the caller's back.

In: entries as they are compiled, and the memory tier, whose entries go on learning. Out: entries on disk. Cost to the
caller: an append to a queue. A killed process loses the rows of its last delay; an ordinary exit loses nothing.

New tables are written at once, as other processes may be waiting for them. Rows learnt while decoding follow after
`WRITE_DELAY_S`, as they come in bursts; they are merged with what is there, so processes lose nothing of each other,
and one that learns is taught by the others in return. States learnt go with the whole tables, which are written again
each time that they have doubled (so all writes together cost no more than twice the last), when an entry leaves memory,
and at the end; there the last writer wins, since a state is found again by one step.

Rejected: merging states, whose numbers differ from process to process; writing with every step, which would cost more
than it saves.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from contextlib import ExitStack
from dataclasses import dataclass, field

from schemas_cache.codec import CorruptEntryError
from schemas_cache.compile import CompiledSchema
from schemas_cache.disk import DiskTier
from schemas_cache.entries import rows_entry, rows_from, rows_key, tables_entry

WRITE_DELAY_S = 2.0  # long enough for one write per burst of decoding, short enough to lose little
EXIT_WAIT_S = 10.0  # a last write may take a moment; an exit must not hang on a broken disk

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Entry:
    """Tables in memory, and what of them is on disk.

    Attributes
    ----------
    key : str
        Of the entry on disk.
    compiled : CompiledSchema
        The tables; they grow while text is decoded.
    tables_generation, rows_generation : int
        How far the tables and the rows on disk are; -1 for not there.
    hold : ExitStack
        The lock across processes, to be let go once the tables are on disk.
    """

    key: str
    compiled: CompiledSchema
    tables_generation: int = -1
    rows_generation: int = -1
    hold: ExitStack = field(default_factory=ExitStack)

    @property
    def row_bytes(self) -> int:
        """Length of a packed mask row: whole 32-bit words."""
        return 4 * -(-len(self.compiled.vocabulary) // 32)


class MemoryTier:
    """The entries used last, bounded by number and roughly by bytes; safe from several threads."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self.max_entries, self.max_bytes = max_entries, max_bytes
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._mutex = threading.Lock()

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
            return entry

    def put(self, entry: Entry) -> list[Entry]:
        """Add an entry and return those that had to go for it; the new one always stays."""
        with self._mutex:
            self._entries[entry.key] = entry
            total_bytes = sum(each.compiled.size_bytes for each in self._entries.values())
            evicted = []
            while len(self._entries) > 1 and (len(self._entries) > self.max_entries or total_bytes > self.max_bytes):
                evicted.append(self._entries.popitem(last=False)[1])
                total_bytes -= evicted[-1].compiled.size_bytes
            return evicted

    def entries(self) -> list[Entry]:
        """All entries, the one used longest ago first."""
        with self._mutex:
            return list(self._entries.values())


class WriteBehind:
    """A daemon thread that keeps the disk up to date with the memory tier.

    It starts with the first entry and ends with `close`. Refers to no `SchemaCache`, so that one may be collected.
    """

    def __init__(self, memory: MemoryTier, disk: DiskTier, delay_s: float = WRITE_DELAY_S) -> None:
        self._memory, self._disk, self._delay_s = memory, disk, delay_s
        self._queue: deque[Entry] = deque()
        self._wake, self._writing, self._starting = threading.Event(), threading.Lock(), threading.Lock()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="katagami-write-behind", daemon=True)

    def submit(self, entry: Entry) -> None:
        """Have an entry written soon: one that enters the memory tier, or leaves it."""
        self._queue.append(entry)
        with self._starting:
            if not self._closing:
                if not self._thread.ident:
                    self._thread.start()
                self._wake.set()
                return
        self.flush()

    def flush(self) -> None:
        """Write everything that is not on disk yet, now and in this thread."""
        self._write_queue()
        with self._writing:
            for entry in self._memory.entries():
                self._write(entry, whole=True)

    def close(self) -> None:
        """Write everything and end the thread; nothing is written after that."""
        with self._starting:
            self._closing = True
            self._wake.set()
        if self._thread.ident and threading.current_thread() is not self._thread:
            self._thread.join(EXIT_WAIT_S)
        self._disk.close()

    def _run(self) -> None:
        """Write whenever something is submitted, and after each delay."""
        while not self._closing:
            self._write_queue()
            with self._writing:
                for entry in self._memory.entries():
                    self._write(entry, whole=False)
            self._wake.wait(self._delay_s)
            self._wake.clear()
        self.flush()

    def _write_queue(self) -> None:
        """Write what was submitted."""
        with self._writing:
            while self._queue:
                self._write(self._queue.popleft(), whole=True)

    def _write(self, entry: Entry, *, whole: bool) -> None:
        """Bring the disk up to date with one entry: its rows, and its tables if they doubled or `whole` is set."""
        generation = entry.compiled.generation
        try:
            with entry.hold:
                if self._disk.available and (whole or entry.compiled.generation >= 2 * entry.tables_generation):
                    self._store_tables(entry)
            if self._disk.available and entry.rows_generation != entry.compiled.generation:
                self._merge_rows(entry)
        except Exception:  # one entry that cannot be written must not end the thread for all others
            logger.exception("schema cache: writing %s failed", entry.key)
            entry.tables_generation = entry.rows_generation = generation  # again when it has grown

    def _store_tables(self, entry: Entry) -> None:
        """Write the tables unless they are on disk as they are."""
        generation = entry.compiled.generation
        if entry.tables_generation == generation:
            return
        data = tables_entry(entry.key, entry.compiled.dump())
        if self._disk.put(entry.key, data):
            if entry.tables_generation < 0:  # the rows of first tables are in them, and in what anybody learns later
                entry.rows_generation = generation
            entry.tables_generation = generation

    def _merge_rows(self, entry: Entry) -> None:
        """Add what was learnt to the rows on disk, and learn what is new there."""
        generation, own = entry.compiled.generation, entry.compiled.learned_rows()
        foreign: dict[bytes, bytes] = {}

        def union(stored: bytes | None) -> bytes | None:
            known = known_rows(stored, entry)
            foreign.update((digest, row) for digest, row in known.items() if digest not in own)
            merged = known | own
            return rows_entry(entry.key, merged, entry.row_bytes) if len(merged) > len(known) else None

        if self._disk.update(rows_key(entry.key), union):
            entry.rows_generation = generation
            if foreign:
                entry.compiled.add_rows(foreign)


def known_rows(stored: bytes | None, entry: Entry) -> dict[bytes, bytes]:
    """Rows of an entry as they lie on disk; none where they are missing or corrupt (the next merge rewrites them)."""
    if stored is None:
        return {}
    try:
        return rows_from(stored, entry.key, entry.row_bytes)
    except CorruptEntryError as error:
        logger.warning("schema cache: rows of %s are corrupt and will be replaced: %s", entry.key, error)
        return {}
