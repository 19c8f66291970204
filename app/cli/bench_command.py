"""`katagami bench`: experiments and measurements of this installation."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.bench.article.page import write_page
from app.bench.article.run import run_article
from app.bench.article.tables import tables

LEAST_RECORDS = 20  # below it shares say nothing

bench = typer.Typer(help="Experiments and measurements of this installation.", no_args_is_help=True)


@bench.callback()
def _bench() -> None:
    """A group of commands, however many there are."""


@bench.command("article")
def article(
    records: Annotated[int, typer.Option(min=LEAST_RECORDS, help="Records of each method.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of all draws.")] = 1,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all numbers, unrounded, to this file.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write a page with plots: its plots go into a folder beside it.")
    ] = None,
) -> None:
    """Repeat the experiments of the article on the shipped models, beside the article's own figures.

    For example:

        katagami bench article --records 100

        katagami bench article --json figures.json --page docs/article.md
    """
    progress = Console(stderr=True)
    report = run_article(records, seed, lambda name: progress.print(f"{name} ..."))
    if json_file is not None:
        json_file.write_text(json.dumps(dataclasses.asdict(report), ensure_ascii=False, indent=1) + "\n", "utf-8")
    if page is not None:
        write_page(report, page)
    console = Console()
    for table in tables(report):
        console.print(table)
