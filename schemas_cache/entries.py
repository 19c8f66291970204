"""What lies on disk under a key: the tables of one schema, and the mask rows learnt since.

In: tables or rows and the key they belong to. Out: bytes, and back. Both kinds carry their key, so that a value that
ended up under another one (a copied file, a foreign program) is corrupt, never a wrong mask. Cost: one copy.

Rows have an entry of their own since they keep coming while tables stay: rows are named by a digest of their content's
cause, so merging what two processes learnt is a union, in any order, without conflict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from schemas_cache.codec import FORMAT_VERSION, CorruptEntryError, pack, unpack
from schemas_cache.source import Source
from schemas_cache.vocabulary import Vocabulary

ROWS_LIMIT_BYTES = 64 << 20  # 10,000 rows of a vocabulary of 49,152: a merge stays well under a second
DIGEST_BYTES = 16

Rows = Mapping[bytes, bytes]


def cache_key(source: Source, vocabulary: Vocabulary) -> str:
    """SHA-256, as hex, over everything that shapes the tables: source with options, vocabulary, format version."""
    text = f"{source.digest} {vocabulary.fingerprint} {FORMAT_VERSION}"
    return hashlib.sha256(text.encode()).hexdigest()


def rows_key(key: str) -> str:
    """Where the rows learnt for the tables under `key` lie."""
    return f"rows:{key}"


def tables_entry(key: str, dump: bytes) -> bytes:
    """Label dumped tables with their key."""
    return bytes.fromhex(key) + dump


def tables_from(entry: bytes, key: str) -> bytes:
    """Return the dumped tables, or raise `CorruptEntryError` if they are not those of `key`."""
    label = bytes.fromhex(key)
    if not entry.startswith(label):
        raise CorruptEntryError("the entry belongs to another key")
    return entry[len(label) :]


def rows_entry(key: str, rows: Rows, row_bytes: int) -> bytes:
    """Pack rows; those that come first are kept where all would be more than `ROWS_LIMIT_BYTES`.

    Parameters
    ----------
    key : str
        Of the tables that the rows belong to.
    rows : mapping of bytes (16) to bytes (row_bytes)
        Digest to packed mask row.
    """
    kept = list(rows.items())[: ROWS_LIMIT_BYTES // row_bytes]
    digests = np.frombuffer(b"".join(digest for digest, _ in kept), np.uint8).reshape(-1, DIGEST_BYTES)
    bits = np.frombuffer(b"".join(row for _, row in kept), np.uint8).reshape(-1, row_bytes)
    return pack({"key": key}, {"digests": digests, "bits": bits})


def rows_from(entry: bytes, key: str, row_bytes: int) -> dict[bytes, bytes]:
    """Return packed rows, or raise `CorruptEntryError` if they are not those of `key` or of another length."""
    header, arrays = unpack(entry)
    digests, bits = arrays.get("digests"), arrays.get("bits")
    if header.get("key") != key or digests is None or bits is None:
        raise CorruptEntryError("the rows belong to another key")
    count = len(digests)
    if digests.shape != (count, DIGEST_BYTES) or bits.shape != (count, row_bytes):
        raise CorruptEntryError(f"rows of shape {bits.shape}, expected {(count, row_bytes)}")
    return {digest.tobytes(): row.tobytes() for digest, row in zip(digests, bits, strict=True)}
