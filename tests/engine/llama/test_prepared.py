"""Copies of weights: used when they are whole and of this file, written anew otherwise."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from engine.models.gguf_file import GgufCheckpoint
from engine.models.llama.prepared import HEADER, prepared_weights, remove_prepared
from engine.models.llama.weights import LlamaWeights, packed_arrays, weight_shapes, weights_of
from tests.engine.llama.slow import Sizes
from tests.engine.llama.tiny import make_weights, write_gguf

SIZES = Sizes(tied=False, layers=1)


@pytest.fixture
def checkpoint(tmp_path: Path) -> GgufCheckpoint:
    """A tiny one."""
    return GgufCheckpoint(write_gguf(tmp_path / "m.gguf", SIZES, make_weights(SIZES)))


def equal(first: LlamaWeights, second: LlamaWeights) -> bool:
    """Whether all arrays are equal."""
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in LlamaWeights.__slots__)


def copies(folder: Path) -> list[Path]:
    """All that is in the folder, hidden or not."""
    return sorted(folder.iterdir())


def test_second_start_maps_what_the_first_one_wrote(
    checkpoint: GgufCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers, without reading the checkpoint's tensors."""
    expected = weights_of(dict(packed_arrays(checkpoint)))
    assert equal(expected, prepared_weights(checkpoint, tmp_path / "prepared", "tiny"))
    monkeypatch.setattr(GgufCheckpoint, "tensor", None)
    found = prepared_weights(checkpoint, tmp_path / "prepared", "tiny")
    assert equal(expected, found)
    assert isinstance(found.gate_up, np.memmap)


def test_a_changed_file_is_prepared_anew_and_the_old_copy_removed(checkpoint: GgufCheckpoint, tmp_path: Path) -> None:
    """Same path and size, other weights."""
    prepared_weights(checkpoint, tmp_path / "prepared", "tiny")
    old = copies(tmp_path / "prepared")
    changed = GgufCheckpoint(write_gguf(checkpoint.path, SIZES, make_weights(SIZES, seed=1)))
    expected = weights_of(dict(packed_arrays(changed)))
    assert equal(expected, prepared_weights(changed, tmp_path / "prepared", "tiny"))
    assert len(copies(tmp_path / "prepared")) == 1
    assert old != copies(tmp_path / "prepared")


@pytest.mark.parametrize("name", [HEADER, "down.npy", "embedding.npy"])
@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_a_damaged_copy_is_written_anew(checkpoint: GgufCheckpoint, tmp_path: Path, name: str, damage: str) -> None:
    """A file that is missing, cut off, or of something else."""
    expected = prepared_weights(checkpoint, tmp_path / "prepared", "tiny")
    (copy,) = copies(tmp_path / "prepared")
    file = copy / name
    content = file.read_bytes()
    file.unlink()
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "other":
        np.save(file.with_suffix(".npy"), np.zeros((2, 3)))
        file.with_suffix(".npy").rename(file)
    assert equal(expected, prepared_weights(checkpoint, tmp_path / "prepared", "tiny"))
    assert json.loads((copy / HEADER).read_text())["digest"] == checkpoint.digest
    assert isinstance(prepared_weights(checkpoint, tmp_path / "prepared", "tiny").down, np.memmap)


def test_nothing_is_left_of_a_copy_that_broke_off(
    checkpoint: GgufCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing under the final name."""

    def fails(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", fails)
    with pytest.raises(KeyboardInterrupt):
        prepared_weights(checkpoint, tmp_path / "prepared", "tiny")
    assert copies(tmp_path / "prepared") == []


def test_where_nothing_can_be_written_weights_are_in_memory(
    checkpoint: GgufCheckpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning that says why."""
    (tmp_path / "prepared").write_text("a file")
    expected = weights_of(dict(packed_arrays(checkpoint)))
    with caplog.at_level(logging.WARNING):
        assert equal(expected, prepared_weights(checkpoint, tmp_path / "prepared", "tiny"))
    assert "no copy is kept" in caplog.text


def test_a_mapped_copy_survives_its_removal(checkpoint: GgufCheckpoint, tmp_path: Path) -> None:
    """Another process may remove or replace it at any time."""
    found = prepared_weights(checkpoint, tmp_path / "prepared", "tiny")
    remove_prepared(tmp_path / "prepared", "tiny")
    assert copies(tmp_path / "prepared") == []
    assert equal(weights_of(dict(packed_arrays(checkpoint))), found)


def test_only_copies_of_this_name_are_removed(checkpoint: GgufCheckpoint, tmp_path: Path) -> None:
    """A model whose name begins with the other's keeps its copy."""
    prepared_weights(checkpoint, tmp_path / "prepared", "tiny-two")
    remove_prepared(tmp_path / "prepared", "tiny")
    assert len(copies(tmp_path / "prepared")) == 1


def test_digest_follows_the_file(checkpoint: GgufCheckpoint, tmp_path: Path) -> None:
    """A copy of the file with another time of change has another digest; reading again has not."""
    other = Path(shutil.copy(checkpoint.path, tmp_path / "other.gguf"))
    os.utime(other, ns=(1, 1))
    assert checkpoint.digest == GgufCheckpoint(checkpoint.path).digest != GgufCheckpoint(other).digest


def test_a_weight_of_another_shape_is_refused(tmp_path: Path) -> None:
    """By its name, with both shapes."""
    weights = make_weights(SIZES)
    weights["blk.0.ffn_up.weight"] = weights["blk.0.ffn_up.weight"][:-8]
    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "m.gguf", SIZES, weights))
    with pytest.raises(ValueError, match=r"blk\.0\.ffn_up\.weight is \(32, 24\), expected \(40, 24\)"):
        dict(packed_arrays(checkpoint))


def test_arrays_have_the_shapes_that_are_promised(checkpoint: GgufCheckpoint) -> None:
    """And are contiguous: the matrix products depend on it."""
    arrays = dict(packed_arrays(checkpoint))
    assert weight_shapes(checkpoint.config) == {name: array.shape for name, array in arrays.items()}
    assert all(array.flags.c_contiguous for array in arrays.values())
