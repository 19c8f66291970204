"""Mask rows of one vocabulary on disk, shared by all its schemas and by several processes: two files that only grow.

In: packed rows by the digest of what they depend on. Out: the row of a digest, or None. Cost: a look-up is one short
read, a checksum and a decompression, about 15 us; opening reads the digests, 24 bytes a row. Rows are nearly all zeros
or nearly all ones: compressed they take a tenth, some 500 bytes for 49,152 tokens.

A file is a sequence of blocks, one for each write:

    magic (8 bytes), format version (4), bytes of a row (4), rows (4), BLAKE2b-256 of the next part (32),
    of each row: digest (16), length of what follows (4), zeros (4)
    of each row: checksum (16), compressed row

The checksum of a block holds for the vocabulary too, and that of a row for its digest. What is damaged is not found,
and is computed again; a block that a killed process left half written, or that is damaged, ends the file, and the next
writer cuts it off. Writers take turns by a file lock; readers need none, as nothing is changed in place.

Bounded: a file that has reached half of the limit, or `MAX_ROWS`, becomes the old one, in the old one's place. A row
that is found there is written again to the new one, so what was used lately stays and the rest goes, the least recently
used first. Files of all vocabularies share the limit: where they are too much together, the one written longest ago
goes.

Rejected: rows in the entry of each schema, which stored a field once for every schema that has it, and made loading a
schema as slow as its rows are many; one file or database row for each mask row, at ten times the cost for writing; a
memory map, which ends the process where a file was cut.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from schemas_cache.codec import FORMAT_VERSION

DIGEST_BYTES = 16

_MAGIC = b"KATAROWS"
_HEADER = struct.Struct("<8sIII32s")
_RECORD = struct.Struct("<16sI4x")
_CHECKSUM_BYTES = 16
_LENGTH_BITS = 32  # a place is one integer, where a row begins and how long it is: half the memory of two
MAX_ROWS = 40_000  # in one file, 150 bytes each in memory: a thousand schemas have no more
_FAST = 1  # zlib's level: 40 us a row

logger = logging.getLogger(__name__)

Rows = Mapping[bytes, bytes]
Lock = Callable[[], AbstractContextManager[object]]


class RowFile:
    """Rows of one vocabulary in a folder; safe from several threads and processes. Methods raise `OSError`.

    Parameters
    ----------
    folder : Path
        Created when missing.
    fingerprint : str
        Of the vocabulary; the name of the file.
    row_bytes : int
        Length of a packed row.
    limit_bytes : int
        Of all files in the folder together.
    lock : callable
        Makes the lock that writers hold, across processes.
    """

    def __init__(self, folder: Path, fingerprint: str, row_bytes: int, limit_bytes: int, lock: Lock) -> None:
        name = f"{fingerprint}-{FORMAT_VERSION}"
        self._fingerprint, self._row_bytes, self._limit_bytes, self._lock = fingerprint, row_bytes, limit_bytes, lock
        self._new, self._old = _Generation(folder / f"{name}.rows", self), _Generation(folder / f"{name}.old", self)
        self._writing = threading.Lock()  # over `add` and `refresh`, which may wait for other processes
        self._using = threading.Lock()  # over what is known; held for microseconds, as decoding waits for it
        self._found_old: dict[bytes, bytes] = {}  # to be written to the new file

    def __len__(self) -> int:
        with self._using:
            return len(self._new.places.keys() | self._old.places.keys())

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._new.places or digest in self._old.places

    def find(self, digest: bytes) -> bytes | None:
        """Return the packed row of a digest, or None."""
        with self._using:
            row = self._new.read(digest)
            if row is None:
                row = self._old.read(digest)
                if row is not None:
                    self._found_old[digest] = row
            return row

    def refresh(self) -> None:
        """Learn what other processes wrote since."""
        with self._writing, self._using:
            self._new.refresh()
            self._old.refresh()

    def add(self, rows: Rows) -> None:
        """Write the rows that are not there yet, and those of the old file that were used."""
        with self._writing:
            with self._using:
                wanted = {digest: row for digest, row in rows.items() if digest not in self} | self._found_old
                self._found_old = {}
            if wanted:
                with self._lock():
                    self._write(wanted)

    def _write(self, rows: Rows) -> None:
        """Append rows, and keep the folder within the limit; under both locks of writers."""
        with self._using:
            self._new.refresh()
            self._new.cut()
            missing = {digest: row for digest, row in rows.items() if digest not in self._new.places}
        if missing:
            self._new.append(self.block(missing))
        if self._new.size_on_disk >= self._limit_bytes // 2 or len(self._new.places) + len(missing) >= MAX_ROWS:
            self._new.path.replace(self._old.path)
        with self._using:
            self._new.refresh()
            self._old.refresh()
        self._keep_within_limit()

    def _keep_within_limit(self) -> None:
        files = [(path.stat(), path) for path in self._new.path.parent.iterdir() if path.suffix in (".rows", ".old")]
        excess = sum(status.st_size for status, _ in files) - self._limit_bytes
        for status, path in sorted(files, key=lambda file: file[0].st_mtime):
            if excess > 0 and path != self._new.path:
                path.unlink(missing_ok=True)
                excess -= status.st_size

    def close(self) -> None:
        """Close the files."""
        with self._writing, self._using:
            self._new.close()
            self._old.close()

    def block(self, rows: Rows) -> bytes:
        """Pack rows."""
        packed = {digest: _sealed(digest, zlib.compress(row, _FAST)) for digest, row in rows.items()}
        records = b"".join(_RECORD.pack(digest, len(data)) for digest, data in packed.items())
        header = _HEADER.pack(_MAGIC, FORMAT_VERSION, self._row_bytes, len(packed), self._seal(records))
        return header + records + b"".join(packed.values())

    def records(self, header: bytes, read: Callable[[int], bytes]) -> list[tuple[bytes, int]] | None:
        """Read what a block says of its rows: digest and length; None for no block of ours."""
        if len(header) < _HEADER.size:
            return None
        magic, version, row_bytes, count, seal = _HEADER.unpack(header)
        if (magic, version, row_bytes) != (_MAGIC, FORMAT_VERSION, self._row_bytes):
            return None
        records = read(count * _RECORD.size)
        if len(records) != count * _RECORD.size or self._seal(records) != seal:
            return None
        return list(_RECORD.iter_unpack(records))

    def _seal(self, records: bytes) -> bytes:
        shape = f"{self._fingerprint} {self._row_bytes} {len(records)} "
        return hashlib.blake2b(shape.encode() + records, digest_size=32).digest()


class _Generation:
    """One of the two files: read as far as it is known, and further with each `refresh`."""

    def __init__(self, path: Path, blocks: RowFile) -> None:
        self.path, self._blocks = path, blocks
        self.places: dict[bytes, int] = {}
        self.size = 0  # up to the end of the last whole block
        self._file = -1
        self._inode = 0

    @property
    def size_on_disk(self) -> int:
        """Bytes of the open file."""
        return os.fstat(self._file).st_size

    def __del__(self) -> None:
        self.close()

    def read(self, digest: bytes) -> bytes | None:
        """Return a row; one that is damaged is forgotten."""
        place = self.places.get(digest)
        if place is None:
            return None
        sealed = os.pread(self._file, place & ((1 << _LENGTH_BITS) - 1), place >> _LENGTH_BITS)
        data = sealed[_CHECKSUM_BYTES:]
        if _sealed(digest, data) == sealed:
            return zlib.decompress(data)
        logger.warning("schema cache: a mask row in %s is damaged and will be computed again", self.path)
        del self.places[digest]
        return None

    def refresh(self) -> None:
        """Read the blocks that are new; from the start where the file is another one."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self.close()
            return
        if self._file < 0 or status.st_ino != self._inode or status.st_size < self.size:
            self.close()
            self._file = os.open(self.path, os.O_RDWR)
            self._inode = os.fstat(self._file).st_ino
        while status.st_size > self.size and self._read_block(status.st_size):
            pass

    def cut(self) -> None:
        """Open the file to write, without what is behind the last whole block; under the lock, after `refresh`."""
        if self._file < 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            self._inode = os.fstat(self._file).st_ino
        if self.size_on_disk > self.size:
            logger.warning("schema cache: the end of %s is damaged or half written, and cut off", self.path)
            os.truncate(self._file, self.size)

    def append(self, block: bytes) -> None:
        """Write a block at the end, whole or not at all; under the lock."""
        try:
            written = os.pwrite(self._file, block, self.size)
            if written < len(block):
                os.pwrite(self._file, block[written:], self.size + written)  # says why
        except OSError:
            with suppress(OSError):
                os.truncate(self._file, self.size)
            raise

    def close(self) -> None:
        """Forget everything."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)
        self.places, self.size = {}, 0

    def _read_block(self, file_size: int) -> bool:
        """Take in the block at the end of what is known; False where it is not whole."""
        at = self.size + _HEADER.size
        header = os.pread(self._file, _HEADER.size, self.size)
        records = self._blocks.records(header, lambda size: os.pread(self._file, min(size, file_size), at))
        if records is None:
            return False
        start = at + len(records) * _RECORD.size
        end = start + sum(length for _, length in records)
        if end > file_size:
            return False
        for digest, length in records:
            self.places[digest] = start << _LENGTH_BITS | length
            start += length
        self.size = end
        return True


def _sealed(digest: bytes, data: bytes) -> bytes:
    """Put the checksum of a row and its digest in front of it."""
    return hashlib.blake2b(digest + data, digest_size=_CHECKSUM_BYTES).digest() + data
