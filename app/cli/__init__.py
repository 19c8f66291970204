"""The command line: one file a command. Errors are one clear line each and exit code 2, never a traceback."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from pydantic import ValidationError

from app import blas_threads  # noqa: F401  # has to come before anything that imports numpy
from app.cli import bench_command, cache_command, compile_command, generate, models_command, serve, train
from app.cli.source import finding_line
from app.settings import PREFIX
from app.version import VERSION
from app.words import reason_of
from schemas_cache import KatagamiError, SchemaError

HELP = """Structured output from small models: a JSON Schema in, text that satisfies it out.

Start with `katagami serve`, or without a server:

    katagami generate --schema schema.json --count 5
"""

cli = typer.Typer(help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"katagami {VERSION}")
        raise typer.Exit


@cli.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of no command."""


cli.command("serve")(serve.serve)
cli.command("compile")(compile_command.compile_)
cli.command("generate")(generate.generate)
cli.command("train")(train.train)
cli.add_typer(cache_command.cache, name="cache")
cli.add_typer(models_command.models, name="models")
cli.add_typer(bench_command.bench, name="bench")


def main() -> None:
    """Run the command that the arguments name; the entry point of `katagami`."""
    try:
        cli()
    except (KatagamiError, OSError, ValueError) as error:
        sys.stderr.writelines(f"katagami: {line}\n" for line in _lines(error))
        sys.exit(2)


def _lines(error: Exception) -> list[str]:
    """One line for each thing that is wrong."""
    return list(map(finding_line, error.findings)) if isinstance(error, SchemaError) else [_one_line(error)]


def _one_line(error: Exception) -> str:
    if isinstance(error, ValidationError):  # of the settings
        fault = error.errors()[0]
        name = "_".join(str(part) for part in fault["loc"])
        return f"{PREFIX}{name.upper()}: {reason_of(fault)}"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
