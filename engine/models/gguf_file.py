"""A GGUF file as a checkpoint: Llama and Qwen2 types, any quantisation that the `gguf` package can undo.

In: a path. Out: `GgufCheckpoint`, whose config is read at once and whose tensors when they are asked for, as float32.
Cost: 30 ms for the header; dequantising SmolLM2 takes 1 s. Whatever the file says of the model that is not known here
is refused by its name, and so is a tensor that the forward pass would not use: a model that is computed in part only
would answer nonsense. Source: the GGUF specification; llama.cpp's names of tensors and metadata.

The weights of the `llama` type have the pairs of rotary embedding beside each other, those of `qwen2` half a head
apart: the writers of the files reorder the first.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from gguf.quants import dequantize

from engine.models.llama.config import FloatArray, LlamaConfig, RotaryPairs, real_number, whole_number
from engine.models.llama.rotary import Frequencies, plain_frequencies
from engine.models.llama.weights import tensor_shapes
from schemas_cache.gguf_header import GgufHeader, read_gguf_header

PAIRS: dict[str, RotaryPairs] = {"llama": "adjacent", "qwen2": "halves"}
ROTARY_FACTORS = "rope_freqs.weight"  # (S / 2,): what each frequency is divided by, where the context was made longer
DEFAULT_ROTARY_BASE = 10000.0
SAMPLE_BYTES = 1 << 16  # of the weights, for the digest

_READ = {
    *("block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
    *("attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.dimension_count"),
}
_OFF = {"expert_count": 0, "expert_used_count": 0, "rope.scaling.type": "none", "attention.causal": True}


class GgufCheckpoint:
    """The model of a GGUF file.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    ValueError
        When it is no whole GGUF file, or of a model that is not known here.

    Attributes
    ----------
    header : GgufHeader
        All that the file says beside its tensors.
    config : LlamaConfig
        Sizes and switches.
    pairs : RotaryPairs
        How the outputs of its query and key matrices are ordered.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.header = path, read_gguf_header(path)
        architecture = self.header.metadata.get("general.architecture")
        if architecture not in PAIRS:
            raise ValueError(f"{path}: architecture {architecture!r} is not supported; known are {', '.join(PAIRS)}")
        self.pairs = PAIRS[architecture]
        try:
            self.config = self._read_config(architecture)
            _check_tensors(self.header, self.config)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @property
    def digest(self) -> str:
        """SHA-256 over size, time of the last change, header, and the end of the weights."""
        status = self.path.stat()
        digest = hashlib.sha256(f"{status.st_size} {status.st_mtime_ns} ".encode())
        with self.path.open("rb") as file:
            digest.update(file.read(self.header.size_bytes))
            file.seek(max(0, status.st_size - SAMPLE_BYTES))
            digest.update(file.read())
        return digest.hexdigest()

    def tensor(self, name: str) -> FloatArray:
        """A weight by its name, float32, matrices as (outputs, inputs)."""
        place = self.header.tensors.get(name)
        if place is None:
            raise ValueError(f"{self.path}: weight {name} is missing")
        data = np.fromfile(self.path, np.uint8, place.size_bytes, offset=place.offset)
        try:
            rows = dequantize(data.reshape(-1, place.size_bytes // max(1, _row_count(place.shape))), place.kind)
        except (NotImplementedError, ValueError) as error:
            raise ValueError(f"{self.path}: {name} is {place.kind.name}, which cannot be read: {error}") from error
        return rows.reshape(place.shape).astype(np.float32, copy=False)

    def _read_config(self, architecture: str) -> LlamaConfig:
        values = _model_values(self.header, architecture)
        heads, hidden = whole_number(values, "attention.head_count"), whole_number(values, "embedding_length")
        head_size = values.get("attention.key_length", hidden // max(1, heads))
        for name in ("attention.value_length", "rope.dimension_count"):
            if values.get(name, head_size) != head_size:
                raise ValueError(f"{architecture}.{name} {values[name]} is not supported: a head has {head_size}")
        return LlamaConfig(
            vocabulary_size=_tensor_rows(self.header, "token_embd.weight"),
            hidden_size=hidden,
            layers=whole_number(values, "block_count"),
            heads=heads,
            kv_heads=whole_number(values, "attention.head_count_kv", heads),
            head_size=head_size,
            inner_size=whole_number(values, "feed_forward_length"),
            context_length=whole_number(values, "context_length"),
            epsilon=real_number(values, "attention.layer_norm_rms_epsilon"),
            frequencies=self._frequencies(real_number(values, "rope.freq_base", DEFAULT_ROTARY_BASE), head_size),
            attention_bias="blk.0.attn_q.bias" in self.header.tensors,
            tied="output.weight" not in self.header.tensors,
            start_id=_start_id(self.header),
        )

    def _frequencies(self, base: float, head_size: int) -> Frequencies:
        plain = plain_frequencies(base, head_size)
        if ROTARY_FACTORS not in self.header.tensors:
            return plain
        factors = self.tensor(ROTARY_FACTORS)
        if factors.shape != plain.shape:
            raise ValueError(f"weight {ROTARY_FACTORS} is {factors.shape}, expected {plain.shape}")
        return plain / factors


def _model_values(header: GgufHeader, architecture: str) -> dict[str, Any]:
    """What the metadata says of this architecture, its name dropped; raises for what is not known."""
    prefix = architecture + "."
    values = {name.removeprefix(prefix): v for name, v in header.metadata.items() if name.startswith(prefix)}
    for name, value in values.items():
        if name not in _READ and (name not in _OFF or value != _OFF[name]):
            raise ValueError(f"{prefix}{name} {value!r} is not supported")
    if "attention.layer_norm_rms_epsilon" not in values:
        raise ValueError(f"{prefix}attention.layer_norm_rms_epsilon is missing")
    return values


def _start_id(header: GgufHeader) -> int:
    for name in ("bos_token_id", "eos_token_id"):
        if isinstance(found := header.metadata.get(f"tokenizer.ggml.{name}"), int):
            return found
    raise ValueError("the file names no token that starts or ends a text")


def _check_tensors(header: GgufHeader, config: LlamaConfig) -> None:
    unknown = header.tensors.keys() - tensor_shapes(config).keys() - {ROTARY_FACTORS}
    if unknown:
        raise ValueError(f"weight {min(unknown)} is not known for a model of this type, so it is not supported")


def _tensor_rows(header: GgufHeader, name: str) -> int:
    if name not in header.tensors:
        raise ValueError(f"weight {name} is missing")
    return header.tensors[name].shape[0]


def _row_count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape[:-1]))
