"""GGUF files and Hugging Face folders: what is read, and what is refused by its name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from engine.models.gguf_file import GgufCheckpoint
from engine.models.hf_folder import HfCheckpoint, read_chat_template, read_named_tokens
from engine.models.llama.rotary import llama3_frequencies, pairs_adjacent, plain_frequencies, turns_of
from tests.engine.llama.slow import Sizes
from tests.engine.llama.tiny import make_weights, write_folder, write_gguf

SIZES = Sizes()


@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [("F32", 0), ("F16", 1e-3), ("BF16", 1e-2), ("Q8_0", 0.02), ("Q4_0", 0.25), ("Q4_1", 0.25), ("Q5_1", 0.15)],
)
def test_weights_of_a_gguf_file_are_dequantised(tmp_path: Path, kind: str, tolerance: float) -> None:
    """Each kind comes back as float32, near what was written."""
    sizes = replace(SIZES, hidden=64)
    weights, quantisation = make_weights(sizes), gguf.GGMLQuantizationType[kind]
    path = write_gguf(tmp_path / "m.gguf", sizes, weights)
    writer_path = requantise(path, weights, quantisation)
    for name, value in weights.items():
        found = GgufCheckpoint(writer_path).tensor(name)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, value, atol=tolerance)


def requantise(path: Path, weights: dict[str, NDArray[np.float32]], kind: gguf.GGMLQuantizationType) -> Path:
    """The same model with those matrices quantised whose rows are whole blocks."""
    reader, target = gguf.GGUFReader(path), path.with_name("quantised.gguf")
    writer = gguf.GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], inner)
    for name, value in weights.items():
        block = gguf.GGML_QUANT_SIZES[kind][0]
        if value.ndim == 2 and value.shape[1] % block == 0:
            writer.add_tensor(name, gguf.quants.quantize(value, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"llama.rope.scaling.type": "yarn"}, r"llama\.rope\.scaling\.type 'yarn' is not supported"),
        ({"llama.expert_count": 8}, r"llama\.expert_count 8 is not supported"),
        ({"llama.logit_scale": 0.5}, r"llama\.logit_scale 0\.5 is not supported"),
        ({"llama.rope.dimension_count": 4}, r"llama\.rope\.dimension_count 4 is not supported"),
        ({"llama.attention.value_length": 4}, r"llama\.attention\.value_length 4 is not supported"),
        ({"llama.block_count": 3}, None),
        ({"llama.expert_count": 0, "llama.rope.scaling.type": "none"}, ""),
    ],
)
def test_what_a_gguf_file_says_is_known_or_refused(tmp_path: Path, extra: dict[str, Any], reason: str | None) -> None:
    """By name and value; what says that a feature is off is no reason. A missing layer shows when it is read."""
    path = write_gguf(tmp_path / "m.gguf", SIZES, make_weights(SIZES), extra=extra)
    if reason:
        with pytest.raises(ValueError, match=reason):
            GgufCheckpoint(path)
        return
    checkpoint = GgufCheckpoint(path)
    if reason is None:
        with pytest.raises(ValueError, match=r"blk\.2\.attn_q\.weight is missing"):
            checkpoint.tensor("blk.2.attn_q.weight")


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    """With the known ones."""
    path = write_gguf(tmp_path / "m.gguf", SIZES, make_weights(SIZES), "gemma3")
    with pytest.raises(ValueError, match=r"'gemma3' is not supported; known are llama, qwen2"):
        GgufCheckpoint(path)


def test_a_weight_that_would_not_be_used_is_refused(tmp_path: Path) -> None:
    """A model with norms of queries, say, in either format."""
    weights = make_weights(SIZES)
    path = write_gguf(tmp_path / "m.gguf", SIZES, {**weights, "blk.1.attn_q_norm.weight": np.ones(8, np.float32)})
    with pytest.raises(ValueError, match=r"weight blk\.1\.attn_q_norm\.weight is not known"):
        GgufCheckpoint(path)
    folder = write_folder(tmp_path / "m", SIZES, weights)
    save_file({"model.layers.0.mlp.extra": np.ones(8, np.float32)}, folder / "model.safetensors")
    with pytest.raises(ValueError, match=r"weight model\.layers\.0\.mlp\.extra is not known"):
        HfCheckpoint(folder)


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    """At once, not when a tensor is read."""
    path = write_gguf(tmp_path / "m.gguf", SIZES, make_weights(SIZES))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="cut off"):
        GgufCheckpoint(path)
    folder = write_folder(tmp_path / "m", SIZES, make_weights(SIZES))
    file = folder / "model.safetensors"
    content = file.read_bytes()
    for part, reason in ((content[:-100], "cut off"), (content[:100], "header"), (content[:5], "not a safetensors")):
        file.write_bytes(part)
        with pytest.raises(ValueError, match=reason):
            HfCheckpoint(folder)


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"model_type": "gemma"}, r"model_type 'gemma' is not supported; known are llama"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"mlp_bias": True}, "mlp_bias True"),
        ({"use_sliding_window": True}, "use_sliding_window True"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"model_type": "mistral", "sliding_window": 4096}, "sliding_window 4096"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "type 'dynamic' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "llama3 has no low_freq_factor"),
        ({"rope_scaling": "yarn"}, "rope scaling 'yarn' is not supported"),
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"rms_norm_eps": None}, "rms_norm_eps is missing"),
        ({"rope_theta": [1e4]}, r"rope_theta is \[10000.0\], not one number"),
        ({"bos_token_id": None, "eos_token_id": None}, "no token that starts"),
    ],
)
def test_what_a_folder_says_is_known_or_refused(tmp_path: Path, extra: dict[str, Any], reason: str) -> None:
    """By name and value."""
    folder = write_folder(tmp_path / "m", SIZES, make_weights(SIZES), extra=extra)
    with pytest.raises(ValueError, match=reason):
        HfCheckpoint(folder)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_weights_of_a_folder_come_back_as_float32(tmp_path: Path, kind: str) -> None:
    """Of four bytes or two; bfloat16 is the upper half of float32."""
    weights = make_weights(SIZES)
    folder = write_folder(tmp_path / "m", SIZES, weights)
    if kind == "F16":
        write_folder(tmp_path / "h", SIZES, {name: w.astype(np.float16) for name, w in weights.items()})  # type: ignore[misc]
        folder = tmp_path / "h"
    elif kind == "BF16":
        halve(folder / "model.safetensors")
    for name, value in weights.items():
        np.testing.assert_allclose(
            HfCheckpoint(folder).tensor(name), value, rtol=0 if kind == "F32" else 0.01, atol=1e-6
        )


def halve(path: Path) -> None:
    """Cut the numbers of a file of float32 to bfloat16."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for value in header.values():
        value["dtype"], value["data_offsets"] = "BF16", [offset // 2 for offset in value["data_offsets"]]
    text = json.dumps(header).encode()
    values = np.frombuffer(data[8 + length :], np.uint32) >> 16
    path.write_bytes(len(text).to_bytes(8, "little") + text + values.astype("<u2").tobytes())


def test_shards_are_read_as_one(tmp_path: Path) -> None:
    """Every weight, wherever it lies; no shard outside the folder."""
    weights = make_weights(SIZES)
    folder = write_folder(tmp_path / "m", SIZES, weights, shards=3)
    checkpoint = HfCheckpoint(folder)
    assert all(np.array_equal(value, checkpoint.tensor(name)) for name, value in weights.items())
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"lm_head.weight": "../other"}}')
    with pytest.raises(ValueError, match=r"\.\./other is no file of this folder"):
        HfCheckpoint(folder)
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ValueError, match=r"model\.safetensors\.index\.json is no index of weights"):
        HfCheckpoint(folder)


def test_later_folders_name_rotary_embedding_otherwise(tmp_path: Path) -> None:
    """`rope_parameters` instead of `rope_theta` and `rope_scaling`."""
    extra = {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
    checkpoint = HfCheckpoint(write_folder(tmp_path / "m", SIZES, make_weights(SIZES), extra=extra))
    np.testing.assert_allclose(checkpoint.config.frequencies, plain_frequencies(500.0, 8))


def test_llama3_scaling_keeps_fast_pairs_and_slows_slow_ones() -> None:
    """Llama 3.2's own figures: the first pairs as they are, the last 32 times slower, no jump between them."""
    plain = plain_frequencies(500000.0, 64)
    scaled = llama3_frequencies(plain, 32.0, 1.0, 4.0, 8192)
    assert np.array_equal(plain[:10], scaled[:10])
    np.testing.assert_allclose(plain[-10:] / 32, scaled[-10:])
    assert (np.diff(scaled) < 0).all()


def test_turns_are_exact_far_out() -> None:
    """Angles of thousands of radians, taken in float64."""
    turns = turns_of(np.array([1.0, 1e-4]), np.array([0, 100_000], np.int32))
    np.testing.assert_allclose(turns, np.exp(1j * np.array([[0, 0], [100_000, 10]])), atol=1e-7)


def test_pairs_are_put_beside_each_other() -> None:
    """Two heads of four: 0 with 2, 1 with 3."""
    assert pairs_adjacent(np.arange(8, dtype=np.float32), 4).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_chat_template_and_named_tokens_of_a_folder(tmp_path: Path) -> None:
    """From tokenizer_config.json in its forms, and from a file of its own, which wins."""
    config = tmp_path / "tokenizer_config.json"
    assert (None, ("", "")) == (read_chat_template(tmp_path), read_named_tokens(tmp_path))
    config.write_text('{"chat_template": "a", "bos_token": {"content": "<s>"}, "eos_token": "</s>"}')
    assert ("a", ("<s>", "</s>")) == (read_chat_template(tmp_path), read_named_tokens(tmp_path))
    config.write_text('{"chat_template": [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]}')
    assert "d" == read_chat_template(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("file")
    assert "file" == read_chat_template(tmp_path)
