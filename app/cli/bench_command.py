"""`katagami bench`: experiments and measurements of this installation."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.bench.article.page import write_page
from app.bench.article.run import run_article
from app.bench.article.tables import tables
from app.bench.serve.run import Plan, measure
from app.bench.serve.server import own_server
from app.bench.serve.tables import tables as serve_tables
from app.bench.serve.tasks import heading_schema
from app.cli.source import UsageError, Whitespace, read_schema

LEAST_RECORDS = 20  # below it shares say nothing

JsonFile = Annotated[Path | None, typer.Option("--json", help="Write all numbers, unrounded, to this file.")]

bench = typer.Typer(help="Experiments and measurements of this installation.", no_args_is_help=True)


@bench.callback()
def _bench() -> None:
    """A group of commands, however many there are."""


@bench.command("article")
def article(
    records: Annotated[int, typer.Option(min=LEAST_RECORDS, help="Records of each method.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of all draws.")] = 1,
    json_file: JsonFile = None,
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


@bench.command("serve")
def serve(
    url: Annotated[
        str | None, typer.Option(help="A Katagami server that runs already; without it one is started.")
    ] = None,
    rival_url: Annotated[
        list[str] | None, typer.Option(help="Another server with OpenAI's API; may be given several times.")
    ] = None,
    clients: Annotated[str, typer.Option(help="Numbers of clients, with commas between them.")] = "1,8,32",
    records: Annotated[int, typer.Option(min=1, help="Records of each server and number of clients.")] = 64,
    schema: Annotated[
        str | None, typer.Option(help="File with a JSON Schema.", show_default="the article's, in English")
    ] = None,
    model: Annotated[str, typer.Option(help="The model of the server that is started.")] = "smollm2-135m-instruct",
    whitespace: Annotated[Whitespace, typer.Option(help="How our documents are written.")] = Whitespace.spaced,
    shared_prefix: Annotated[
        bool, typer.Option("--shared-prefix", help="Let all prompts begin with the same instruction.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of all prompts.")] = 1,
    json_file: JsonFile = None,
) -> None:
    """Ask for the same records from our server and from others, in turns, over HTTP.

    For example:

        katagami bench serve --clients 1,8 --records 16

        katagami bench serve --rival-url http://127.0.0.1:8080 --json figures.json
    """
    progress, counts = Console(stderr=True), _numbers(clients)
    asked = heading_schema() if schema is None else read_schema(schema)
    with ExitStack() as stack:
        ours = url or stack.enter_context(own_server(model))
        plan = Plan(ours, tuple(rival_url or ()), asked, whitespace.value, counts, records, seed, shared_prefix)
        report = asyncio.run(measure(plan, progress.print))
    if json_file is not None:
        json_file.write_text(json.dumps(dataclasses.asdict(report), ensure_ascii=False, indent=1) + "\n", "utf-8")
    console = Console()
    for table in serve_tables(report):
        console.print(table)


def _numbers(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between them; raises `UsageError`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"--clients: must be whole numbers from 1 on with commas between them, not {text!r}")
    return tuple(map(int, parts))
