"""What a command is asked to enforce, and over which tokens: options in, a `Source` and a `Vocabulary` out."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from app.json_text import JsonTextError, read_json
from app.words import found
from engine import load_model
from schemas_cache import Finding, SchemaOptions, Source, Vocabulary, regex_source, schema_source


class Whitespace(StrEnum):
    """How documents are written."""

    spaced = "spaced"
    compact = "compact"
    flexible = "flexible"
    pretty = "pretty"


class AdditionalProperties(StrEnum):
    """What an absent `additionalProperties` means."""

    closed = "closed"
    open = "open"


class KeyOrder(StrEnum):
    """In which order an object's keys come."""

    declared = "declared"
    any = "any"


WhitespaceOption = Annotated[Whitespace, typer.Option(help="How documents are written.")]
AdditionalPropertiesOption = Annotated[
    AdditionalProperties, typer.Option(help="What an absent additionalProperties means.")
]
KeyOrderOption = Annotated[KeyOrder, typer.Option(help="In which order keys come.")]
StrictOption = Annotated[bool, typer.Option(help="Refuse what cannot be enforced exactly, instead of a warning.")]


class UsageError(ValueError):
    """Arguments that do not fit together."""


def read_source(
    schema: str | None,
    regex: str | None,
    whitespace: Whitespace,
    additional_properties: AdditionalProperties,
    key_order: KeyOrder,
    *,
    strict: bool,
) -> Source:
    """The schema of a file (`-`: standard input), or the pattern; raises `UsageError`."""
    if (schema is None) == (regex is None):
        raise UsageError("give a schema file (or - for standard input), or --regex PATTERN, and not both")
    if regex is not None:
        return regex_source(regex)
    options = SchemaOptions(strict, whitespace.value, additional_properties.value, key_order.value)
    return schema_source(read_schema(schema or "-"), options)


def read_schema(path: str) -> dict[str, Any] | bool:
    """A JSON Schema from a file, `-` being standard input."""
    data, name = (sys.stdin.buffer.read(), "standard input") if path == "-" else (Path(path).read_bytes(), path)
    try:
        value = read_json(data, name)
    except JsonTextError as error:
        reason = str(error)
        raise UsageError(reason if name in reason else f"{name}: {reason}") from None
    if not isinstance(value, dict | bool):
        raise UsageError(f"{name} is not a JSON Schema: it must hold an object or a boolean, not {found(value)}")
    return value


def read_vocabulary(name: str) -> Vocabulary:
    """The vocabulary of a model, of a GGUF file, or of a tokenizer.json."""
    if name.endswith(".gguf"):
        return Vocabulary.from_gguf(Path(name))
    if name.endswith(".json"):
        return Vocabulary.from_tokenizer_json(Path(name))
    return load_model(name).tokenizer.vocabulary


def finding_line(finding: Finding) -> str:
    """A finding on one line, its place first."""
    return " ".join(str(finding).removeprefix("at ").split())


def tell_warnings(warnings: Iterable[Finding]) -> None:
    """Say on standard error what is not enforced."""
    for warning in warnings:
        typer.echo(f"katagami: warning: {finding_line(warning)}", err=True)
