"""Writing to disk what was compiled and learnt, behind the caller's back.

In: entries as they are compiled, and the memory tier, whose entries go on learning. Out: entries on disk. Cost to the
caller: an append to a queue. A killed process loses what it learnt in its last two delays; an ordinary exit loses
nothing.

New tables are written at once, as other processes may be waiting for them. Mask rows follow after `WRITE_DELAY_S`, as
they come in bursts, into the file that all schemas of a vocabulary share. Tables are written again when nothing was
learnt for a delay, when they have doubled (so all writes of one burst together cost no more than twice the last), when
an entry leaves memory, and at the end.

Processes that learn different things of one schema lose nothing: whoever finds other tables on disk than those it knows
learns them first, then writes the union, in a transaction that makes sure that nobody came between. So who learns is
taught by the others in return.

Rejected: one entry for each writer, to be united by whoever loads, which makes every start pay for the union; writing
with every step, which would cost more than it saves.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

from schemas_cache.codec import CorruptEntryError
from schemas_cache.disk import DiskTier
from schemas_cache.entries import describe, label_of, row_name, stamp_of, tables_entry, tables_from
from schemas_cache.memory import Entry, MemoryTier

WRITE_DELAY_S = 2.0  # long enough for one write per burst of decoding, short enough to lose little
USES_DELAY_S = 30.0  # who was used last matters to evictions only
EXIT_WAIT_S = 10.0  # a last write may take a moment; an exit must not hang on a broken disk
UNION_ATTEMPTS = 5  # others may write between reading and writing; what is left then is written with the next burst

logger = logging.getLogger(__name__)


class WriteBehind:
    """A daemon thread that keeps the disk up to date with the memory tier.

    It starts with the first entry and ends with `close`. Refers to no `SchemaCache`, so that one may be collected.
    """

    def __init__(self, memory: MemoryTier, disk: DiskTier, delay_s: float = WRITE_DELAY_S) -> None:
        self._memory, self._disk, self._delay_s = memory, disk, delay_s
        self._queue: deque[Entry] = deque()
        self._wake, self._writing, self._starting = threading.Event(), threading.Lock(), threading.Lock()
        self._closing = False
        self._uses_written_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="katagami-write-behind", daemon=True)

    def submit(self, entry: Entry) -> None:
        """Have an entry written soon: one that enters the memory tier, or leaves it."""
        with self._starting:
            if not self._closing and not self._thread.ident:
                self._thread.start()
        compiled = entry.compiled
        if (compiled.generation, compiled.rows_computed) == (entry.tables_generation, entry.rows_written):
            return
        self._queue.append(entry)
        self._wake.set()
        if self._closing:
            self.flush()

    def flush(self) -> None:
        """Write everything that is not on disk yet, now and in this thread."""
        self._write_queue()
        with self._writing:
            for entry in self._memory.entries():
                self._write(entry, whole=True)
            self._write_uses()

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
            self._queue.extend(self._memory.trim_if_due())
            self._write_queue()
            with self._writing:
                for entry in self._memory.entries():
                    self._write(entry, whole=False)
                self._disk.rows.refresh()
                if time.monotonic() - self._uses_written_s > USES_DELAY_S:
                    self._write_uses()
            self._wake.wait(self._delay_s)
            self._wake.clear()
        self.flush()

    def _write_queue(self) -> None:
        """Write what was submitted."""
        with self._writing:
            while self._queue:
                self._write(self._queue.popleft(), whole=True)

    def _write_uses(self) -> None:
        self._disk.used(self._memory.take_used())
        self._disk.write_uses()
        self._uses_written_s = time.monotonic()

    def _write(self, entry: Entry, *, whole: bool) -> None:
        """Bring the disk up to date with one entry: its tables, if they are due or `whole` is set, and its rows."""
        generation, rows = entry.compiled.generation, entry.compiled.rows_computed
        try:
            with entry.hold:
                if self._disk.available and not entry.is_deleted:
                    if generation != entry.tables_generation and (whole or _is_due(entry, generation)):
                        self._store_tables(entry)
                    entry.seen_generation = generation
            if self._disk.available and rows != entry.rows_written:
                self._store_rows(entry)
        except Exception:  # one entry that cannot be written must not end the thread for all others
            logger.exception("schema cache: writing %s failed", entry.key)
            entry.tables_generation, entry.rows_written = generation, rows  # again when it has grown

    def _store_tables(self, entry: Entry) -> None:
        """Write the tables, united with what others have written since."""
        for _ in range(UNION_ATTEMPTS):
            about = describe(entry.key, entry.compiled, entry.created_s, entry.last_used_s)  # may learn states
            generation, others = entry.compiled.generation, list[bytes]()
            data = tables_entry(entry.key, entry.compiled.dump(with_rows=False))

            def replace(stored: bytes | None, known: bytes = entry.stamp, data: bytes = data) -> bytes | None:
                if stored is None or stamp_of(stored) == known:
                    return data
                others.append(stored)  # noqa: B023  # called before this round ends
                return None

            is_stored = self._disk.update(entry.key, replace, label_of(about))
            if not others:
                if is_stored:
                    entry.stamp = stamp_of(data)
                if self._disk.available:  # what is not stored is too large for the limit
                    entry.tables_generation = generation
                return
            _learn_from(others[0], entry)

    def _store_rows(self, entry: Entry) -> None:
        """Add the mask rows that were computed to those of the vocabulary."""
        count = entry.compiled.rows_computed
        rows = entry.compiled.computed_rows(entry.rows_written)
        if self._disk.rows.add(entry.compiled.vocabulary, {row_name(entry.key, name): rows[name] for name in rows}):
            entry.rows_written = count


def _is_due(entry: Entry, generation: int) -> bool:
    """Whether tables have doubled since they were written, or learnt nothing for a delay."""
    return generation >= 2 * entry.tables_generation or generation == entry.seen_generation


def _learn_from(stored: bytes, entry: Entry) -> None:
    """Unite an entry with what another process has stored; what is corrupt will be replaced."""
    try:
        entry.compiled.unite(tables_from(stored, entry.key))
    except CorruptEntryError as error:
        logger.warning("schema cache: entry %s is corrupt and will be replaced: %s", entry.key, error)
    entry.stamp = stamp_of(stored)
