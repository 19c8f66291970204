"""The two models that ship with the project, from a seed to their folders.

In: a seed. Out: for each model a folder with model.safetensors (float16), tokenizer.json and config.json, which holds
the command, the settings, the losses and how often free output is valid, all measured on the rounded weights that are
shipped. Cost: under a minute per model on two cores.

The character model is small and briefly trained on purpose: without a mask about a third of what it writes is broken,
which is what masks are shown on.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.numpy import save

from engine.models.window_mlp import WindowMlp, describe
from engine.tokenizer import Tokenizer
from engine.training.checkpoint import Run
from engine.training.corpus import RECORD_SCHEMA, Corpus, build_corpus
from engine.training.evaluate import draw_texts, held_out_loss, share_valid
from engine.training.train import OnStep, TrainingConfig, train
from engine.training.vocabularies import END_ID, UNKNOWN_ID, bpe_tokenizer, character_tokenizer
from engine.training.weights import named_views
from engine.training.windows import Examples, build_examples

MERGES = 200
# So few that the character model is wrong as often as the article's; the other is then at its best held-out loss.
STEPS = {"char": 2400, "bpe": 3000}
ARTICLE_LOSS = 0.788  # nats per character, held out: the article's character model, on a corpus of its own
FREE_TEXTS, FREE_TEXTS_SEED = 1000, 0
TEMPERATURES = (1.0, 0.7)


def train_embedded(
    output_folder: Path,
    seed: int = 1,
    models: Sequence[str] = ("char", "bpe"),
    *,
    progress: bool = True,
    resume: bool = True,
    steps: int | None = None,
) -> dict[str, dict[str, Any]]:
    """Train the models that ship with the project and write one folder for each.

    Parameters
    ----------
    output_folder : path
        Gets `katagami-char` and `katagami-bpe`. While a model trains its folder holds `checkpoint.safetensors`.
    seed : int
        Of corpus, first weights and batches.
    models : sequence of "char" or "bpe"
        Which to train.
    progress : bool
        Show a bar on the terminal.
    resume : bool
        Go on from a checkpoint of the same settings, if there is one; otherwise begin anew.
    steps : int, optional
        Instead of `STEPS`, for each model.

    Returns
    -------
    dict
        Folder name -> what its config.json holds.

    Raises
    ------
    ValueError
        For a model that is neither "char" nor "bpe".
    """
    if unknown := set(models) - set(STEPS):
        raise ValueError(f"there is no model {sorted(unknown)} to train; choose from {', '.join(STEPS)}")
    corpus = build_corpus(seed)
    written = {}
    for kind in models:
        config = TrainingConfig(seed=seed, steps=STEPS[kind] if steps is None else steps)
        folder = output_folder / f"katagami-{kind}"
        written[folder.name] = _train_one(kind, folder, corpus, config, progress=progress, resume=resume)
    return written


def _train_one(
    kind: str, folder: Path, corpus: Corpus, config: TrainingConfig, *, progress: bool, resume: bool
) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "checkpoint.safetensors"
    if not resume:
        checkpoint.unlink(missing_ok=True)
    tokenizer = _build_tokenizer(kind, corpus)
    training_lines, held_out_lines = corpus.split()
    examples = _examples(tokenizer, training_lines)
    with _bar(folder.name, config.steps, hidden=not progress) as on_step:
        run = train(examples, len(tokenizer.vocabulary), config, checkpoint=checkpoint, on_step=on_step)
    described = _write(folder, tokenizer, run, config, held_out_lines)
    checkpoint.unlink(missing_ok=True)
    return described


def _build_tokenizer(kind: str, corpus: Corpus) -> Tokenizer:
    built = (
        character_tokenizer(corpus.lines) if kind == "char" else bpe_tokenizer(corpus.lines, corpus.split()[0], MERGES)
    )
    return Tokenizer.from_json(built.to_str(), (END_ID,))


def _examples(tokenizer: Tokenizer, lines: Sequence[str]) -> Examples:
    return build_examples([tokenizer.encode(line) for line in lines], END_ID)


@contextmanager
def _bar(name: str, steps: int, *, hidden: bool) -> Iterator[OnStep]:
    """A progress bar on the terminal; gives the function that moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, disable=hidden) as bar:
        task = bar.add_task(name, total=steps)

        def move(step: int, loss: float) -> None:
            bar.update(task, completed=step, description=f"{name}  {loss:.3f} nats/token")

        yield move


def _write(
    folder: Path, tokenizer: Tokenizer, run: Run, config: TrainingConfig, held_out_lines: Sequence[str]
) -> dict[str, Any]:
    """Write the three files of a model; returns what config.json holds."""
    rounded = {
        name: view.astype(np.float16) for name, view in named_views(run.weights, len(tokenizer.vocabulary)).items()
    }
    (folder / "model.safetensors").write_bytes(save(rounded))  # save_file would make it readable by its owner alone
    tokenizer.save(folder / "tokenizer.json")
    described = describe(len(tokenizer.vocabulary)) | {
        "eos_token_id": END_ID,
        "unk_token_id": UNKNOWN_ID,
        "training": _report(rounded, tokenizer, run, config, held_out_lines),
    }
    (folder / "config.json").write_text(json.dumps(described, ensure_ascii=False, indent=2) + "\n", "utf-8")
    return described


def _report(
    rounded: dict[str, NDArray[np.float16]],
    tokenizer: Tokenizer,
    run: Run,
    config: TrainingConfig,
    held_out_lines: Sequence[str],
) -> dict[str, Any]:
    """Settings and results, on the rounded weights."""
    held_out = _examples(tokenizer, held_out_lines)
    weights = {name: value.astype(np.float32) for name, value in rounded.items()}
    per_token = held_out_loss(weights, held_out)
    characters = sum(len(line) + 1 for line in held_out_lines)
    return {
        "command": f"katagami train --seed {config.seed}",
        **asdict(config),
        "seconds": round(run.seconds, 1),
        "training_loss_nats_per_token": round(run.recent_loss, 4),
        "held_out_loss_nats_per_token": round(per_token, 4),
        "held_out_loss_nats_per_character": round(per_token * len(held_out) / characters, 4),
        "article_held_out_loss_nats_per_character": ARTICLE_LOSS,
        "free_texts_valid_by_temperature": _free_texts_valid(weights, tokenizer),
        "openblas_threads": os.environ.get("OPENBLAS_NUM_THREADS", "all cores"),
        "libraries": {"numpy": np.__version__, "tokenizers": tokenizers.__version__},
    }


def _free_texts_valid(weights: dict[str, NDArray[np.float32]], tokenizer: Tokenizer) -> dict[str, float]:
    """Temperature -> share of texts written without a mask that are valid records."""
    model = WindowMlp(weights, END_ID)
    shares = {}
    for temperature in TEMPERATURES:
        texts = draw_texts(model, tokenizer.vocabulary, FREE_TEXTS, temperature, FREE_TEXTS_SEED)
        shares[str(temperature)] = share_valid(texts, RECORD_SCHEMA)
    return shares
