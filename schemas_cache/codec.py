"""Compiled tables as bytes: a small container that describes itself.

In: a JSON header and named arrays. Out: bytes, and the same again from bytes. Layout, integers little-endian:

    magic (8 bytes), format version (4), BLAKE2b-256 of magic, version and body (32), padding (20)
    body: length of the index (4), index as JSON, padding, then each array as a `.npy` file, padded

Every part starts at a multiple of 64 bytes, so arrays are views of the bytes read, aligned as far as the bytes are.
The digest is checked before anything is parsed; it finds damage, it proves no origin, so parsing trusts nothing either:
no pickle, no object arrays. Cost: one copy to pack; one pass of the digest (about 1 GB/s) and no copy to unpack.
Source: the `.npy` format is NumPy's NEP 1.

Rejected: `.npz`, whose zip directory leaves bytes that no checksum covers and copies every array; pickle, which runs
what it reads.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas_cache.errors import KatagamiError

# Part of every cache key: grows whenever the meaning of stored tables changes, so that old entries are not even found.
FORMAT_VERSION = 5

MAGIC = b"KATAGAMI"
ALIGNMENT = 64  # what `.npy` pads to, and a cache line
_PREFIX_BYTES = len(MAGIC) + 4
_DIGEST_BYTES = 32
_NPY_FIXED_BYTES = 10  # magic, version and length of a `.npy` header, version 1.0

Array = npt.NDArray[Any]


class CorruptEntryError(KatagamiError):
    """Bytes that are not a container of this format version, whole and unchanged."""


def pack(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """Put a header and arrays into one container.

    Parameters
    ----------
    header : mapping of str to JSON value
        Comes back equal, tuples as lists.
    arrays : mapping of str to ndarray
        Any shape and dtype without Python objects.

    Raises
    ------
    ValueError
        For an array of objects, or a header that is not JSON.
    """
    payloads = {name: _npy(array) for name, array in arrays.items()}
    sizes = [[name, len(payload)] for name, payload in payloads.items()]
    index = json.dumps({"header": header, "arrays": sizes}, allow_nan=False).encode()
    return seal(b"".join([_padded(len(index).to_bytes(4, "little") + index), *map(_padded, payloads.values())]))


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
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
    except Exception as error:  # the parsers of JSON and of `.npy` headers let many kinds through, tokenizer errors too
        raise CorruptEntryError(f"the container's digest holds, its content does not: {error}") from error


def seal(body: bytes) -> bytes:
    """Prefix a body with magic, version and digest."""
    prefix = MAGIC + FORMAT_VERSION.to_bytes(4, "little")
    return _padded(prefix + _digest(prefix, body)) + body


def unseal(data: bytes) -> memoryview:
    """Return the body of a sealed container, or raise `CorruptEntryError`."""
    start = _aligned(_PREFIX_BYTES + _DIGEST_BYTES)
    view = memoryview(data)
    prefix, body = bytes(view[:_PREFIX_BYTES]), view[start:]
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
    state = hashlib.blake2b(prefix, digest_size=_DIGEST_BYTES)
    state.update(body)
    return state.digest()


def _npy(array: Array) -> bytes:
    """Write one array as a `.npy` file, version 1.0."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def _read_arrays(body: memoryview, start: int, sizes: list[tuple[str, int]]) -> dict[str, Array]:
    """View the `.npy` files that lie one after another from `start`."""
    arrays = {}
    for name, size in sizes:
        arrays[str(name)] = _view(body[start : start + size])
        start += _aligned(size)
    if start != len(body):
        raise ValueError("the arrays do not fill the container")
    return arrays


def _view(payload: memoryview) -> Array:
    """View one `.npy` file as an array, read-only and without a copy."""
    header_end = _NPY_FIXED_BYTES + int.from_bytes(payload[8:_NPY_FIXED_BYTES], "little")
    stream = io.BytesIO(payload[:header_end])
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("not a .npy file of version 1.0")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.hasobject or header_end + math.prod(shape) * dtype.itemsize != len(payload):
        raise ValueError("the array's size or type does not match its header")
    array: Array = np.ndarray(shape, dtype, payload[header_end:], order="F" if fortran_order else "C")
    array.flags.writeable = False
    return array


def _aligned(size: int) -> int:
    """Next multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _padded(data: bytes) -> bytes:
    """Fill up with zeros to the alignment."""
    return data.ljust(_aligned(len(data)), b"\0")
