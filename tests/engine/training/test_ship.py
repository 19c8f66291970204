"""A briefly trained model is written so that it can be loaded."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from engine.models import Batch
from engine.models.registry import load_model
from engine.training import train_embedded


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A character model after sixty steps, as written."""
    output = tmp_path_factory.mktemp("models")
    train_embedded(output, seed=1, models=("char",), progress=False, steps=60)
    return output / "katagami-char"


def test_folder_loads(folder: Path) -> None:
    """And predicts over its whole vocabulary."""
    loaded = load_model(folder)
    loaded.model.allocate(1)
    logits = loaded.model.forward(Batch(np.empty(0, np.int32), np.array([0, 0], np.int32), np.zeros(1, np.int32)))
    assert logits.shape[1] >= loaded.model.vocabulary_size == len(loaded.tokenizer.vocabulary)


def test_folder_holds_three_files_and_no_checkpoint(folder: Path) -> None:
    """What was only needed while training is gone."""
    assert {"model.safetensors", "tokenizer.json", "config.json"} == {path.name for path in folder.iterdir()}


def test_weights_are_float16_and_readable_by_all(folder: Path) -> None:
    """Half the size on disk; not private to whoever trained."""
    weights = load_file(folder / "model.safetensors")
    assert {np.dtype(np.float16)} == {value.dtype for value in weights.values()}
    assert (folder / "config.json").stat().st_mode == (folder / "model.safetensors").stat().st_mode


def test_config_states_how_it_was_trained_and_how_good_it_is(folder: Path) -> None:
    """Command, seed and losses, beside the article's."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    training = config["training"]
    assert (training["command"], training["seed"], training["steps"]) == ("katagami train --seed 1", 1, 60)
    assert training["article_held_out_loss_nats_per_character"] == 0.788
    assert 0.5 < training["held_out_loss_nats_per_character"] < np.log(config["vocab_size"])


def test_unknown_model_is_refused(tmp_path: Path) -> None:
    """By name, with the choices, before anything is done."""
    with pytest.raises(ValueError, match=r"\['word'\].*char, bpe"):
        train_embedded(tmp_path, models=("char", "word"))
    assert not list(tmp_path.iterdir())
