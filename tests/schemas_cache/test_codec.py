"""Compiled tables as bytes: what goes in comes out, and nothing else is ever taken for an entry."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from schemas_cache.codec import FORMAT_VERSION, MAGIC, Array, CorruptEntryError, pack, seal, unpack

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
any_array = npst.arrays(
    npst.scalar_dtypes() | npst.unicode_string_dtypes() | npst.byte_string_dtypes(),
    npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5),
)
SMALL_HEADER = {"kind": "test"}
SMALL_ARRAYS = {"next_state": np.arange(6, dtype=np.int32).reshape(2, 3), "accepting": np.array([True, False])}
SMALL = pack(SMALL_HEADER, SMALL_ARRAYS)


def same(expected: Array, got: Array) -> bool:
    """Equal type, shape and bits (NaN included)."""
    return expected.dtype == got.dtype and expected.shape == got.shape and expected.tobytes() == got.tobytes()


@given(st.dictionaries(st.text(), json_values, max_size=4), st.dictionaries(st.text(), any_array, max_size=4))
def test_round_trip(header: dict[str, Any], arrays: dict[str, Array]) -> None:
    """Header and arrays come back equal, in order, and read-only."""
    got_header, got_arrays = unpack(pack(header, arrays))
    assert header == got_header
    assert list(arrays) == list(got_arrays)
    assert all(same(arrays[name], got_arrays[name]) for name in arrays)
    assert not any(array.flags.writeable for array in got_arrays.values())


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_order_does_not_change_values(order: Any) -> None:
    """A transposed table comes back with its values in place."""
    table = np.asarray(np.arange(12).reshape(3, 4), order=order)
    assert table.tolist() == unpack(pack({}, {"t": table}))[1]["t"].tolist()


def test_arrays_are_views_of_the_bytes() -> None:
    """Unpacking copies no array."""
    array = unpack(SMALL)[1]["next_state"]
    assert np.shares_memory(np.frombuffer(SMALL, np.uint8), array)


def test_equal_content_packs_to_equal_bytes() -> None:
    """Nothing but the content (no time, no address) goes into a container."""
    assert pack(SMALL_HEADER, dict(SMALL_ARRAYS)) == SMALL


def test_every_changed_byte_is_found() -> None:
    """Each byte of a small entry, changed in each of its bits at once and in one bit, makes it corrupt."""
    for index in range(len(SMALL)):
        for change in (0xFF, 1 << index % 8):
            damaged = bytearray(SMALL)
            damaged[index] ^= change
            with pytest.raises(CorruptEntryError):
                unpack(bytes(damaged))


def test_every_truncation_is_found() -> None:
    """Each prefix of an entry is corrupt, the empty one too, and so is an entry with more behind it."""
    for length in range(len(SMALL)):
        with pytest.raises(CorruptEntryError):
            unpack(SMALL[:length])
    with pytest.raises(CorruptEntryError):
        unpack(SMALL + b"\0" * 64)


@given(st.binary(max_size=300))
def test_foreign_bytes_are_corrupt(data: bytes) -> None:
    """Bytes that never were an entry raise the one error and no other."""
    with pytest.raises(CorruptEntryError):
        unpack(data)


@given(st.integers(0, len(SMALL) - 65), st.binary(min_size=1, max_size=8))
@example(0, b"\xff\xff\xff\xff")
@example(362, b"(")
def test_a_valid_digest_does_not_make_content_trusted(position: int, replacement: bytes) -> None:
    """A body changed and sealed anew either still reads as arrays without objects or is corrupt: no other error."""
    body = bytearray(SMALL[64:])
    body[position : position + len(replacement)] = replacement
    try:
        _, arrays = unpack(seal(bytes(body)))
    except CorruptEntryError:
        return
    assert not any(array.dtype.hasobject for array in arrays.values())


@pytest.mark.parametrize(
    "index",
    [
        [],
        {"header": {}, "arrays": [["a", "<i4"]]},
        {"header": {}, "arrays": [["a", "|O", [1], "C"]]},
        {"header": {}, "arrays": [["a", "i4,i4", [1], "C"]]},
        {"header": {}, "arrays": [["a", "<i4", [-16], "C"]]},
        {"header": {}, "arrays": [["a", "<i4", [1e9], "C"]]},
        {"header": {}, "arrays": [["a", "<i4", [1000], "C"]]},
        {"header": 1, "arrays": []},
        {"header": {}, "arrays": {"a": 1}},
    ],
)
def test_a_sealed_index_of_the_wrong_form_is_corrupt(index: Any) -> None:
    """An index that `pack` cannot have written is corrupt."""
    text = json.dumps(index).encode()
    body = len(text).to_bytes(4, "little") + text
    with pytest.raises(CorruptEntryError):
        unpack(seal(body.ljust(128, b"\0")))


def test_deeply_nested_index_is_corrupt() -> None:
    """An index nested deeper than the parser goes is corrupt, not a crash."""
    text = b"[" * 100_000
    with pytest.raises(CorruptEntryError):
        unpack(seal(len(text).to_bytes(4, "little") + text))


def test_another_format_version_is_named() -> None:
    """An entry of another format version is refused, and the message names both versions."""
    foreign = MAGIC + (FORMAT_VERSION + 1).to_bytes(4, "little") + SMALL[12:]
    with pytest.raises(CorruptEntryError, match=f"version {FORMAT_VERSION + 1}, expected {FORMAT_VERSION}"):
        unpack(foreign)


def test_objects_are_refused() -> None:
    """Arrays of Python objects would need pickle, so they are refused when packing."""
    with pytest.raises(ValueError, match="a is an array of object"):
        pack({}, {"a": np.array([{}], dtype=object)})


def test_records_are_refused() -> None:
    """The type of an array of records is more than its name says, so packing refuses it."""
    with pytest.raises(ValueError, match="which is not plain bytes"):
        pack({}, {"a": np.zeros(2, [("x", np.int32), ("y", np.int8)])})
