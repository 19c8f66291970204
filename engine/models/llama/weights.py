"""The weights as the forward pass reads them.

In: a `Checkpoint`. Out: `LlamaWeights`: one array for each kind of weight, all layers in it, float32. Matrices are
stored as (inputs, outputs), contiguous, so that a product is `x @ W`: 18 % less time for one row and half the time for
the output matrix than with the (outputs, inputs) of the files. Query, key and value are one matrix, gate and up
another; the attention's 1 / sqrt(S) is multiplied into the queries. Cost: 3 s for SmolLM2 (dequantising and turning
135 million weights); `prepared` keeps the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from engine.models.llama.config import Checkpoint, FloatArray, LlamaConfig
from engine.models.llama.rotary import pairs_adjacent

Shape = tuple[int, ...]
MASK_WORD = 32  # logits are padded to a multiple: masks are words of 32 tokens, and whole words are faster


@dataclass(frozen=True, slots=True, eq=False)
class LlamaWeights:
    """For L layers, D hidden, H heads, K of keys and values, S a head, F inner, V tokens, P the next multiple of 32."""

    embedding: FloatArray  # (V, D)
    attention_norm: FloatArray  # (L, D)
    qkv: FloatArray  # (L, D, (H + 2 K) S): queries scaled, rotary pairs adjacent
    qkv_bias: FloatArray  # (L, (H + 2 K) S); (0, 0) where there is none
    attention_output: FloatArray  # (L, H S, D)
    ffn_norm: FloatArray  # (L, D)
    gate_up: FloatArray  # (L, D, 2 F)
    down: FloatArray  # (L, F, D)
    final_norm: FloatArray  # (D,)
    output: FloatArray  # (D, P)
    output_rows: FloatArray  # (V, D): the same by tokens; where tied, the embedding itself


def weight_shapes(config: LlamaConfig) -> dict[str, Shape]:
    """Name -> shape of each array that is stored; `output_rows` only where it is not the embedding."""
    layers, hidden, inner, tokens = config.layers, config.hidden_size, config.inner_size, config.vocabulary_size
    fused = (config.heads + 2 * config.kv_heads) * config.head_size
    shapes: dict[str, Shape] = {
        "embedding": (tokens, hidden),
        "attention_norm": (layers, hidden),
        "qkv": (layers, hidden, fused),
        "qkv_bias": (layers, fused) if config.attention_bias else (0, 0),
        "attention_output": (layers, config.heads * config.head_size, hidden),
        "ffn_norm": (layers, hidden),
        "gate_up": (layers, hidden, 2 * inner),
        "down": (layers, inner, hidden),
        "final_norm": (hidden,),
        "output": (hidden, tokens + -tokens % MASK_WORD),
    }
    return shapes if config.tied else shapes | {"output_rows": (tokens, hidden)}


def tensor_shapes(config: LlamaConfig) -> dict[str, Shape]:
    """GGUF name -> shape, (outputs, inputs) for matrices, of each tensor that a checkpoint of this config has."""
    hidden, inner, tokens = config.hidden_size, config.inner_size, config.vocabulary_size
    queries, keys = config.heads * config.head_size, config.kv_heads * config.head_size
    layer: dict[str, Shape] = {
        "attn_norm.weight": (hidden,),
        "attn_q.weight": (queries, hidden),
        "attn_k.weight": (keys, hidden),
        "attn_v.weight": (keys, hidden),
        "attn_output.weight": (hidden, queries),
        "ffn_norm.weight": (hidden,),
        "ffn_gate.weight": (inner, hidden),
        "ffn_up.weight": (inner, hidden),
        "ffn_down.weight": (hidden, inner),
    }
    if config.attention_bias:
        layer |= {"attn_q.bias": (queries,), "attn_k.bias": (keys,), "attn_v.bias": (keys,)}
    shapes: dict[str, Shape] = {"token_embd.weight": (tokens, hidden), "output_norm.weight": (hidden,)}
    if not config.tied:
        shapes["output.weight"] = (tokens, hidden)
    return shapes | {f"blk.{i}.{name}": shape for i in range(config.layers) for name, shape in layer.items()}


def packed_arrays(checkpoint: Checkpoint) -> Iterator[tuple[str, FloatArray]]:
    """Each array of `weight_shapes` by its name, read from a checkpoint; one at a time, so that they may be written.

    Raises
    ------
    ValueError
        When a weight is missing or of another shape than the config says.
    """
    config, reader = checkpoint.config, _Reader(checkpoint)
    packers: dict[str, Callable[[FloatArray], None]] = {
        "embedding": lambda out: np.copyto(out, reader.read("token_embd.weight")),
        "attention_norm": partial(reader.stack, "attn_norm.weight"),
        "qkv": reader.fuse_attention,
        "qkv_bias": reader.fuse_biases,
        "attention_output": partial(reader.stack, "attn_output.weight"),
        "ffn_norm": partial(reader.stack, "ffn_norm.weight"),
        "gate_up": reader.fuse_gate_up,
        "down": partial(reader.stack, "ffn_down.weight"),
        "final_norm": lambda out: np.copyto(out, reader.read("output_norm.weight")),
        "output": lambda out: np.copyto(out[:, : config.vocabulary_size], reader.output().T),
        "output_rows": lambda out: np.copyto(out, reader.output()),
    }
    for name, shape in weight_shapes(config).items():
        array = np.zeros(shape, np.float32)
        packers[name](array)
        yield name, array


def weights_of(arrays: Mapping[str, FloatArray]) -> LlamaWeights:
    """The weights in these arrays, named as in `weight_shapes`."""
    return LlamaWeights(**{"output_rows": arrays["embedding"], **arrays})


class _Reader:
    """Tensors of a checkpoint, their shapes checked."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint, self._config = checkpoint, checkpoint.config
        self._expected = tensor_shapes(checkpoint.config)

    def read(self, name: str) -> FloatArray:
        """One of them."""
        tensor = self._checkpoint.tensor(name)
        if tensor.shape != self._expected[name]:
            raise ValueError(f"weight {name} is {tensor.shape}, expected {self._expected[name]}")
        return tensor

    def output(self) -> FloatArray:
        """The output matrix (V, D)."""
        return self.read("token_embd.weight" if self._config.tied else "output.weight")

    def stack(self, name: str, out: FloatArray) -> None:
        """The same of all layers, matrices turned."""
        for layer, target in enumerate(out):
            target[:] = self.read(f"blk.{layer}.{name}").T

    def fuse_attention(self, out: FloatArray) -> None:
        """Queries, keys and values beside each other."""
        for layer, target in enumerate(out):
            self._fuse(layer, "weight", target.T)

    def fuse_biases(self, out: FloatArray) -> None:
        """Their biases, where there are any."""
        for layer, target in enumerate(out):
            self._fuse(layer, "bias", target)

    def fuse_gate_up(self, out: FloatArray) -> None:
        """Both beside each other."""
        inner = self._config.inner_size
        self.stack("ffn_gate.weight", out[:, :, :inner])
        self.stack("ffn_up.weight", out[:, :, inner:])

    def _fuse(self, layer: int, kind: str, target: FloatArray) -> None:
        config = self._config
        keys = config.heads * config.head_size
        values = keys + config.kv_heads * config.head_size
        for name, part in (("q", slice(keys)), ("k", slice(keys, values))):
            tensor = self.read(f"blk.{layer}.attn_{name}.{kind}")
            target[part] = pairs_adjacent(tensor, config.head_size) if self._checkpoint.pairs == "halves" else tensor
        target[:keys] *= np.float32(config.head_size**-0.5)
        target[values:] = self.read(f"blk.{layer}.attn_v.{kind}")
