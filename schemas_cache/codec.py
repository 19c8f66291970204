"""Compiled tables as bytes: a small container that describes itself.

In: a JSON header and named arrays. Out: bytes, and the same again from bytes. Layout, integers little-endian:

    magic (8 bytes), format version (4), BLAKE2b-256 of magic, version and body (32), padding (20)
    body: length of the index (4), index as JSON, padding, then the bytes of each array, padded

The index has the header and, for each array, its name, type, shape and memory order. Every part starts at a multiple
of 64 bytes, so arrays are views of the bytes read, aligned as far as the bytes are. The digest is checked before
anything is parsed; it finds damage, it proves no origin, so parsing trusts nothing either: no pickle, no objects. Cost:
some copies to pack; one pass of the digest (1 GB/s), one JSON text and no copy to unpack, 2 us for each array.

Rejected: a `.npy` file for each array, whose header is Python text that takes 13 us to parse, half a millisecond for
the tables of one schema; `.npz`, whose zip directory leaves bytes that no checksum covers and copies every array;
pickle, which runs what it reads.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from schemas_cache.errors import KatagamiError

# Part of every cache key: grows whenever the meaning of stored tables changes, so that old entries are not even found.
FORMAT_VERSION = 8

MAGIC = b"KATAGAMI"
ALIGNMENT = 64  # a cache line
DIGEST_START = len(MAGIC) + 4
DIGEST_BYTES = 32

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Bytes = bytes | memoryview


class CorruptEntryError(KatagamiError):
    """Bytes that are not a container of this format version, whole and unchanged."""


def pack(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """Put a header and arrays into one container.

    Parameters
    ----------
    header : mapping of str to JSON value
        Comes back equal, tuples as lists.
    arrays : mapping of str to ndarray
        Any shape and memory order, any type without Python objects and without fields.

    Raises
    ------
    ValueError
        For an array of objects or of records, or a header that is not JSON.
    """
    described = [_describe(name, array) for name, array in arrays.items()]
    index = json.dumps({"header": header, "arrays": described}, allow_nan=False).encode()
    parts = [len(index).to_bytes(4, "little") + index, *(array.tobytes("A") for array in arrays.values())]
    return seal(b"".join(map(_padded, parts)))


def unpack(data: Bytes) -> tuple[dict[str, Any], Arrays]:
    """Take a container apart again.

    Returns
    -------
    header : dict
    arrays : dict of str to ndarray
        Read-only views of `data`.

    Raises
    ------
    CorruptEntryError
        For anything but what `pack` of this format version returned.
    """
    body = unseal(data)
    try:
        index_end = 4 + int.from_bytes(body[:4], "little")
        index = json.loads(bytes(body[4:index_end]))
        return dict(index["header"]), _read_arrays(body, _aligned(index_end), index["arrays"])
    except Exception as error:  # the parsers of JSON and of types let many kinds through
        raise CorruptEntryError(f"the container's digest holds, its content does not: {error}") from error


def seal(body: bytes) -> bytes:
    """Prefix a body with magic, version and digest."""
    prefix = MAGIC + FORMAT_VERSION.to_bytes(4, "little")
    return _padded(prefix + _digest(prefix, body)) + body


def unseal(data: Bytes) -> memoryview:
    """Return the body of a sealed container, or raise `CorruptEntryError`."""
    start = _aligned(DIGEST_START + DIGEST_BYTES)
    view = memoryview(data)
    prefix, body = bytes(view[:DIGEST_START]), view[start:]
    if len(data) < start or not prefix.startswith(MAGIC):
        raise CorruptEntryError("not a container of compiled tables")
    version = int.from_bytes(prefix[len(MAGIC) :], "little")
    if version != FORMAT_VERSION:
        raise CorruptEntryError(f"format version {version}, expected {FORMAT_VERSION}")
    if view[:start] != _padded(prefix + _digest(prefix, body)):
        raise CorruptEntryError("the digest does not match: the entry is damaged or cut")
    return body


def _digest(prefix: bytes, body: bytes | memoryview) -> bytes:
    """Hash prefix and body."""
    state = hashlib.blake2b(prefix, digest_size=DIGEST_BYTES)
    state.update(body)
    return state.digest()


def _describe(name: str, array: Array) -> list[Any]:
    """What the index says of an array."""
    if array.dtype.hasobject or array.dtype.names:
        raise ValueError(f"{name} is an array of {array.dtype}, which is not plain bytes")
    return [name, array.dtype.str, array.shape, "F" if array.flags.fnc else "C"]


def _read_arrays(
    body: memoryview, start: int, described: list[tuple[str, str, list[int], Literal["C", "F"]]]
) -> Arrays:
    """View the arrays that lie one after another from `start`, read-only and without a copy."""
    arrays: Arrays = {}
    for name, kind, shape, order in described:
        dtype = np.dtype(str(kind))
        if dtype.hasobject or dtype.names:
            raise ValueError("an array that is not plain bytes")
        array: Array = np.ndarray(shape, dtype, body, start, order=order)
        array.flags.writeable = False
        arrays[str(name)] = array
        start += _aligned(math.prod(shape) * dtype.itemsize)
    if start != len(body):
        raise ValueError("the arrays do not fill the container")
    return arrays


def _aligned(size: int) -> int:
    """Next multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _padded(data: bytes) -> bytes:
    """Fill up with zeros to the alignment."""
    return data.ljust(_aligned(len(data)), b"\0")
