"""Tiny random models of each type, written as files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from engine.models import Batch
from engine.models.hf_folder import folder_name
from engine.training.vocabularies import character_tokenizer
from tests.engine.llama.slow import Sizes

Weights = dict[str, NDArray[np.float32]]
SPECIAL = ["<|end|>", "<|start|>"]
MERGES = ["a b", "ab c", "Ġ a", "1 2", "Ġ Ġ", "Ã ©", "x x"]
CONTROL, NORMAL = 3, 1
ALPHABET = [chr(c) for c in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100), *range(256, 256 + 68))]
PIECES = [*SPECIAL, *ALPHABET, *(merge.replace(" ", "") for merge in MERGES)]


def make_weights(sizes: Sizes, seed: int = 0) -> Weights:
    """Random weights, by GGUF name."""
    draws = np.random.default_rng(seed)
    queries, keys = sizes.heads * sizes.head_size, sizes.kv_heads * sizes.head_size
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (sizes.vocabulary, sizes.hidden)}
    shapes["output_norm.weight"] = (sizes.hidden,)
    if not sizes.tied:
        shapes["output.weight"] = (sizes.vocabulary, sizes.hidden)
    for layer in range(sizes.layers):
        block: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (sizes.hidden,),
            "ffn_norm.weight": (sizes.hidden,),
            "attn_output.weight": (sizes.hidden, queries),
            "ffn_gate.weight": (sizes.inner, sizes.hidden),
            "ffn_up.weight": (sizes.inner, sizes.hidden),
            "ffn_down.weight": (sizes.hidden, sizes.inner),
        }
        for name, size in (("q", queries), ("k", keys), ("v", keys)):
            block[f"attn_{name}.weight"] = (size, sizes.hidden)
            if sizes.bias:
                block[f"attn_{name}.bias"] = (size,)
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    return {
        name: draws.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[-1])) + np.float32("norm" in name)
        for name, shape in shapes.items()
    }


def write_gguf(
    path: Path,
    sizes: Sizes,
    weights: Mapping[str, NDArray[np.float32]],
    architecture: str = "llama",
    extra: Mapping[str, int | float | str] | None = None,
    pre: str = "smollm",
) -> Path:
    """A GGUF file with a byte-level tokenizer; `extra` metadata comes on top."""
    writer = gguf.GGUFWriter(path, architecture)
    numbers = {
        "block_count": sizes.layers,
        "context_length": sizes.context,
        "embedding_length": sizes.hidden,
        "feed_forward_length": sizes.inner,
        "attention.head_count": sizes.heads,
        "attention.head_count_kv": sizes.kv_heads,
        "attention.key_length": sizes.head_size,
        "attention.layer_norm_rms_epsilon": sizes.epsilon,
        "rope.freq_base": sizes.base,
    }
    metadata: dict[str, Any] = {f"{architecture}.{name}": value for name, value in numbers.items()}
    metadata |= {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": PIECES}
    metadata["tokenizer.ggml.token_type"] = [CONTROL if piece in SPECIAL else NORMAL for piece in PIECES]
    metadata["tokenizer.ggml.merges"] = MERGES
    metadata |= {"tokenizer.ggml.eos_token_id": 0, "tokenizer.ggml.bos_token_id": 1}
    for name, value in (metadata | dict(extra or {})).items():
        _add(writer, name, value)
    for name, tensor in weights.items():
        writer.add_tensor(name, tensor)
    if sizes.factors is not None:
        writer.add_tensor("rope_freqs.weight", np.array(sizes.factors, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, name: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(name, value)
    elif isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, int):
        writer.add_uint32(name, value)
    elif isinstance(value, float):
        writer.add_float32(name, value)
    else:
        writer.add_string(name, value)


def write_folder(
    folder: Path,
    sizes: Sizes,
    weights: Mapping[str, NDArray[np.float32]],
    model_type: str = "llama",
    extra: Mapping[str, Any] | None = None,
    shards: int = 1,
) -> Path:
    """A Hugging Face folder with a character tokenizer; `extra` goes into config.json on top."""
    folder.mkdir(parents=True)
    config = {
        "model_type": model_type,
        "vocab_size": sizes.vocabulary,
        "hidden_size": sizes.hidden,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_size,
        "intermediate_size": sizes.inner,
        "max_position_embeddings": sizes.context,
        "rms_norm_eps": sizes.epsilon,
        "rope_theta": sizes.base,
        "tie_word_embeddings": sizes.tied,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(config | dict(extra or {})))
    (folder / "tokenizer.json").write_text(character_tokenizer(["abc 123"]).to_str())
    named = {folder_name(name): np.ascontiguousarray(value) for name, value in weights.items()}
    if shards == 1:
        save_file(named, folder / "model.safetensors")
        return folder
    weight_map = {name: f"model-{i % shards:05}.safetensors" for i, name in enumerate(named)}
    for file in sorted(set(weight_map.values())):
        save_file({name: named[name] for name in named if weight_map[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def batch_of(rows: Sequence[Sequence[int]], slots: Sequence[int], inner: Sequence[int] = ()) -> Batch:
    """A batch that feeds each row to its slot."""
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    token_ids = np.array([token_id for row in rows for token_id in row], np.int32)
    return Batch(token_ids, offsets, np.array(slots, np.int32), np.array(inner, np.int32))
