"""Matrix products whose rows do not depend on each other: fixed tiles of rows.

In: rows of activations and a weight matrix. Out: their product, each row bit for bit the same whatever else is in the
batch. A BLAS picks its kernel by the shape of the operands, and kernels add up in different orders; so the product is
taken in tiles of one fixed number of rows, the last one padded. Inside a tile a row may still fall to another kernel by
its place (seen with OpenBLAS from 16 rows on), so the number is not believed but probed: the largest of `TILE_ROWS` for
which a row comes out the same at every place of the tile. One row is always such a tile.

Cost: the probe some milliseconds at start. A forward pass of a shipped model takes 1.0 to 1.8 times as long from 4 to
256 rows, and 0.11 ms instead of 0.04 for a single one (`bench_batch_invariant`). Source: He and Thinking
Machines Lab, "Defeating Nondeterminism in LLM Inference" (2025), for fixed shapes; the probe is ours. Rejected: sums of
our own in a fixed order, which are slower by far, and a tile as large as the largest batch, which costs a full batch
for each single row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.floating[Any]]

TILE_ROWS = (16, 8, 4, 1)  # candidates, best first: larger ones gain little, and cost more padding
PROBES = 3  # random tiles tried for each weight matrix


def tiled_product(rows: FloatArray, weight: FloatArray, tile_rows: int) -> FloatArray:
    """Product of rows and the transpose of a weight matrix, in tiles.

    Parameters
    ----------
    rows : float, shape (N, K)
        Any number of rows.
    weight : float, shape (O, K)
        One row for each output.
    tile_rows : int
        Rows of a tile, from `fixed_tiles`.

    Returns
    -------
    float, shape (N, O)
        A new array, or a part of one.
    """
    count, inputs = rows.shape
    tiles = np.zeros((-(-count // tile_rows), tile_rows, inputs), rows.dtype)
    tiles.reshape(-1, inputs)[:count] = rows
    product: FloatArray = np.matmul(tiles, weight.T).reshape(-1, len(weight))
    return product[:count]


def fixed_tiles(weights: Sequence[FloatArray]) -> int:
    """Rows of the largest tile in which each of these weight matrices, float (O, K), treats all places alike."""
    return next(size for size in TILE_ROWS if all(_places_are_alike(weight, size) for weight in weights))


def _places_are_alike(weight: FloatArray, tile_rows: int) -> bool:
    """Whether a row comes out the same at every place of a tile, beside every other row."""
    draws = np.random.default_rng(0)
    for _ in range(PROBES):
        rows = draws.standard_normal((tile_rows, weight.shape[1]), np.float32).astype(weight.dtype)
        expected = tiled_product(rows, weight, tile_rows)
        for shift in range(1, tile_rows):
            if not np.array_equal(
                np.roll(expected, shift, 0), tiled_product(np.roll(rows, shift, 0), weight, tile_rows)
            ):
                return False
    return True
