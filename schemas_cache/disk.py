"""Bytes under text keys in a folder that several processes share; trouble is a miss.

In: a folder. Out: `DiskTier`, whose methods never raise for what a disk, a file system or another process may do: they
log one warning, leave the disk alone for a while and answer as if the entry were not there. Cost: see `bytes_cache`.

Folder: `tables/` is a `BytesCache`; `rows/` is for `disk_rows`; `locks/` holds empty files for `lock`. A damaged
database is deleted whole, once, by one process: it is a cache. Damage that SQLite cannot see changes bytes of a value
or of a key, and values carry digests and their keys. Uses are gathered and written when something is evicted, or by
`write_uses`.

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
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

import diskcache
import filelock
from diskcache.core import DBNAME

from schemas_cache.bytes_cache import BytesCache, StoredValue, is_damage, is_sound
from schemas_cache.disk_rows import BUSY_TIMEOUT_S, TROUBLE_PAUSE_S, DiskRows

SIZE_LIMIT_BYTES = 1 << 30  # ten thousand schemas of usual size; the largest allowed take some hundred megabytes
ROWS_SHARE = 0.25  # of the size limit, for mask rows: 40,000 packed ones of a vocabulary of 49,152
LOCK_POLL_S = 0.02  # small beside a compile that is worth waiting for
LOCK_NAME_DIGITS = 3  # 4,096 lock files at most; two keys that share one only wait for each other

TROUBLE = (sqlite3.Error, OSError, diskcache.Timeout)
FOREIGN = (
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
    AssertionError,
)  # what foreign or damaged content causes

logger = logging.getLogger(__name__)
T = TypeVar("T")


class _Access:
    """One open cache, and the lock that whoever uses it holds."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._cache: BytesCache | None = None

    def open(self, folder: Path) -> BytesCache:
        """Return the cache, opened at the first call, and again where the folder was deleted meanwhile."""
        if self._cache is not None and self._cache.is_replaced():
            self.forget()
        if self._cache is None:
            self._cache = BytesCache(folder, BUSY_TIMEOUT_S)
        return self._cache

    def forget(self) -> None:
        """Close the cache; the next call opens it anew."""
        cache, self._cache = self._cache, None
        if cache is not None:
            with suppress(sqlite3.Error):
                cache.close()


class DiskTier:
    """Bytes under text keys; safe from several threads and processes; never raises for trouble with the disk.

    Parameters
    ----------
    folder : Path
        Created when missing; several processes may share it. Nothing is touched before the first call.
    size_limit_bytes : int
        Of the folder, rows included; above it the least recently used entries are evicted.

    Attributes
    ----------
    rows : DiskRows
        Mask rows in the same folder.
    """

    def __init__(self, folder: Path, size_limit_bytes: int = SIZE_LIMIT_BYTES) -> None:
        self.folder = folder
        rows_limit_bytes = int(size_limit_bytes * ROWS_SHARE)
        self.tables_limit_bytes = size_limit_bytes - rows_limit_bytes
        self.rows = DiskRows(
            folder / "rows", rows_limit_bytes, lambda: self._file_lock("rows"), lambda: self.available, self.warn
        )
        self._tables, self._locks = folder / "tables", folder / "locks"
        self._reading, self._writing = _Access(), _Access()  # who reads does not wait for who writes
        self._counting = threading.Lock()  # over the uses
        self._used: set[str] = set()
        self._swept = False
        self._paused_until_s = 0.0  # on the monotonic clock; infinite once closed
        self._warned = False

    @property
    def available(self) -> bool:
        """Whether a call would reach the disk now."""
        return time.monotonic() >= self._paused_until_s

    def get(self, key: str) -> bytes | None:
        """Return the value, or None."""
        return self.get_labelled(key)[0]

    def get_labelled(self, key: str) -> tuple[bytes | None, str]:
        """Return the value and its label, or None and nothing."""
        nothing: tuple[bytes | None, str] = None, ""
        value, label = self._read(lambda cache: cache.find(key), nothing)
        if value is not None:
            self.used([key])
        return value, label

    def put(self, key: str, value: bytes, label: str = "") -> bool:
        """Store a value; False if it could not be. `label` is a short text for `stored`."""
        return self.update(key, lambda _: value, label)

    def update(self, key: str, change: Callable[[bytes | None], bytes | None], label: str = "") -> bool:
        """Replace a value by what `change` makes of it, in one transaction; False if that could not be done.

        `change` gets None for a missing entry, and returns None to leave everything as it is.
        """

        def replace(cache: BytesCache) -> bool:
            cache.exchange(key, change_within_limit, label)
            self._keep_within_limit(cache)
            return not too_large

        too_large = list[int]()

        def change_within_limit(stored: bytes | None) -> bytes | None:
            value = change(stored)
            if value is None or len(value) <= self.tables_limit_bytes // 2:
                return value
            too_large.append(len(value))
            return None

        return self._write(replace, False)

    def delete(self, *keys: str) -> int:
        """Remove the entries that are there; how many those were."""
        return self._write(lambda cache: sum(bool(cache.delete(key)) for key in keys), 0)

    def clear(self) -> int:
        """Remove everything, mask rows too; how many entries that was."""
        self.rows.clear()
        return self._write(lambda cache: int(cache.clear()), 0)

    def stored(self) -> list[StoredValue]:
        """Say what there is, the least recently used first, without reading it."""
        return self._read(lambda cache: cache.values_stored(), [])

    def size_bytes(self) -> int:
        """Bytes that the entries take on disk, rows left out."""
        return self._read(lambda cache: cache.size_bytes(), 0)

    def used(self, keys: Iterable[str]) -> None:
        """Count a use of entries; what was used longest ago is evicted first."""
        with self._counting:
            self._used.update(keys)

    def write_uses(self) -> None:
        """Write the uses gathered so far, for other processes and for the next start."""
        if self._used:
            self._write(self._mark_used, None)

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

    def warn(self, reason: object) -> None:
        """Say what is wrong with the disk, the first time."""
        if not self._warned:
            self._warned = True
            logger.warning("schema cache in %s: %s; going on without it", self.folder, reason)

    def close(self) -> None:
        """Leave the disk alone from now on."""
        self._paused_until_s = float("inf")
        for access in (self._reading, self._writing):
            with access.lock:
                access.forget()
        self.rows.close()

    def _read(self, action: Callable[[BytesCache], T], otherwise: T) -> T:
        """Run what only reads; after trouble return `otherwise`."""
        return self._attempt(self._reading, action, otherwise)

    def _write(self, action: Callable[[BytesCache], T], otherwise: T) -> T:
        """Run what writes; after trouble return `otherwise`."""
        return self._attempt(self._writing, action, otherwise)

    def _attempt(self, access: _Access, action: Callable[[BytesCache], T], otherwise: T) -> T:
        with access.lock:
            if not self.available:
                return otherwise
            try:
                return action(access.open(self._tables))
            except (*TROUBLE, *FOREIGN) as error:
                self._trouble(error)
                access.forget()
                if is_damage(error):
                    self._repair()
                return otherwise

    def _keep_within_limit(self, cache: BytesCache) -> None:
        """Evict what is too much, and once in a process delete what killed writers left."""
        if cache.size_bytes() > self.tables_limit_bytes:
            self._mark_used(cache)
            cache.make_room(self.tables_limit_bytes)
        if not self._swept:
            self._swept = True
            cache.remove_orphans()

    def _mark_used(self, cache: BytesCache) -> None:
        """Write the uses gathered so far."""
        with self._counting:
            used, self._used = self._used, set()
        cache.mark_used(used)

    def _file_lock(self, name: str) -> filelock.FileLock:
        """Make a lock that any thread may release."""
        self._locks.mkdir(parents=True, exist_ok=True)
        return filelock.FileLock(self._locks / f"{name}.lock", thread_local=False)

    def _trouble(self, error: Exception) -> None:
        """Warn once, and leave the disk alone for a while."""
        kind = type(error).__name__
        self.warn(f"a foreign database ({kind}: {error})" if isinstance(error, FOREIGN) else error or kind)
        self._paused_until_s = max(self._paused_until_s, time.monotonic() + TROUBLE_PAUSE_S)

    def _repair(self) -> None:
        """Delete a damaged database and its files, unless another process has already."""
        with suppress(*TROUBLE), self._file_lock("repair").acquire(timeout=BUSY_TIMEOUT_S):
            if not is_sound(self._tables / DBNAME, BUSY_TIMEOUT_S):
                shutil.rmtree(self._tables)
                self._paused_until_s = min(self._paused_until_s, time.monotonic())
