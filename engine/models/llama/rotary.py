"""Rotary embedding: each pair of numbers of a head is turned by its own angle per position (Su et al. 2021).

In: frequencies and positions. Out: complex numbers of length 1. Multiplying the pairs, taken as complex numbers, by
them is the whole embedding: 28 microseconds for 256 tokens of twelve heads, where sines and cosines on halves of heads
take 240. So pairs lie beside each other here, as in GGUF files; weights whose pairs lie half a head apart, as in
Hugging Face folders, are reordered once when they are packed. Queries times keys are the same in either order.

Source of the scaling: Llama 3.1's reference code, `apply_scaling`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.models.llama.config import FloatArray

Frequencies = NDArray[np.float64]


def plain_frequencies(base: float, head_size: int) -> Frequencies:
    """For each pair i, base ** (-2 i / S): float64 (S / 2,)."""
    return base ** (-np.arange(0, head_size, 2, dtype=np.float64) / head_size)


def llama3_frequencies(
    frequencies: Frequencies, factor: float, low_factor: float, high_factor: float, original_context: int
) -> Frequencies:
    """Frequencies for a context longer than the one that was trained first.

    Pairs that turn more than `high_factor` times within the original context stay as they are, those that turn less
    than `low_factor` times become slower by `factor`, and those between them are blended.
    """
    rounds = original_context * frequencies / (2 * np.pi)
    share = np.clip((rounds - low_factor) / (high_factor - low_factor), 0.0, 1.0)
    return share * frequencies + (1 - share) * frequencies / factor


def turns_of(frequencies: Frequencies, positions: NDArray[np.int32]) -> NDArray[np.complex64]:
    """What pairs are multiplied by at these positions (N,), complex64 (N, S / 2); angles are taken in float64."""
    turns: NDArray[np.complex64] = np.exp(1j * (positions[:, None] * frequencies)).astype(np.complex64)
    return turns


def pairs_adjacent(weight: FloatArray, head_size: int) -> FloatArray:
    """Outputs (heads * S, ...) whose pairs lie half a head apart, with their pairs beside each other."""
    halves = weight.reshape(-1, 2, head_size // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)
