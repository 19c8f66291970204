"""`katagami models`: listed, found, fetched and removed by name."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from app.cli import models_command
from app.cli.models_command import pull_missing
from app.cli.serve import load_or_pull
from app.settings import Settings
from engine.models.llama.decoder import LlamaModel
from tests.app.conftest import Run
from tests.engine.llama.slow import Sizes
from tests.engine.llama.tiny import make_weights, write_gguf

NAME = "smollm2-135m-instruct"


@pytest.fixture
def run(katagami: Run) -> Run:
    """Run `katagami models` with these arguments."""
    return partial(katagami, "models")


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names that were fetched; each is laid at once, without a network."""
    names: list[str] = []

    def lay(home: Path, name: str) -> Path:
        names.append(name)
        target = home / "models" / name / "model.gguf"
        target.parent.mkdir(parents=True)
        target.write_bytes(b"x" * 3_000_000)
        return target

    monkeypatch.setattr(models_command, "pull_shown", lay)
    return names


def test_a_model_is_listed_fetched_found_and_removed(run: Run, fetched: list[str], tmp_path: Path) -> None:
    """The way of one from the registry to the folder and out again."""
    assert f"katagami models pull {NAME}" in run("list")[1]
    expected = str(tmp_path / "models" / NAME / "model.gguf")
    assert (0, expected + "\n", "") == run("pull", NAME)
    assert (0, expected + "\n", "") == run("path", NAME)
    listing = run("list")[1]
    assert f"katagami models pull {NAME}" not in listing
    assert next(line for line in listing.splitlines() if NAME in line).split()[3:7] == ["here", "│", "3", "│"]
    assert (0, "", "") == run("rm", NAME)
    assert not (tmp_path / "models" / NAME).exists()


def test_shipped_models_are_listed_and_found_but_never_removed(run: Run) -> None:
    """They are part of the project."""
    assert "katagami-char" in run("list")[1]
    assert "embedded/katagami-char" in run("path", "katagami-char")[1]
    assert 2 == run("rm", "katagami-char")[0]


@pytest.mark.parametrize("command", ["path", "rm"])
def test_a_model_that_is_not_there_is_named(run: Run, command: str) -> None:
    """With the way to fetch it, where there is one."""
    status, _, error = run(command, NAME)
    assert (2, True) == (status, f"`katagami models pull {NAME}` fetches it" in error)
    status, _, error = run(command, "nosuch")
    assert (2, True) == (status, error.startswith("katagami: no model is named 'nosuch'; there is "))


def test_a_model_that_cannot_be_fetched_is_refused(run: Run) -> None:
    """One clear line."""
    status, out, error = run("pull", "nosuch")
    assert (2, "", 1) == (status, out, error.count("\n"))
    assert f"there is {NAME}" in error


def test_only_what_is_missing_and_known_is_fetched(fetched: list[str], tmp_path: Path) -> None:
    """Before serving: shipped names, paths and unknown ones are left to the loader."""
    pull_missing(tmp_path, ("katagami-char", NAME, "./a.gguf", "nosuch"))
    pull_missing(tmp_path, (NAME,))
    assert [NAME] == fetched


@pytest.mark.parametrize("command", ["list", "pull", "path", "rm"])
def test_help_teaches(run: Run, command: str) -> None:
    """Each has a line that can be copied."""
    assert f"katagami models {command}" in run(command, "--help")[1].split("Example", 1)[1]


def test_the_server_fetches_a_missing_model_as_it_loads(fetched: list[str], tmp_path: Path) -> None:
    """It listens by then; what was fetched here is no model, and the error names the file."""
    settings = Settings(home=tmp_path)
    with pytest.raises(ValueError, match=rf"{NAME}/model\.gguf: not a GGUF file"):
        load_or_pull(settings, NAME)
    assert [NAME] == fetched
    assert "katagami-char" == load_or_pull(settings, "katagami-char").name


def test_the_memory_for_keys_and_values_is_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It bounds what one sequence may have."""
    sizes = Sizes(layers=1)
    path = write_gguf(tmp_path / "tiny.gguf", sizes, make_weights(sizes))
    monkeypatch.setenv("KATAGAMI_KV_CACHE_BYTES", str(2**20))
    loaded = load_or_pull(Settings(home=tmp_path), str(path))
    assert isinstance(loaded.model, LlamaModel)
    assert 2**20 == loaded.model.cache.capacity_tokens * loaded.model.cache.token_bytes
    assert 2**20 == Settings().engine_config().kv_cache_bytes
