"""`katagami train`: a seed in, the two shipped models out."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from engine.models.registry import embedded_folder
from engine.training import train_embedded


class Kind(StrEnum):
    """Which vocabulary."""

    char = "char"
    bpe = "bpe"


def train(
    output: Annotated[
        Path | None, typer.Option(help="Folder for the models.", show_default="where the shipped ones are")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of corpus, first weights and batches.")] = 1,
    model: Annotated[list[Kind] | None, typer.Option(help="Which to train.", show_default="both")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of training, instead of each model's own.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on from a checkpoint of the same settings.")] = True,
) -> None:
    """Train the two small models that ship with the project, each within minutes on a laptop.

    Example, without touching the shipped ones:

        katagami train --output ./models --model char

        katagami serve --model ./models/katagami-char
    """
    kinds = tuple(kind.value for kind in model or list(Kind))
    written = train_embedded(output or embedded_folder(), seed, kinds, resume=resume, steps=steps)
    console = Console()
    for name, described in written.items():
        table = Table("figure", "value", title=name)
        for figure, value in described.items():
            table.add_row(figure, str(value))
        console.print(table)
