"""Where models lie on this machine: one folder each, below the project's home.

In: the home and a name. Out: the folder, or the list of them. A model is a folder with `model.gguf`, or one as Hugging
Face has it, put there by `pull` or by hand. Copies that were prepared from models are in a hidden folder there, and may
be deleted at any time. Cost: a look at the file system.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from engine.models.llama.prepared import remove_prepared

MODEL_FILE = "model.gguf"
CONFIG_FILE = "config.json"


def default_home() -> Path:
    """`$KATAGAMI_HOME`, else where the platform keeps caches: `$XDG_CACHE_HOME/katagami` or `~/.cache/katagami`."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("KATAGAMI_HOME") or caches / "katagami")


def models_folder(home: Path) -> Path:
    """Where models are."""
    return home / "models"


def prepared_folder(home: Path) -> Path:
    """Where prepared copies of their weights are: beside them, so that one volume holds both."""
    return models_folder(home) / ".prepared"


def is_model(folder: Path) -> bool:
    """Whether there is a model in it."""
    return any((folder / name).is_file() for name in (MODEL_FILE, CONFIG_FILE))


def list_models(home: Path) -> list[str]:
    """Names of the models that are there."""
    folder = models_folder(home)
    entries = folder.iterdir() if folder.is_dir() else ()
    return sorted(entry.name for entry in entries if not entry.name.startswith(".") and is_model(entry))


def find_model(home: Path, name: str) -> Path | None:
    """What to load for a name: a GGUF file or a folder; None where there is no such model."""
    if name not in list_models(home):
        return None
    folder = models_folder(home) / name
    return folder / MODEL_FILE if (folder / MODEL_FILE).is_file() else folder


def remove_model(home: Path, name: str) -> bool:
    """Remove a model and what was prepared from it; False where there is none of that name."""
    if name not in list_models(home):
        return False
    remove_prepared(prepared_folder(home), name)
    folder = models_folder(home) / name
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder)
    return True
