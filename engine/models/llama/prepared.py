"""A checkpoint's weights as the forward pass reads them, kept on disk and memory-mapped.

In: a checkpoint and a folder to keep the copy in. Out: `LlamaWeights`. Cost for SmolLM2: 3 s and 650 MB of disk the
first time; later 10 ms, and the pages are read as they are needed, shared by all processes.

A copy is a folder of `.npy` files and a header that names the checkpoint's digest, written under a temporary name and
renamed when it is whole. A header that does not match, or an array of another shape, is a miss, and the copy is written
anew. Where it cannot be written, the weights are kept in memory. Rejected: mapping the file of the checkpoint itself,
whose weights are quantised or of two bytes, and lie the other way round.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from pathlib import Path

import numpy as np

from engine.models.llama.config import Checkpoint, FloatArray
from engine.models.llama.weights import LlamaWeights, packed_arrays, weight_shapes, weights_of

FORMAT = 1  # goes up when the arrays change their meaning
HEADER = "header.json"

logger = logging.getLogger(__name__)


def prepared_weights(checkpoint: Checkpoint, folder: Path, name: str) -> LlamaWeights:
    """The weights of a checkpoint from its copy in `folder`, which is written where it is missing.

    `name` begins the copy's name; copies of that name for other digests are removed when one is written.

    Raises
    ------
    ValueError
        When the checkpoint's weights do not fit its config.
    """
    copy = folder / f"{name}-{checkpoint.digest[:16]}"
    found = _read(checkpoint, copy)
    if found is not None:
        return found
    reason: object = "it cannot be read"
    try:
        _keep(checkpoint, folder, name, copy)
    except OSError as error:  # another process may have written the same copy meanwhile
        reason = error
    found = _read(checkpoint, copy)
    if found is None:
        logger.warning("the weights of %s are prepared at each start: no copy is kept in %s: %s", name, copy, reason)
        found = weights_of(dict(packed_arrays(checkpoint)))
    return found


def remove_prepared(folder: Path, name: str) -> None:
    """Remove all copies that `name` has in `folder`; processes that have mapped one may go on with it."""
    for copy in folder.glob(f"{name}-*"):
        if copy.name.removeprefix(f"{name}-").isalnum():  # a digest, and no name that goes on
            shutil.rmtree(copy, ignore_errors=True)


def _keep(checkpoint: Checkpoint, folder: Path, name: str, copy: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder))
    try:
        _write(checkpoint, partial)
        remove_prepared(folder, name)
        partial.rename(copy)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _header(checkpoint: Checkpoint) -> dict[str, object]:
    shapes = {name: list(shape) for name, shape in weight_shapes(checkpoint.config).items()}
    return {"format": FORMAT, "digest": checkpoint.digest, "pairs": checkpoint.pairs, "shapes": shapes}


def _write(checkpoint: Checkpoint, folder: Path) -> None:
    for name, array in packed_arrays(checkpoint):
        np.save(folder / f"{name}.npy", array)
    (folder / HEADER).write_text(json.dumps(_header(checkpoint)), "utf-8")


def _read(checkpoint: Checkpoint, folder: Path) -> LlamaWeights | None:
    """The weights of a copy; None where it is missing, not whole, or of something else."""
    try:
        if json.loads((folder / HEADER).read_text("utf-8")) != _header(checkpoint):
            return None
        return weights_of(
            {name: _mapped(folder, name, shape) for name, shape in weight_shapes(checkpoint.config).items()}
        )
    except (OSError, ValueError):
        return None


def _mapped(folder: Path, name: str, shape: tuple[int, ...]) -> FloatArray:
    path = folder / f"{name}.npy"
    if 0 in shape:  # a file of nothing cannot be mapped
        return np.zeros(shape, np.float32)
    array: FloatArray = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.shape != shape or array.dtype != np.float32 or not array.flags.c_contiguous:
        raise ValueError(f"{path} is {array.dtype} {array.shape}")
    return array
