"""A Hugging Face folder as a checkpoint: config.json and model.safetensors, whole or in shards.

In: a folder. Out: `HfCheckpoint`, with tensors as float32. Cost: milliseconds; a tensor is read when it is asked for.
What config.json says that would change the forward pass and is not known here is refused by its name, and so is a
tensor that the forward pass would not use.

The header of a safetensors file (a length and JSON) is read here, since the library has no numpy type for bfloat16, in
which most of these models come; such numbers are the upper halves of float32. Source: the formats' own documentation;
the `transformers` configurations of Llama, Mistral and Qwen2.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.models.llama.config import FloatArray, LlamaConfig, RotaryPairs, real_number, whole_number
from engine.models.llama.rotary import Frequencies, llama3_frequencies, plain_frequencies
from engine.models.llama.weights import tensor_shapes

MODEL_TYPES = ("llama", "mistral", "qwen2")
LARGEST_HEADER_BYTES = 100_000_000  # as the library has it
DEFAULT_ROTARY_BASE = 10000.0

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_UNUSED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")  # follows from the config
_EXPECTED: Mapping[str, tuple[Any, ...]] = {  # what may be said of features that are not known here
    "hidden_act": ("silu", None),
    "mlp_bias": (False, None),
    "use_sliding_window": (False, None),
    "quantization_config": (None,),
    "partial_rotary_factor": (1.0, None),
}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor lies."""

    path: Path
    kind: str
    shape: tuple[int, ...]
    offset: int


class HfCheckpoint:
    """The model of a folder.

    Parameters
    ----------
    folder : Path
        With config.json and model.safetensors, or shards and model.safetensors.index.json.

    Raises
    ------
    ValueError
        When its files are not whole, or of a model that is not known here.

    Attributes
    ----------
    config : LlamaConfig
        Sizes and switches.
    pairs : RotaryPairs
        How the outputs of its query and key matrices are ordered.
    """

    pairs: RotaryPairs = "halves"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = _weight_files(folder)
        self._places = {name: place for path in self._files for name, place in _read_header(path).items()}
        try:
            self.config = _read_config(json.loads((folder / "config.json").read_text("utf-8")), self._places)
            self._check_tensors()
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from error

    @property
    def digest(self) -> str:
        """SHA-256 over config.json, and size, time of the last change and header of each weight file."""
        digest = hashlib.sha256((self.folder / "config.json").read_bytes())
        for path in self._files:
            status = path.stat()
            digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns} ".encode())
            with path.open("rb") as file:
                digest.update(file.read(8 + _header_size(file.read(8), path)))
        return digest.hexdigest()

    def tensor(self, name: str) -> FloatArray:
        """A weight by its GGUF name, float32, matrices as (outputs, inputs)."""
        place = self._places.get(folder_name(name))
        if place is None:
            raise ValueError(f"{self.folder}: weight {folder_name(name)} is missing")
        count = int(np.prod(place.shape))
        if place.kind == "BF16":
            halves = np.fromfile(place.path, "<u2", count, offset=place.offset)
            return (halves.astype(np.uint32) << 16).view(np.float32).reshape(place.shape)
        if place.kind not in ("F32", "F16"):
            raise ValueError(f"{place.path}: {folder_name(name)} is {place.kind}, which is not supported")
        values = np.fromfile(place.path, "<f4" if place.kind == "F32" else "<f2", count, offset=place.offset)
        return values.reshape(place.shape).astype(np.float32, copy=False)

    def _check_tensors(self) -> None:
        known = {folder_name(name) for name in tensor_shapes(self.config)}
        known |= {"lm_head.weight"} if self.config.tied else set()
        unknown = [name for name in self._places if name not in known and not _UNUSED.fullmatch(name)]
        if unknown:
            raise ValueError(f"weight {min(unknown)} is not known for a model of this type, so it is not supported")


def folder_name(name: str) -> str:
    """What a tensor with this GGUF name is called in a folder."""
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{_NAMES[parts[2]]}.{parts[3]}"
    return f"{_NAMES[parts[0]]}.{parts[1]}"


def read_chat_template(folder: Path) -> str | None:
    """The chat template of a folder, as jinja source; of several the one named `default`."""
    alone = folder / "chat_template.jinja"
    if alone.is_file():
        return alone.read_text("utf-8")
    found = _tokenizer_config(folder).get("chat_template")
    if isinstance(found, list):
        found = {entry["name"]: entry["template"] for entry in found}.get("default")
    return found


def read_named_tokens(folder: Path) -> tuple[str, str]:
    """The tokens that begin and end a text, as chat templates call them; empty where there is none."""
    found = [_tokenizer_config(folder).get(name) for name in ("bos_token", "eos_token")]
    bos_token, eos_token = (token["content"] if isinstance(token, dict) else token or "" for token in found)
    return bos_token, eos_token


def _tokenizer_config(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    values: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return values


def _read_config(values: Mapping[str, Any], places: Mapping[str, _Place]) -> LlamaConfig:
    model_type = values.get("model_type")
    if model_type not in MODEL_TYPES:
        raise ValueError(f"model_type {model_type!r} is not supported; known are {', '.join(MODEL_TYPES)}")
    for name, allowed in _EXPECTED.items():
        if values.get(name) not in allowed:
            raise ValueError(f"{name} {values[name]!r} is not supported")
    if model_type == "mistral" and values.get("sliding_window") is not None:
        raise ValueError(f"sliding_window {values['sliding_window']} is not supported")
    heads, hidden = whole_number(values, "num_attention_heads"), whole_number(values, "hidden_size")
    head_size = values.get("head_dim") or hidden // max(1, heads)
    return LlamaConfig(
        vocabulary_size=whole_number(values, "vocab_size"),
        hidden_size=hidden,
        layers=whole_number(values, "num_hidden_layers"),
        heads=heads,
        kv_heads=whole_number(values, "num_key_value_heads", heads),
        head_size=head_size,
        inner_size=whole_number(values, "intermediate_size"),
        context_length=whole_number(values, "max_position_embeddings"),
        epsilon=real_number(values, "rms_norm_eps", 1e-6),
        frequencies=_frequencies(values, head_size),
        attention_bias="model.layers.0.self_attn.q_proj.bias" in places,
        tied=bool(values.get("tie_word_embeddings", False)),
        start_id=_start_id(values),
    )


def _frequencies(values: Mapping[str, Any], head_size: int) -> Frequencies:
    """Of `rope_theta` and `rope_scaling`, or of `rope_parameters`, which later versions have instead."""
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ValueError(f"rope scaling {rope!r} is not supported")
    kind = rope.get("rope_type", rope.get("type", "default"))
    plain = plain_frequencies(real_number({**values, **rope}, "rope_theta", DEFAULT_ROTARY_BASE), head_size)
    if kind == "default":
        return plain
    if kind != "llama3":
        raise ValueError(f"rope scaling of type {kind!r} is not supported; known are default, llama3")
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    missing = [name for name in names if name not in rope]
    if missing:
        raise ValueError(f"rope scaling of type llama3 has no {missing[0]}")
    factor, low, high = (real_number(rope, name) for name in names[:3])
    return llama3_frequencies(plain, factor, low, high, whole_number(rope, names[3]))


def _start_id(values: Mapping[str, Any]) -> int:
    for name in ("bos_token_id", "eos_token_id"):
        found = values.get(name)
        if isinstance(found, list) and found:
            found = found[0]
        if isinstance(found, int):
            return found
    raise ValueError("config.json names no token that starts or ends a text")


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return [folder / "model.safetensors"]
    try:
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index} is no index of weights, perhaps for a download that broke off") from error
    if strange := [name for name in names if Path(name).name != name]:
        raise ValueError(f"{index}: {strange[0]} is no file of this folder")
    return [folder / name for name in names]


def _read_header(path: Path) -> dict[str, _Place]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = _header_size(file.read(8), path)
        try:
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            starts = {name: 8 + length + value["data_offsets"][0] for name, value in header.items()}
            end = max((8 + length + value["data_offsets"][1] for value in header.values()), default=0)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: the file is cut off or damaged within its header") from error
    if end > size:
        raise ValueError(f"{path}: the file is cut off: {size:,} bytes of {end:,}")
    return {name: _Place(path, value["dtype"], tuple(value["shape"]), starts[name]) for name, value in header.items()}


def _header_size(data: bytes, path: Path) -> int:
    length: int = struct.unpack("<Q", data)[0] if len(data) == 8 else LARGEST_HEADER_BYTES + 1
    if length > LARGEST_HEADER_BYTES:
        raise ValueError(f"{path}: not a safetensors file")
    return length
