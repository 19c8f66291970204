"""The command line: one file a command. Errors are one clear line and exit code 2, never a traceback."""

from __future__ import annotations

import sys

import typer
from pydantic import ValidationError

from app import blas_threads  # noqa: F401  # has to come before anything that imports numpy
from app.cli import compile_command, generate, serve, train
from schemas_cache import KatagamiError

HELP = """Structured output from small models: a JSON Schema in, text that satisfies it out.

Start with `katagami serve`, or without a server:

    katagami generate --schema schema.json --count 5
"""

cli = typer.Typer(help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
cli.command("serve")(serve.serve)
cli.command("compile")(compile_command.compile_)
cli.command("generate")(generate.generate)
cli.command("train")(train.train)


def main() -> None:
    """Run the command that the arguments name; the entry point of `katagami`."""
    try:
        cli()
    except (KatagamiError, OSError, ValueError) as error:
        sys.stderr.write(f"katagami: {_one_line(error)}\n")
        sys.exit(2)


def _one_line(error: Exception) -> str:
    if isinstance(error, ValidationError):  # of the settings
        fault = error.errors()[0]
        name = "_".join(str(part) for part in fault["loc"])
        return f"KATAGAMI_{name.upper()}: {fault['msg']}"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
