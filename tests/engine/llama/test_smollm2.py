"""SmolLM2 itself against llama.cpp: tokens, logits and greedy text of the golden files.

Skipped where the model is not on this machine: KATAGAMI_SMOLLM2_GGUF names its file, or `katagami models pull
smollm2-135m-instruct` puts it into the models folder.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from engine.models.llama.decoder import LlamaModel
from engine.models.models_folder import default_home, find_model
from engine.models.registry import LoadedModel, load_model
from tests.engine.llama.tiny import batch_of

GOLDEN = Path(__file__).parents[2] / "data" / "llama"
NAME = "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """The model, loaded twice: the second time from its prepared copy."""
    path = os.environ.get("KATAGAMI_SMOLLM2_GGUF") or find_model(default_home(), NAME)
    if path is None:
        pytest.skip(f"no {NAME} on this machine: `katagami models pull {NAME}` fetches it")
    home = tmp_path_factory.mktemp("home")
    load_model(Path(path), home)
    return load_model(Path(path), home)


@pytest.fixture
def model(loaded: LoadedModel) -> LlamaModel:
    """Its forward pass, with empty slots."""
    assert isinstance(loaded.model, LlamaModel)
    loaded.model.allocate(20)
    return loaded.model


def test_tokens_of_200_strings_are_those_of_llama_cpp(loaded: LoadedModel) -> None:
    """Blanks, digits, code, Japanese, emoji, control characters, names of special tokens: all spelled exactly."""
    rows = json.loads((GOLDEN / "tokens.json").read_text("utf-8"))
    assert 200 == len(rows)
    assert dict(map(tuple, rows)) == {text: loaded.tokenizer.encode(text) for text, _ in rows}
    assert all(text.encode() == loaded.tokenizer.decode_bytes(ids) for text, ids in rows)


def test_logits_of_2000_positions_are_those_of_llama_cpp(model: LlamaModel) -> None:
    """The same best token at every position, and the best eight logits within 0.001 (0.00012 when this was written)."""
    golden = np.load(GOLDEN / "logits.npz")
    texts = golden["token_ids"]
    count, length = texts.shape
    inner = [i for i in range(count * length) if i % length != length - 1]
    states = model.hidden(batch_of(texts.tolist(), range(count), inner))
    hidden = np.empty_like(states)
    hidden[length - 1 :: length], hidden[inner] = states[:count], states[count:]
    logits = model.logits(hidden)
    assert 2000 == (logits.argmax(axis=1) == golden["best_ids"][:, 0]).sum()
    found = np.take_along_axis(logits, golden["best_ids"], axis=1)
    np.testing.assert_allclose(found, golden["best_logits"], atol=1e-3, rtol=0)


def test_greedy_text_of_20_prompts_is_that_of_llama_cpp(model: LlamaModel) -> None:
    """40 tokens each, all prompts side by side."""
    rows = json.loads((GOLDEN / "greedy.json").read_text("utf-8"))
    new, written = [prompt for prompt, _ in rows], [list[int]() for _ in rows]
    for _ in range(40):
        best = model.forward(batch_of(new, range(len(rows)))).argmax(axis=1).tolist()
        new = [[token_id] for token_id in best]
        written = [[*before, token_id] for before, token_id in zip(written, best, strict=True)]
    assert [expected for _, expected in rows] == written


def test_chat_template_and_tokens(loaded: LoadedModel) -> None:
    """What a chat needs is in the file."""
    assert (1, 2) == tuple(loaded.tokenizer.encode(loaded.bos_token + loaded.eos_token, special=True))
    assert (2,) == loaded.tokenizer.end_ids
    assert () == loaded.tokenizer.begin_ids
    assert "<|im_start|>assistant" in (loaded.chat_template or "")
    assert loaded.created > 1_700_000_000


def test_weights_are_mapped_from_the_prepared_copy(model: LlamaModel) -> None:
    """So that a second start reads nothing."""
    assert isinstance(model._weights.gate_up, np.memmap)
