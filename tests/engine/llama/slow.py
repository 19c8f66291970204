"""A Llama-type decoder written to be obviously right: float64, one sequence, no cache, loops over layers and heads.

The referee of the fast one. It knows both ways in which the pairs of rotary embedding can lie, and reads the weights as
(outputs, inputs), as the files have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sizes:
    """A model's sizes and switches; weights have GGUF names."""

    vocabulary: int = 290
    hidden: int = 24
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 8
    inner: int = 40
    context: int = 512
    epsilon: float = 1e-5
    base: float = 10000.0
    pairs: Literal["adjacent", "halves"] = "adjacent"
    bias: bool = False
    tied: bool = True
    factors: tuple[float, ...] | None = None  # what each frequency is divided by


def slow_logits(sizes: Sizes, weights: Mapping[str, NDArray[np.float32]], token_ids: Sequence[int]) -> Array:
    """Logits after each token, float64 (N, V)."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    hidden = w["token_embd.weight"][list(token_ids)]
    for layer in range(sizes.layers):
        block = {name.removeprefix(f"blk.{layer}."): v for name, v in w.items() if name.startswith(f"blk.{layer}.")}
        hidden = hidden + _attention(sizes, block, _norm(sizes, hidden, block["attn_norm.weight"]))
        hidden = hidden + _feed_forward(block, _norm(sizes, hidden, block["ffn_norm.weight"]))
    output = w["token_embd.weight"] if sizes.tied else w["output.weight"]
    return _norm(sizes, hidden, w["output_norm.weight"]) @ output.T


def _norm(sizes: Sizes, hidden: Array, weight: Array) -> Array:
    return hidden / np.sqrt((hidden**2).mean(axis=1, keepdims=True) + sizes.epsilon) * weight


def _attention(sizes: Sizes, block: Mapping[str, Array], hidden: Array) -> Array:
    heads = {"q": sizes.heads, "k": sizes.kv_heads, "v": sizes.kv_heads}
    projected = {}
    for name, count in heads.items():
        flat = hidden @ block[f"attn_{name}.weight"].T + (block[f"attn_{name}.bias"] if sizes.bias else 0)
        projected[name] = flat.reshape(len(hidden), count, sizes.head_size)
    attended = np.zeros((len(hidden), sizes.heads, sizes.head_size))
    for head in range(sizes.heads):
        shared = head * sizes.kv_heads // sizes.heads
        queries, keys = _rotate(sizes, projected["q"][:, head]), _rotate(sizes, projected["k"][:, shared])
        for position in range(len(hidden)):
            scores = keys[: position + 1] @ queries[position] / np.sqrt(sizes.head_size)
            shares = np.exp(scores - scores.max())
            attended[position, head] = shares @ projected["v"][: position + 1, shared] / shares.sum()
    return attended.reshape(len(hidden), -1) @ block["attn_output.weight"].T


def _rotate(sizes: Sizes, vectors: Array) -> Array:
    """Turn each pair of each position's vector by position x frequency."""
    turned, half = np.zeros_like(vectors), sizes.head_size // 2
    for position, vector in enumerate(vectors):
        for i in range(half):
            factor = 1.0 if sizes.factors is None else sizes.factors[i]
            angle = position * sizes.base ** (-2 * i / sizes.head_size) / factor
            x, y = (2 * i, 2 * i + 1) if sizes.pairs == "adjacent" else (i, i + half)
            turned[position, x] = vector[x] * np.cos(angle) - vector[y] * np.sin(angle)
            turned[position, y] = vector[x] * np.sin(angle) + vector[y] * np.cos(angle)
    return turned


def _feed_forward(block: Mapping[str, Array], hidden: Array) -> Array:
    gate = hidden @ block["ffn_gate.weight"].T
    return (gate / (1 + np.exp(-gate)) * (hidden @ block["ffn_up.weight"].T)) @ block["ffn_down.weight"].T
