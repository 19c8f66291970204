"""Bytes under text keys in a folder that several processes share; trouble is a miss.

In: a folder. Out: `DiskTier`, whose methods never raise for what a disk, a file system or another process may do: they
log one warning, leave the disk alone for a while and answer as if the entry were not there. Cost: about 1 ms per call,
for a connection is opened and closed in each: a cache is called from many short-lived threads and asked only where the
alternative is to compile.

Folder: `tables/` is a diskcache (SQLite for small values, files for large ones, least recently used evicted first);
`locks/` holds empty files for `lock`. A damaged database is deleted whole, once, by one process: it is a cache.

`lock` is a file lock of the operating system (flock, LockFileEx): the kernel drops it when its holder dies, be it by
`kill -9`, so there is no stale lock to wait for. Where a file system has none, filelock falls back to marker files, and
waiting is bounded in any case. Rejected: `diskcache.Lock` with an expiry, which blocks everybody for the whole expiry
(longer than the longest compile) after a crash; and one lock file per key for ever, which only grows.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

import diskcache
import filelock
from diskcache.core import MODE_BINARY, MODE_RAW, UNKNOWN

SIZE_LIMIT_BYTES = 1 << 30  # thousands of schemas of usual size, or two of the largest allowed
CULL_ENTRIES = 2  # evicted at a time, while above the limit: more than one write adds, and never most of the cache
SYNCHRONOUS_OFF = 0  # a power failure may cost the cache, which is noticed; waiting for the disk cost 10 ms a call
BUSY_TIMEOUT_S = 5.0  # writers hold the database for milliseconds; longer means that one hangs
TROUBLE_PAUSE_S = 30.0  # after trouble: neither a warning nor a wait for every request, nor for ever without a disk
LOCK_POLL_S = 0.02  # small beside a compile that is worth waiting for
LOCK_NAME_DIGITS = 3  # 4,096 lock files at most; two keys that share one only wait for each other

TROUBLE = (sqlite3.Error, OSError, diskcache.Timeout)
OPEN_TROUBLE = (*TROUBLE, TypeError, ValueError, LookupError)  # a database of another program or version
DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

logger = logging.getLogger(__name__)
T = TypeVar("T")


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
        data = super().fetch(mode, filename, None, read) if mode == MODE_BINARY else b""
        return bytes(data)

    def _write(self, full_path: str, iterator: object, mode: str, encoding: str | None = None) -> int:
        """Write a file; what was written of it before the disk was full is removed again."""
        try:
            size: int = super()._write(full_path, iterator, mode, encoding)
        except OSError:
            Path(full_path).unlink(missing_ok=True)
            raise
        return size


class DiskTier:
    """Bytes under text keys; safe from several threads and processes; never raises for trouble with the disk.

    Parameters
    ----------
    folder : Path
        Created when missing; several processes may share it. Nothing is touched before the first call.
    size_limit_bytes : int
        Above it the least recently used entries are evicted.
    """

    def __init__(self, folder: Path, size_limit_bytes: int = SIZE_LIMIT_BYTES) -> None:
        self.folder = folder
        self.size_limit_bytes = size_limit_bytes
        self._tables, self._locks = folder / "tables", folder / "locks"
        self._cache: diskcache.Cache | None = None
        self._opening = threading.Lock()
        self._paused_until_s = 0.0  # on the monotonic clock; infinite once closed
        self._warned = False

    @property
    def available(self) -> bool:
        """Whether a call would reach the disk now."""
        return time.monotonic() >= self._paused_until_s

    def get(self, key: str) -> bytes | None:
        """Return the value, or None."""
        value: bytes | None = self._attempt(lambda cache: cache.get(key), None)
        return value

    def put(self, key: str, value: bytes) -> bool:
        """Store a value; False if it could not be."""
        return self._attempt(lambda cache: bool(cache.set(key, value)), False)

    def delete(self, key: str) -> None:
        """Remove an entry if it is there."""
        self._attempt(lambda cache: cache.delete(key), None)

    def update(self, key: str, change: Callable[[bytes | None], bytes | None]) -> bool:
        """Replace a value by what `change` makes of it, in one transaction; False if that could not be done.

        `change` gets None for a missing entry, and returns None to leave everything as it is.
        """

        def replace(cache: diskcache.Cache) -> bool:
            with cache.transact():
                value = change(cache.get(key))
                return value is None or bool(cache.set(key, value))

        return self._attempt(replace, False)

    def lock(self, key: str, wait_s: float) -> ExitStack | None:
        """Take the lock for `key` across processes and threads, waiting up to `wait_s`.

        Returns
        -------
        ExitStack or None
            Its `close` lets go, from any thread. None when there was no lock to have: the caller goes on without one,
            and at worst works twice.
        """
        if not self.available:
            return None
        try:
            lock = self._file_lock(key[:LOCK_NAME_DIGITS])
            lock.acquire(timeout=wait_s, poll_interval=LOCK_POLL_S)
        except filelock.Timeout:
            logger.warning("schema cache in %s: another process held a lock for more than %g s", self.folder, wait_s)
            return None
        except OSError as error:
            self._trouble(error)
            return None
        hold = ExitStack()
        hold.callback(lock.release)
        return hold

    def close(self) -> None:
        """Leave the disk alone from now on."""
        self._paused_until_s = float("inf")

    def _attempt(self, action: Callable[[diskcache.Cache], T], otherwise: T) -> T:
        """Run `action` on the open cache; after trouble return `otherwise`."""
        if not self.available:
            return otherwise
        try:
            cache = self._open()
            try:
                return action(cache)
            finally:
                cache.close()  # this thread's connection only
        except TROUBLE as error:
            self._trouble(error)
            if _is_damage(error):
                self._repair()
            return otherwise

    def _open(self) -> diskcache.Cache:
        """Return the cache, opened at the first call."""
        with self._opening:
            if self._cache is None:
                try:
                    self._cache = diskcache.Cache(
                        str(self._tables),
                        timeout=BUSY_TIMEOUT_S,
                        disk=BytesDisk,
                        eviction_policy="least-recently-used",
                        size_limit=self.size_limit_bytes,
                        cull_limit=CULL_ENTRIES,
                        sqlite_synchronous=SYNCHRONOUS_OFF,
                    )
                except OPEN_TROUBLE as error:
                    raise error if isinstance(error, TROUBLE) else OSError(f"a foreign database: {error}") from error
            return self._cache

    def _file_lock(self, name: str) -> filelock.FileLock:
        """Make a lock that any thread may release."""
        self._locks.mkdir(parents=True, exist_ok=True)
        return filelock.FileLock(self._locks / f"{name}.lock", thread_local=False)

    def _trouble(self, error: Exception) -> None:
        """Warn once, and leave the disk alone for a while."""
        if not self._warned:
            self._warned = True
            logger.warning("schema cache in %s: %s; going on without it", self.folder, error or type(error).__name__)
        self._paused_until_s = max(self._paused_until_s, time.monotonic() + TROUBLE_PAUSE_S)

    def _repair(self) -> None:
        """Delete a damaged database and its files, unless another process has already."""
        with suppress(*TROUBLE), self._file_lock("repair").acquire(timeout=BUSY_TIMEOUT_S), self._opening:
            self._cache = None
            if not _is_sound(self._tables / diskcache.core.DBNAME):
                shutil.rmtree(self._tables)
                self._paused_until_s = min(self._paused_until_s, time.monotonic())


def _is_damage(error: Exception) -> bool:
    """Whether SQLite says that the file is no database or a broken one."""
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE_CODES


def _is_sound(path: Path) -> bool:
    """Whether SQLite can read a whole database."""
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)
    try:
        return bool(connection.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)])
    except sqlite3.DatabaseError as error:
        if _is_damage(error):
            return False
        raise
    finally:
        connection.close()
