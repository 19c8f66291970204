"""A diskcache that holds bytes, is read without writing, and whose threads share one connection.

In: a folder. Out: `BytesCache`, a `diskcache.Cache` (SQLite for small values, files for large ones) with four changes:

- values and keys are bytes and text, stored as they are; a pickle that somebody planted is never loaded;
- one connection for all threads instead of one for each: whoever uses it holds a lock. Opening one took 0.5 ms, which
  is what a whole look-up may cost, and short-lived threads left theirs behind;
- a look-up writes nothing. diskcache's own order of use costs a transaction for each look-up, which waits for every
  writer and fails on a full disk. Here a use counts as storing (`mark_used`), told behind the caller's back;
- the size is counted anew from the entries when something is stored, not kept as a total that damage can change.

Cost: 20 us for a look-up of a small value, 60 us with a file; 6 ms to open. Pages are read from the file each time
(no memory map, which ends the process where a file was cut; hardly any page cache): the system caches files as it is.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import diskcache
from diskcache.core import DBNAME, MODE_BINARY, MODE_RAW, UNKNOWN

ORPHAN_AGE_S = 600.0  # a value file without an entry: its writer was killed, or is about to add the entry
PRAGMAS = {
    "sqlite_synchronous": 0,  # a power failure may cost the cache, which is noticed; waiting for the disk cost 10 ms
    "sqlite_mmap_size": 0,
    "sqlite_cache_size": 0,
    "sqlite_wal_autocheckpoint": 256,  # pages: the log beside the database stays near 1 MB
    "sqlite_journal_size_limit": 1 << 20,
}
READ_ATTEMPTS = 3  # each time another process would have to replace the value
USED = "least-recently-stored"  # evicted first; a use counts as storing


@dataclass(frozen=True, slots=True)
class StoredValue:
    """What is known of a value without reading it."""

    key: str
    label: str
    size_bytes: int
    last_used_s: float  # since 1970


class BytesDisk(diskcache.Disk):  # type: ignore[misc]  # the library has no types
    """Stores bytes under text keys as they are; neither writes nor reads pickles."""

    def put(self, key: str) -> tuple[str, bool]:
        """Turn a key into what the database holds."""
        if type(key) is not str:
            raise TypeError(f"keys are text, not {type(key).__name__}")
        return key, True

    def get(self, key: object, raw: object) -> str:
        """Turn what the database holds into a key; a row of another program reads as the empty key."""
        return key if raw and isinstance(key, str) else ""

    def store(self, value: bytes, read: bool, key: object = UNKNOWN) -> tuple[int, int, str | None, bytes | None]:
        """Store a value; large ones become files."""
        if type(value) is not bytes or read:
            raise TypeError(f"values are bytes, not {type(value).__name__}")
        fields: tuple[int, int, str | None, bytes | None] = super().store(value, False, key)
        return fields

    def fetch(self, mode: int, filename: str | None, value: object, read: bool) -> bytes:
        """Read a value; a row of another program reads as empty bytes, which no entry is."""
        if mode == MODE_RAW and isinstance(value, bytes):
            return value
        data = super().fetch(mode, filename, None, read) if mode == MODE_BINARY and filename else b""
        return bytes(data)

    def _write(self, full_path: str, iterator: object, mode: str, encoding: str | None = None) -> int:
        """Write a file; what was written of it before the disk was full is removed again."""
        try:
            size: int = super()._write(full_path, iterator, mode, encoding)
        except OSError:
            Path(full_path).unlink(missing_ok=True)
            raise
        return size


class BytesCache(diskcache.Cache):  # type: ignore[misc]  # the library has no types
    """Bytes under text keys; one thread at a time.

    Parameters
    ----------
    folder : Path
        Created when missing.
    busy_timeout_s : float
        How long to wait for another process that writes.
    """

    _connection: sqlite3.Connection | None = None  # the library's constructor asks for one before ours is done

    def __init__(self, folder: Path, busy_timeout_s: float) -> None:
        self._busy_timeout_s = busy_timeout_s  # for the constructor too, which would not wait for others that open
        super().__init__(
            str(folder), timeout=busy_timeout_s, disk=BytesDisk, eviction_policy=USED, cull_limit=0, **PRAGMAS
        )
        self._database = folder / DBNAME
        self._inode = self._database.stat().st_ino

    def __del__(self) -> None:
        self.close()

    @property
    def _con(self) -> sqlite3.Connection:
        """The connection, opened on first use."""
        if self._connection is None:
            self._connection = sqlite3.connect(
                Path(self.directory) / DBNAME,
                timeout=self._busy_timeout_s,
                isolation_level=None,
                check_same_thread=False,
            )
            for name, value in PRAGMAS.items():
                self._connection.execute(f"PRAGMA {name.removeprefix('sqlite_')} = {value}").fetchall()
        return self._connection

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def is_replaced(self) -> bool:
        """Whether the database is no longer the file that was opened: somebody deleted the folder."""
        try:
            return bool(self._database.stat().st_ino != self._inode)
        except FileNotFoundError:
            return True

    def find(self, key: str) -> tuple[bytes | None, str]:
        """Return a value and its label, or None and nothing; again where it was replaced while it was read."""
        for _ in range(READ_ATTEMPTS):
            value, label = self.get(key, tag=True)
            if value is not None or key not in self:
                break
        return value, label if isinstance(label, str) else ""

    def exchange(self, key: str, change: Callable[[bytes | None], bytes | None], label: str) -> None:
        """Replace a value by what `change` makes of it; None leaves it. Old files go when others read the new one.

        The library's `set` inside a transaction removes the old file before the end of it, and readers miss it.
        """
        with self._transact() as (sql, remove_file):
            value = change(self.find(key)[0])
            if value is None:
                return
            size, mode, filename, inline = self.disk.store(value, False, key)
            columns = (None, label, size, mode, filename, inline)
            try:
                rows = sql("SELECT rowid, filename FROM Cache WHERE key = ? AND raw = 1", (key,)).fetchall()
                if rows:
                    self._row_update(rows[0][0], time.time(), columns)
                else:
                    self._row_insert(key, True, time.time(), columns)
            except sqlite3.Error:
                if filename:
                    self.disk.remove(filename)
                raise
            for _, old_filename in rows:
                remove_file(old_filename)

    def mark_used(self, keys: Iterable[str]) -> None:
        """Move entries to the end of the order in which they are evicted."""
        now_s = time.time()
        with self._transact() as (sql, _):
            for key in keys:
                sql("UPDATE Cache SET store_time = ? WHERE key = ? AND raw = 1", (now_s, key))

    def values_stored(self) -> list[StoredValue]:
        """Everything there is, the least recently used first; rows of other programs are left out."""
        columns = "key, tag, size + LENGTH(COALESCE(value, '')), store_time"
        rows = self._sql(f"SELECT {columns} FROM Cache WHERE raw = 1 ORDER BY store_time").fetchall()  # noqa: S608
        return [StoredValue(*row) for row in rows if tuple(map(type, row)) == (str, str, int, float)]

    def size_bytes(self) -> int:
        """Bytes on disk: the database and the value files."""
        ((pages,),) = self._sql("PRAGMA page_count").fetchall()
        ((files,),) = self._sql("SELECT COALESCE(SUM(size), 0) FROM Cache").fetchall()
        return int(pages * self._page_size + files)

    def make_room(self, limit_bytes: int) -> int:
        """Evict the least recently used until the size is within the limit; how many went."""
        excess, evicted = self.size_bytes() - limit_bytes, 0
        if excess <= 0:
            return 0
        with self._transact() as (sql, remove_file):
            query = "SELECT rowid, filename, size + LENGTH(COALESCE(value, '')) FROM Cache ORDER BY store_time"
            for row, filename, size in sql(query).fetchall():
                if excess <= 0:
                    break
                sql("DELETE FROM Cache WHERE rowid = ?", (row,))
                remove_file(filename)
                excess -= size
                evicted += 1
        return evicted

    def remove_orphans(self) -> None:
        """Delete value files that no entry names: a writer was killed between the two."""
        named = {name for (name,) in self._sql("SELECT filename FROM Cache WHERE filename IS NOT NULL").fetchall()}
        root, before_s = Path(self.directory), time.time() - ORPHAN_AGE_S
        for folder, _, files in os.walk(root):  # which takes no notice of folders that go meanwhile
            for path in (Path(folder, name) for name in files if name.endswith(".val")):
                with suppress(FileNotFoundError):  # another process cleans up too
                    if str(path.relative_to(root)) not in named and path.stat().st_mtime < before_s:
                        path.unlink()


def is_sound(database: Path, busy_timeout_s: float) -> bool:
    """Whether SQLite can read a whole database."""
    connection = sqlite3.connect(database, timeout=busy_timeout_s)
    try:
        return bool(connection.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)])
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return False
        raise
    finally:
        connection.close()


def is_damage(error: Exception) -> bool:
    """Whether SQLite says that the file is no database or a broken one."""
    codes = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in codes
