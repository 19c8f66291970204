"""Mask rows on disk, a file for each vocabulary; trouble is a miss.

In: a folder that several processes share. Out: `DiskRows`, whose methods never raise for what a disk, a file system or
another process may do: they log one warning, leave the rows alone for a while and answer as if there were none. Tables
are of use without rows, so what is wrong with the rows keeps nobody from the tables. Cost: see `row_file`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import filelock

from schemas_cache.row_file import RowFile, Rows
from schemas_cache.vocabulary import Vocabulary

BUSY_TIMEOUT_S = 5.0  # writers hold a lock or the database for milliseconds; longer means that one hangs
TROUBLE_PAUSE_S = 30.0  # after trouble: neither a warning nor a wait for every request, nor for ever without a disk

T = TypeVar("T")


class DiskRows:
    """Packed mask rows by vocabulary and digest; safe from several threads and processes.

    Parameters
    ----------
    folder : Path
        Created when missing.
    limit_bytes : int
        Of each vocabulary's file.
    make_lock : callable
        Makes the lock across processes that any thread may release.
    is_available : callable
        Whether the disk is to be asked at all.
    warn : callable
        Hears what is wrong.
    """

    def __init__(
        self,
        folder: Path,
        limit_bytes: int,
        make_lock: Callable[[], filelock.FileLock],
        is_available: Callable[[], bool],
        warn: Callable[[object], None],
    ) -> None:
        self.folder, self.limit_bytes = folder, limit_bytes
        self._make_lock, self._is_available, self._warn = make_lock, is_available, warn
        self._files: dict[str, RowFile] = {}  # by the vocabulary's fingerprint
        self._paused_until_s = 0.0  # on the monotonic clock

    def find(self, vocabulary: Vocabulary, digest: bytes) -> bytes | None:
        """Return a packed mask row, or None."""
        return self._attempt(lambda: self._file(vocabulary).find(digest), None)

    def add(self, vocabulary: Vocabulary, rows: Rows) -> bool:
        """Store the packed mask rows that are not there yet; False if they could not be."""

        def add() -> bool:
            self._file(vocabulary).add(rows)
            return True

        return self._attempt(add, False)

    def size_bytes(self) -> int:
        """Bytes that they take on disk."""
        return self._attempt(lambda: sum(path.stat().st_size for path in self.folder.glob("*")), 0)

    def refresh(self) -> None:
        """Find those too that other processes have stored since."""

        def refresh() -> None:
            for rows in list(self._files.values()):
                rows.refresh()

        self._attempt(refresh, None)

    def clear(self) -> None:
        """Remove all of them."""
        self._attempt(lambda: shutil.rmtree(self.folder, ignore_errors=True), None)

    def close(self) -> None:
        """Close the files."""
        for rows in self._files.values():
            rows.close()

    def _attempt(self, action: Callable[[], T], otherwise: T) -> T:
        """Read or write rows; after trouble return `otherwise`."""
        if not self._is_available() or time.monotonic() < self._paused_until_s:
            return otherwise
        try:
            return action()
        except OSError as error:
            self._warn(error)
            self._paused_until_s = time.monotonic() + TROUBLE_PAUSE_S
            return otherwise

    def _file(self, vocabulary: Vocabulary) -> RowFile:
        """Return the rows of a vocabulary, opened at the first call."""
        known = self._files.get(vocabulary.fingerprint)
        if known is not None:
            return known
        row_bytes, lock = 4 * -(-len(vocabulary) // 32), self._make_lock()
        rows = RowFile(
            self.folder,
            vocabulary.fingerprint,
            row_bytes,
            self.limit_bytes,
            lambda: lock.acquire(timeout=BUSY_TIMEOUT_S),
        )
        rows.refresh()
        return self._files.setdefault(vocabulary.fingerprint, rows)
