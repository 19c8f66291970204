"""`katagami cache`: what is in the cache of compiled schemas, how much it takes, out with it, and schemas put in."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from app.cli.source import (
    AdditionalProperties,
    AdditionalPropertiesOption,
    KeyOrder,
    KeyOrderOption,
    StrictOption,
    UsageError,
    Whitespace,
    WhitespaceOption,
    finding_line,
    read_source,
    read_vocabulary,
)
from app.settings import Settings
from engine.models.registry import EMBEDDED_MODELS
from schemas_cache import SchemaCache, SchemaError, SchemaOptions, Source, StoredSchema, Vocabulary
from schemas_cache.warming import warm as learn_ahead

SHOWN_DIGITS = 12  # of a hash: enough to name one schema among millions

cache = typer.Typer(
    no_args_is_help=True,
    help="""See, fill and empty the cache of compiled schemas.

    Example:

        katagami cache warm article.json --model katagami-bpe

        katagami cache list
    """,
)

Home = Annotated[Path | None, typer.Option(help="The server's home folder.", show_default="~/.cache/katagami")]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


@cache.command("list")
def list_(home: Home = None, as_json: Json = False) -> None:
    """List the schemas in the cache, newest first.

    Example:

        katagami cache list --json
    """
    with_cache = _open(home)
    entries = with_cache.entries()
    with_cache.close()
    names = _names(entries)
    if as_json:
        _print_json([asdict(entry) | {"models": names[entry.vocabulary]} for entry in entries])
        return
    table = Table(
        "schema", "options", "for", *(Column(name, justify="right") for name in ("kB", "states", "rows")), "used"
    )
    for entry in entries:
        figures = (f"{entry.size_bytes / 1000:.0f}", str(entry.states), str(entry.rows))
        models = ", ".join(names[entry.vocabulary]) or f"vocabulary {entry.vocabulary[:SHOWN_DIGITS]}"
        table.add_row(
            entry.schema_hash[:SHOWN_DIGITS], _unusual(entry.options), models, *figures, _moment(entry.last_used_s)
        )
    Console().print(table)


@cache.command()
def stats(home: Home = None, as_json: Json = False) -> None:
    """Say how much is in the cache and what it takes.

    Example:

        katagami cache stats
    """
    settings, with_cache = Settings(), _open(home)
    entries, sizes = with_cache.entries(), with_cache.sizes()
    with_cache.close()
    figures: dict[str, str | int] = {
        "folder": str(_folder(home)),
        "schemas": len({entry.schema_hash for entry in entries}),
        "entries": len(entries),
        "vocabularies": len({entry.vocabulary for entry in entries}),
        "tables_bytes": sizes.tables_bytes,
        "rows_bytes": sizes.rows_bytes,
        "limit_bytes": settings.cache_size_limit_bytes,
    }
    if as_json:
        _print_json(figures)
        return
    table = Table("figure", Column("value", overflow="fold", justify="right"))
    for name, value in figures.items():
        table.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else value)
    Console().print(table)


@cache.command()
def clear(
    schema: Annotated[str | None, typer.Argument(help="Hash of one schema, or how it begins; without: all.")] = None,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Remove one schema from the cache, for all models and options, or everything.

    A server that runs keeps what it has in memory, and may store it again.

    Example:

        katagami cache clear 3f2a90c1d5e7
    """
    with_cache = _open(home)
    try:
        removed = with_cache.clear() if schema is None else with_cache.delete(_whole_hash(with_cache.entries(), schema))
    finally:
        with_cache.close()
    if as_json:
        _print_json({"removed": removed})
    else:
        typer.echo(f"removed {removed} {'entry' if removed == 1 else 'entries'}")


@cache.command()
def warm(
    schemas: Annotated[list[str], typer.Argument(help="Files with JSON Schemas; - for standard input.")],
    model: Annotated[
        list[str] | None,
        typer.Option(help="Model, as for serve; may be given several times.", show_default="those that are served"),
    ] = None,
    whitespace: WhitespaceOption = Whitespace.spaced,
    additional_properties: AdditionalPropertiesOption = AdditionalProperties.closed,
    key_order: KeyOrderOption = KeyOrder.declared,
    strict: StrictOption = True,
    home: Home = None,
    as_json: Json = False,
) -> None:
    """Compile schemas for models and learn what decoding will ask for, so that no request has to wait for it.

    Requests find what is stored here if their options are the same. Exits with 2 where a schema was refused.

    Example:

        katagami cache warm schemas/*.json --model katagami-char --model katagami-bpe
    """
    with_cache = _open(home)
    vocabularies = {name: read_vocabulary(name) for name in model or Settings().model}
    reports = []
    for path in schemas:
        source = read_source(path, None, whitespace, additional_properties, key_order, strict=strict)
        reports += [_warm(with_cache, path, name, source, vocabularies[name]) for name in vocabularies]
    with_cache.close()
    _show_reports(reports, as_json=as_json)
    if any("error" in report for report in reports):
        raise typer.Exit(2)


def _warm(with_cache: SchemaCache, path: str, model: str, source: Source, vocabulary: Vocabulary) -> dict[str, Any]:
    """Compile one schema for one model, and say what came of it."""
    started_s = time.perf_counter()
    report: dict[str, Any] = {"file": path, "model": model}
    try:
        lookup = with_cache.get(source, vocabulary)
    except SchemaError as error:
        return report | {"error": [finding_line(finding) for finding in error.findings]}
    learn_ahead(lookup.compiled)
    compiled, taken_ms = lookup.compiled, 1000 * (time.perf_counter() - started_s)
    figures = {"schema_hash": compiled.schema_hash, "was": lookup.tier, "states": compiled.states}
    return report | figures | {"rows": compiled.rows, "ms": round(taken_ms, 1)}


def _show_reports(reports: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        _print_json(reports)
        return
    table = Table(
        "file", "model", "schema", "was", *(Column(name, justify="right") for name in ("states", "rows", "ms"))
    )
    for report in reports:
        for line in report.get("error", ()):
            sys.stderr.write(f"katagami: {report['file']}: {line}\n")
        if "error" not in report:
            digits = report["schema_hash"][:SHOWN_DIGITS]
            figures = (str(report[name]) for name in ("was", "states", "rows", "ms"))
            table.add_row(report["file"], report["model"], digits, *figures)
    if table.row_count:
        Console().print(table)


def _folder(home: Path | None) -> Path:
    return (Settings() if home is None else Settings(home=home)).cache_folder


def _open(home: Path | None) -> SchemaCache:
    return SchemaCache(_folder(home), size_limit_bytes=Settings().cache_size_limit_bytes)


def _names(entries: Iterable[StoredSchema]) -> dict[str, list[str]]:
    """Which shipped models have the vocabularies of these entries."""
    names: dict[str, list[str]] = {entry.vocabulary: [] for entry in entries}
    for name in EMBEDDED_MODELS if names else ():
        names.setdefault(read_vocabulary(name).fingerprint, []).append(name)
    return names


def _whole_hash(entries: Iterable[StoredSchema], begin: str) -> str:
    """The one hash that begins so; raises `UsageError`."""
    found = {entry.schema_hash for entry in entries if begin and entry.schema_hash.startswith(begin.lower())}
    if len(found) != 1:
        raise UsageError(f"{len(found) or 'no'} schemas in the cache have a hash that begins with {begin!r}")
    return found.pop()


def _unusual(options: str) -> str:
    """The options that are not what a request has unless it says so."""
    usual = SchemaOptions()
    words = (usual.whitespace, usual.additional_properties, usual.key_order, "strict")
    return " ".join(word for word in options.split() if word not in words)


def _moment(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))
