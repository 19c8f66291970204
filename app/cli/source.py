"""What a command is asked to enforce: options in, a `Source` out."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

from schemas_cache import SchemaOptions, Source, regex_source, schema_source


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


class UsageError(ValueError):
    """Arguments that do not fit together."""


def read_source(
    schema: str | None, regex: str | None, whitespace: Whitespace, additional_properties: AdditionalProperties
) -> Source:
    """The schema of a file (`-`: standard input), or the pattern; raises `UsageError`."""
    if (schema is None) == (regex is None):
        raise UsageError("give a schema file (or - for standard input), or --regex PATTERN, and not both")
    if regex is not None:
        return regex_source(regex)
    options = SchemaOptions(whitespace=whitespace.value, additional_properties=additional_properties.value)
    return schema_source(read_schema(schema or "-"), options)


def read_schema(path: str) -> dict[str, Any] | bool:
    """A JSON Schema from a file, `-` being standard input."""
    text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict | bool):
        raise UsageError(f"{path} is not a JSON Schema: it must hold an object or a boolean")
    return value
