"""A name or a path in, a model ready to run out.

In: the name of a model that ships with the project or lies in the models folder; or the path of a GGUF file, of a
Hugging Face folder, or of a folder of the shipped kind (model.safetensors, tokenizer.json and config.json). Out:
`LoadedModel`. Cost: milliseconds for the shipped ones; for SmolLM2 0.7 s, most of it the tokenizer, and 4 s more the
first time. A path wins over a name only if it looks like a path, so that no folder of the working directory can stand
in for a shipped model; and a shipped model wins over one of the same name in the models folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

from engine.config import KV_CACHE_BYTES
from engine.models import Model
from engine.models.gguf_file import GgufCheckpoint
from engine.models.gguf_tokenizer import gguf_tokenizer
from engine.models.hf_folder import MODEL_TYPES, HfCheckpoint, read_chat_template, read_named_tokens
from engine.models.llama.config import Checkpoint
from engine.models.llama.decoder import LlamaModel
from engine.models.llama.prepared import prepared_weights
from engine.models.models_folder import CONFIG_FILE, MODEL_FILE, default_home, find_model, list_models, prepared_folder
from engine.models.pull import PULLABLE
from engine.models.window_mlp import ARCHITECTURE as WINDOW_MLP
from engine.models.window_mlp import load_window_mlp
from engine.tokenizer import Tokenizer

EMBEDDED_MODELS = ("katagami-char", "katagami-bpe")
GGUF_SUFFIX = ".gguf"
NEAR = 0.45  # likeness of names from which on one is mentioned for the other

_LOADERS: Mapping[str, Callable[[Path, Mapping[str, Any]], Model]] = {WINDOW_MLP: load_window_mlp}


class ModelNotFoundError(ValueError):
    """There is no model of this name, and none at this path."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model with its tokenizer; `config` is what config.json holds, or what a GGUF file says beside its tokens.

    `chat_template` is jinja source, None for models that were not trained on chats; the tokens are what it calls so.
    """

    name: str
    model: Model
    tokenizer: Tokenizer
    config: Mapping[str, Any]
    chat_template: str | None = None
    bos_token: str = ""
    eos_token: str = ""
    created: int = 0  # Unix time of the last change of its file


def embedded_folder() -> Path:
    """Where the shipped models are, one folder each; `katagami train` writes there."""
    return Path(str(resources.files("engine"))) / "embedded"


def load_model(name_or_path: str | Path, home: Path | None = None, cache_bytes: int = KV_CACHE_BYTES) -> LoadedModel:
    """Load a model.

    Parameters
    ----------
    name_or_path : str or Path
        A `Path`, or what has a separator in it or ends in `.gguf`, is a path; all else is a name.
    home : Path, optional
        Where the models folder and prepared copies of weights are; by default `default_home()`.
    cache_bytes : int
        Most memory for the KV cache of a model that has one.

    Raises
    ------
    ModelNotFoundError
        When there is no such model; names the ones there are.
    ValueError
        When its files do not fit together, or it is of a kind that is not known here.
    """
    home = default_home() if home is None else home
    name, path = _find(name_or_path, home)
    if path.is_file():
        loaded = _load_gguf(name, path, home, cache_bytes)
    else:
        config = _read_config(path)
        is_llama = config.get("model_type") in MODEL_TYPES
        loaded = _load_hf(name, path, config, home, cache_bytes) if is_llama else _load_own(name, path, config)
    if len(loaded.tokenizer.vocabulary) > loaded.model.vocabulary_size:
        sizes = f"{len(loaded.tokenizer.vocabulary)} tokens, but logits for {loaded.model.vocabulary_size}"
        raise ValueError(f"{path}: {sizes}")
    return loaded


def _find(name_or_path: str | Path, home: Path) -> tuple[str, Path]:
    """The name that a model will have, and its file or folder."""
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or os.sep in text or text.endswith(GGUF_SUFFIX):
        path = Path(name_or_path)
        if not path.is_file() and not (path / CONFIG_FILE).is_file():
            raise ModelNotFoundError(f"{path} {_fault_of(path)}")
        return _name_of(Path(os.path.abspath(path))), path
    if text in EMBEDDED_MODELS:
        return text, embedded_folder() / text
    found = find_model(home, text)
    if found is None:
        known = (*EMBEDDED_MODELS, *list_models(home))
        raise ModelNotFoundError(f"no model is named {text!r}; there are {', '.join(known)}{_hint(text, known)}")
    return text, found


def _name_of(path: Path) -> str:
    """The file's or folder's own; of what `pull` laid, that of its folder."""
    return path.parent.name if path.name == MODEL_FILE else path.name.removesuffix(GGUF_SUFFIX)


def _fault_of(path: Path) -> str:
    """Why there is no model at a path, and what could be given instead."""
    if not path.exists():
        return "does not exist; a model from a hub has to be downloaded first, then its folder is given"
    inside = sorted(entry.name for entry in path.glob(f"*{GGUF_SUFFIX}") if entry.is_file())
    if inside:
        return f"is a folder with GGUF files, of which one has to be named, such as {path / inside[0]}"
    return f"holds no model: there is no {CONFIG_FILE} in it, as in a Hugging Face folder, and no GGUF file"


def _hint(name: str, known: tuple[str, ...]) -> str:
    """How to come by a model of this name, or what was probably meant."""
    if name in PULLABLE:
        return f"; `katagami models pull {name}` fetches it"
    nearest = get_close_matches(name, [*known, *PULLABLE], n=1, cutoff=NEAR)
    if nearest and nearest[0] not in known:
        return f"; `katagami models pull {nearest[0]}` fetches another"
    return f"; the nearest is {nearest[0]}" if nearest else ""


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    try:
        config = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON, perhaps for a download that broke off: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"{path} holds no JSON object")
    return config


def _load_own(name: str, folder: Path, config: Mapping[str, Any]) -> LoadedModel:
    """A model of the shipped kind."""
    loader = _LOADERS.get(str(config.get("architecture")))
    if loader is None:
        kind = config.get("architecture") or config.get("model_type")
        known = ", ".join((*_LOADERS, *MODEL_TYPES))
        raise ValueError(f"{folder}: config.json names no architecture known here: {kind!r} is none of {known}")
    model, tokenizer = loader(folder, config), Tokenizer.from_file(folder / "tokenizer.json")
    return LoadedModel(name, model, tokenizer, config, created=_changed(folder / CONFIG_FILE))


def _load_hf(name: str, folder: Path, config: Mapping[str, Any], home: Path, cache_bytes: int) -> LoadedModel:
    model = _llama(name, HfCheckpoint(folder), home, cache_bytes)
    bos_token, eos_token = read_named_tokens(folder)
    return LoadedModel(
        name=name,
        model=model,
        tokenizer=Tokenizer.from_file(folder / "tokenizer.json"),
        config=config,
        chat_template=read_chat_template(folder),
        bos_token=bos_token,
        eos_token=eos_token,
        created=_changed(folder / CONFIG_FILE),
    )


def _load_gguf(name: str, path: Path, home: Path, cache_bytes: int) -> LoadedModel:
    checkpoint = GgufCheckpoint(path)
    metadata = checkpoint.header.metadata
    pieces = metadata.get("tokenizer.ggml.tokens", ())
    tokenizer = gguf_tokenizer(checkpoint.header, path)
    ids = {kind: metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("bos", "eos")}
    named = {kind: "" if token_id is None else pieces[token_id] for kind, token_id in ids.items()}
    return LoadedModel(
        name=name,
        model=_llama(name, checkpoint, home, cache_bytes),
        tokenizer=tokenizer,
        config={key: value for key, value in metadata.items() if not isinstance(value, list)},
        chat_template=metadata.get("tokenizer.chat_template"),
        bos_token=named["bos"],
        eos_token=named["eos"],
        created=_changed(path),
    )


def _llama(name: str, checkpoint: Checkpoint, home: Path, cache_bytes: int) -> LlamaModel:
    weights = prepared_weights(checkpoint, prepared_folder(home), name)
    return LlamaModel(checkpoint.config, weights, cache_bytes)


def _changed(path: Path) -> int:
    return int(path.stat().st_mtime)
