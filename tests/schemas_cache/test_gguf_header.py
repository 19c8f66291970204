"""The header of a GGUF file: the same as the `gguf` package reads, and damage is named."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from schemas_cache.gguf_header import read_gguf_header

VALUES: dict[str, tuple[Any, gguf.GGUFValueType, gguf.GGUFValueType | None]] = {
    "a.uint8": (200, gguf.GGUFValueType.UINT8, None),
    "a.int8": (-5, gguf.GGUFValueType.INT8, None),
    "a.uint16": (60000, gguf.GGUFValueType.UINT16, None),
    "a.int16": (-300, gguf.GGUFValueType.INT16, None),
    "a.uint32": (1 << 31, gguf.GGUFValueType.UINT32, None),
    "a.int32": (-7, gguf.GGUFValueType.INT32, None),
    "a.uint64": (1 << 63, gguf.GGUFValueType.UINT64, None),
    "a.int64": (-(1 << 40), gguf.GGUFValueType.INT64, None),
    "a.float32": (0.5, gguf.GGUFValueType.FLOAT32, None),
    "a.float64": (0.1, gguf.GGUFValueType.FLOAT64, None),
    "a.bool": (True, gguf.GGUFValueType.BOOL, None),
    "a.string": ("型紙", gguf.GGUFValueType.STRING, None),
    "b.strings": (["Ġa", "", "😀", "x" * 300], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING),
    "b.numbers": ([1, -2, 3], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT32),
    "b.floats": ([0.5, 1.5], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.FLOAT32),
    "b.bools": ([True, False], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.BOOL),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with every type of value and tensors of several kinds."""
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for name, (value, kind, inner) in VALUES.items():
        writer.add_key_value(name, value, kind, inner)
    matrix = np.arange(64 * 3, dtype=np.float32).reshape(3, 64)
    writer.add_tensor("plain", matrix)
    writer.add_tensor("vector", np.ones(5, np.float16))
    quantised = gguf.quants.quantize(matrix, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("quantised", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "m.gguf"


def test_values_are_what_was_written(path: Path) -> None:
    """Every type, alone and in arrays."""
    metadata = read_gguf_header(path).metadata
    assert {name: value for name, (value, _, _) in VALUES.items()} == {name: metadata[name] for name in VALUES}


def test_tensors_are_where_the_package_finds_them(path: Path) -> None:
    """Name, type, shape, place and size."""
    expected = {
        tensor.name: (tensor.tensor_type, tuple(map(int, reversed(tensor.shape))), tensor.data_offset, tensor.n_bytes)
        for tensor in gguf.GGUFReader(path).tensors
    }
    found = read_gguf_header(path).tensors
    assert expected == {name: (p.kind, p.shape, p.offset, p.size_bytes) for name, p in found.items()}


def test_a_file_that_is_cut_off_anywhere_is_refused(path: Path) -> None:
    """In the header or in the tensors; never an error of another class."""
    content = path.read_bytes()
    end = max(place.offset + place.size_bytes for place in read_gguf_header(path).tensors.values())
    for length in [*range(4, end, 7), end - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"cut off|damaged"):
            read_gguf_header(path)


def test_damage_is_refused_or_read_as_something(path: Path) -> None:
    """A byte of the header that is another one never raises anything but a ValueError."""
    content = bytearray(path.read_bytes())
    for place in range(4, read_gguf_header(path).size_bytes, 3):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with contextlib.suppress(ValueError):
            read_gguf_header(path)


@pytest.mark.parametrize(
    ("start", "reason"),
    [(b"", "not a GGUF file"), (b"PK\x03\x04", "not a GGUF file"), (b"GGUF\x01\0\0\0", "version 1 is not supported")],
)
def test_another_kind_of_file_is_refused(tmp_path: Path, start: bytes, reason: str) -> None:
    """By its first bytes."""
    path = tmp_path / "m.gguf"
    path.write_bytes(start)
    with pytest.raises(ValueError, match=reason):
        read_gguf_header(path)
