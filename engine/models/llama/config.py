"""What a checkpoint says of itself, in one form, whichever file it was read from.

In: figures that a reader of GGUF or Hugging Face files found. Out: `LlamaConfig`, checked, and the `Checkpoint` that
the readers implement. Tensors have the names that GGUF files use, for both. Cost: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]

# How the two numbers that rotary embedding turns together lie within a head: beside each other, or half a head apart.
RotaryPairs = Literal["adjacent", "halves"]


@dataclass(frozen=True, slots=True, eq=False)
class LlamaConfig:
    """Sizes and switches of a Llama-type decoder.

    Attributes
    ----------
    head_size : int
        Numbers of one attention head, S; even.
    inner_size : int
        Width of the feed-forward layer, F.
    context_length : int
        Most tokens of a sequence.
    epsilon : float
        Added to the mean square under the root of RMSNorm.
    frequencies : float64, shape (S / 2,)
        Radians by which rotary embedding turns each pair from one position to the next.
    attention_bias : bool
        Queries, keys and values have a bias (Qwen2).
    tied : bool
        The output matrix is the embedding.
    start_id : int
        The token that stands for the beginning of a text, fed where a prompt has no token at all.
    """

    vocabulary_size: int
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    inner_size: int
    context_length: int
    epsilon: float
    frequencies: NDArray[np.float64]
    attention_bias: bool
    tied: bool
    start_id: int

    def __post_init__(self) -> None:
        sizes = ("vocabulary_size", "hidden_size", "layers", "heads", "kv_heads", "head_size", "inner_size")
        for name in (*sizes, "context_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it has to be at least 1")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} heads of keys and values evenly")
        if self.head_size % 2 or self.frequencies.shape != (self.head_size // 2,):
            raise ValueError(f"rotary embedding needs {self.head_size / 2:g} frequencies: one for each pair of a head")
        if not 0 <= self.start_id < self.vocabulary_size:
            raise ValueError(f"token {self.start_id} starts a text, but there are {self.vocabulary_size} tokens")


def whole_number(values: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A figure that a file has to give; raises `ValueError` where it does not."""
    value = values.get(name, default)
    if not isinstance(value, int):
        raise ValueError(f"{name} is {'missing' if value is None else f'{value!r}, not one whole number'}")
    return value


def real_number(values: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """The same of a figure that may have a fraction."""
    value = values.get(name, default)
    if not isinstance(value, int | float):
        raise ValueError(f"{name} is {'missing' if value is None else f'{value!r}, not one number'}")
    return float(value)


class Checkpoint(Protocol):
    """The weights of a model where they lie."""

    @property
    def config(self) -> LlamaConfig:
        """Sizes and switches."""

    @property
    def pairs(self) -> RotaryPairs:
        """How the outputs of its query and key matrices are ordered."""

    @property
    def digest(self) -> str:
        """Changes when the files do; cheap, so not over all of their bytes."""

    def tensor(self, name: str) -> FloatArray:
        """A weight by its GGUF name, float32, matrices as (outputs, inputs).

        Raises
        ------
        ValueError
            When the files have none of that name.
        """
