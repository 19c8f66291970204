"""A name or a folder in, a model ready to run out.

In: the name of a model that ships with the project, or the path of a folder with model.safetensors, tokenizer.json and
config.json. Out: `LoadedModel`. Cost: milliseconds for the shipped ones. A path wins over a name only if it looks like
a path, so that no folder of the working directory can stand in for a shipped model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from engine.models import Model
from engine.models.window_mlp import ARCHITECTURE as WINDOW_MLP
from engine.models.window_mlp import load_window_mlp
from engine.tokenizer import Tokenizer

EMBEDDED_MODELS = ("katagami-char", "katagami-bpe")

_LOADERS: Mapping[str, Callable[[Path, Mapping[str, Any]], Model]] = {WINDOW_MLP: load_window_mlp}


class ModelNotFoundError(ValueError):
    """No model of this name ships with the project, and no folder of this path holds one."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model with its tokenizer; `config` is what config.json holds."""

    name: str
    model: Model
    tokenizer: Tokenizer
    config: Mapping[str, Any]


def embedded_folder() -> Path:
    """Where the shipped models are, one folder each; `katagami train` writes there."""
    return Path(str(resources.files("engine"))) / "embedded"


def load_model(name_or_path: str | Path) -> LoadedModel:
    """Load a shipped model by its name, or a folder by its path; a path has a separator in it or is a `Path`.

    Raises
    ------
    ModelNotFoundError
        When there is no such model; names the ones there are.
    ValueError
        When the folder's files do not fit together.
    """
    folder = _folder(name_or_path)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    loader = _LOADERS.get(config.get("architecture"))
    if loader is None:
        raise ValueError(f"{folder}: config.json names no architecture known here: {', '.join(_LOADERS)}")
    model = loader(folder, config)
    tokenizer = Tokenizer.from_file(folder / "tokenizer.json")
    if len(tokenizer.vocabulary) > model.vocabulary_size:
        raise ValueError(f"{folder}: {len(tokenizer.vocabulary)} tokens, but logits for {model.vocabulary_size}")
    return LoadedModel(folder.name, model, tokenizer, config)


def _folder(name_or_path: str | Path) -> Path:
    is_path = isinstance(name_or_path, Path) or os.sep in name_or_path
    if not is_path and name_or_path not in EMBEDDED_MODELS:
        raise ModelNotFoundError(f"no model is named {name_or_path!r}; there are {', '.join(EMBEDDED_MODELS)}")
    folder = Path(name_or_path) if is_path else embedded_folder() / name_or_path
    if not (folder / "config.json").is_file():
        raise ModelNotFoundError(f"{folder} holds no model: there is no config.json in it")
    return folder
