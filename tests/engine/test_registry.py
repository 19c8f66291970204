"""Models by name and by folder, and what the shipped ones must be."""

from pathlib import Path

import jsonschema_rs
import numpy as np
import pytest

from engine.models import Batch
from engine.models.registry import EMBEDDED_MODELS, ModelNotFoundError, embedded_folder, load_model
from engine.models.window_mlp import parameter_count
from engine.training.corpus import RECORD_SCHEMA, build_corpus
from engine.training.evaluate import draw_texts, share_valid


@pytest.mark.parametrize("name", EMBEDDED_MODELS)
def test_shipped_model_fits_together(name: str) -> None:
    """Weights, tokenizer and config speak of the same vocabulary."""
    loaded = load_model(name)
    assert name == loaded.name
    assert len(loaded.tokenizer.vocabulary) == loaded.model.vocabulary_size == loaded.config["vocab_size"]
    assert parameter_count(loaded.model.vocabulary_size) == loaded.config["parameters"]


@pytest.mark.parametrize("name", EMBEDDED_MODELS)
def test_shipped_tokenizer_spells_the_corpus(name: str) -> None:
    """Every hundredth line of the corpus it was made from, exactly."""
    tokenizer = load_model(name).tokenizer
    for line in build_corpus(1).lines[::100]:
        assert line.encode() == tokenizer.decode_bytes(tokenizer.encode_bytes(line.encode()))


def test_bpe_vocabulary_is_the_characters_and_200_merges() -> None:
    """Ids of the characters are the same in both."""
    characters, merges = (load_model(name).tokenizer.vocabulary.token_bytes for name in EMBEDDED_MODELS)
    assert len(characters) + 200 == len(merges)
    assert characters == merges[: len(characters)]


def test_shipped_models_are_under_three_megabytes() -> None:
    """All files together."""
    assert sum(path.stat().st_size for path in embedded_folder().rglob("*") if path.is_file()) < 3_000_000


def test_shipped_character_model_is_fallible_but_not_bad() -> None:
    """Without a mask, 55 to 85 % of 1,000 records at temperature 1 are valid (the article: 68.9 %)."""
    loaded = load_model("katagami-char")
    texts = draw_texts(loaded.model, loaded.tokenizer.vocabulary, 1000, 1.0, seed=0)
    assert 0.55 <= share_valid(texts, RECORD_SCHEMA) <= 0.85


def test_shipped_models_state_their_losses() -> None:
    """Each beside the article's 0.788 nats per character, and both better."""
    for name in EMBEDDED_MODELS:
        training = load_model(name).config["training"]
        assert training["held_out_loss_nats_per_character"] < 0.788
        assert training["seconds"] < 150


def test_record_schema_is_one_an_independent_validator_takes() -> None:
    """Otherwise the share of valid texts would mean nothing."""
    assert jsonschema_rs.meta.is_valid(RECORD_SCHEMA)


def test_shipped_model_writes_lines_of_its_corpus() -> None:
    """The likeliest first characters are those of every line."""
    loaded = load_model("katagami-char")
    loaded.model.allocate(1)
    written = b""
    token_ids = np.empty(0, np.int32)
    while len(written) < len(b'{"id": '):
        offsets = np.array([0, len(token_ids)], np.int32)
        token_ids = (
            loaded.model.forward(Batch(token_ids, offsets, np.zeros(1, np.int32))).argmax(axis=1).astype(np.int32)
        )
        written += loaded.tokenizer.decode_bytes(token_ids)
    assert written == b'{"id": '


@pytest.mark.parametrize("missing", ["katagami-large", "", "embedded", Path("nowhere"), "./nowhere"])
def test_unknown_model_is_refused(missing: str | Path) -> None:
    """By name or by path."""
    with pytest.raises(ModelNotFoundError):
        load_model(missing)


def test_folder_in_the_working_directory_does_not_stand_in_for_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is a shipped model, whatever lies around."""
    (tmp_path / "katagami-char").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_model("katagami-char").config["vocab_size"] > 800


@pytest.mark.parametrize("config", ["{}", '{"architecture": "window_mlp", "vocab_size": 5}'])
def test_folder_of_another_kind_of_model_is_refused(tmp_path: Path, config: str) -> None:
    """Unknown architecture, or sizes that are not the window model's."""
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ValueError, match=r"config\.json"):
        load_model(tmp_path)
