"""`katagami generate`: a schema in, records out, one a line, without a server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from app.cli.source import (
    AdditionalProperties,
    AdditionalPropertiesOption,
    KeyOrder,
    KeyOrderOption,
    StrictOption,
    Whitespace,
    WhitespaceOption,
    read_source,
    tell_warnings,
)
from app.proof import judge
from app.protocol.tokens import text_ids
from app.settings import Settings
from engine import Choice, Engine, EngineConfig, Request, Sampling, compiling_cache

BATCH = 64  # records asked for at once
SEED_STRIDE = 1_000_000  # so that the batches of two seeds share none


@dataclass(slots=True)
class Tally:
    """What the records cost, and how many the judge found valid."""

    records: int = 0
    valid: int = 0
    not_judged: int = 0  # of the complete ones
    complete: int = 0
    model_calls: int = 0
    tokens: int = 0
    forced_tokens: int = 0
    elapsed_s: float = 0.0

    @property
    def incomplete(self) -> int:
        """How many were cut."""
        return self.records - self.complete

    def add(self, choice: Choice, valid: bool | None) -> None:
        """Count one record; None: it is complete and the judge cannot say."""
        self.records += 1
        self.valid += bool(valid)
        self.not_judged += valid is None
        self.complete += choice.complete
        self.model_calls += choice.model_calls
        self.tokens += len(choice.token_ids)
        self.forced_tokens += choice.forced_tokens


def generate(
    schema: Annotated[str | None, typer.Option(help="File with a JSON Schema; - for standard input.")] = None,
    regex: Annotated[str | None, typer.Option(help="A regular expression instead of a schema.")] = None,
    model: Annotated[str, typer.Option(help="A model's name, a folder or a .gguf.")] = "katagami-char",
    prompt: Annotated[str, typer.Option(help="Text to go on from.")] = "",
    count: Annotated[int, typer.Option("--count", "--n", min=1, help="How many records.")] = 1,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="0 takes the likeliest token.")] = 1.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Budget of one record.")] = 512,
    seed: Annotated[int | None, typer.Option(min=0, help="The same seed gives the same records.")] = None,
    jump_forward: Annotated[bool, typer.Option(help="Take forced text without asking the model.")] = True,
    whitespace: WhitespaceOption = Whitespace.spaced,
    additional_properties: AdditionalPropertiesOption = AdditionalProperties.closed,
    key_order: KeyOrderOption = KeyOrder.declared,
    strict: StrictOption = True,
    stats: Annotated[bool, typer.Option(help="Say on standard error how many are valid, and what they cost.")] = False,
) -> None:
    """Write records that satisfy a schema, one a line.

    The exit code is 0 where all records are complete, 1 where the budget cut some (standard error says how many), and 2
    for an error.

    For example:

        katagami generate --schema article.json --count 1000 --seed 1 --stats > records.jsonl

        echo '{"enum": ["yes", "no"]}' | katagami generate --schema - --count 5
    """
    source = read_source(schema, regex, whitespace, additional_properties, key_order, strict=strict)
    sampling = Sampling(temperature=temperature, seed=seed)
    with _running(model) as engine:
        loaded = next(iter(engine.models.values()))
        request = Request(
            prompts=(text_ids(prompt, loaded),),
            max_tokens=max_tokens,
            sampling=sampling,
            source=source,
            jump_forward=jump_forward,
            heal_prompt=True,
        )
        tally = _write_records(engine, request, count, show_bar=stats)
    if stats:
        Console(stderr=True).print(_table(tally))
    if tally.incomplete:
        cut = f"{tally.incomplete} of {tally.records} records are incomplete"
        typer.echo(f"katagami: {cut}: --max-tokens {max_tokens}, or the model's context, ended them", err=True)
        raise typer.Exit(1)


@contextmanager
def _running(model: str) -> Iterator[Engine]:
    settings = Settings()
    config = EngineConfig(
        model=model,
        home=settings.home,
        kv_cache_bytes=settings.kv_cache_bytes,
        cache_folder=settings.cache_folder,
    )
    engine = Engine(config, cache=compiling_cache(config))  # here: a process would take longer to start
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def _write_records(engine: Engine, request: Request, count: int, *, show_bar: bool) -> Tally:
    """Print the records as the batches come in; returns what they cost."""
    is_valid = judge(request.source) if request.source else lambda _: None
    tally = Tally()
    started_s = time.perf_counter()
    sizes = [min(BATCH, count - first) for first in range(0, count, BATCH)]
    bar = track(sizes, "records", console=Console(stderr=True), disable=not show_bar)
    for number, size in enumerate(bar):
        result = engine.generate_blocking(_name(engine), _batch(request, number, size))
        if number == 0 and result.schema:
            tell_warnings(result.schema.warnings)
        for choice in result.choices:
            typer.echo(choice.text)
            tally.add(choice, is_valid(choice.text) if choice.complete else False)
    tally.elapsed_s = time.perf_counter() - started_s
    return tally


def _name(engine: Engine) -> str:
    return next(iter(engine.models))


def _batch(request: Request, number: int, size: int) -> Request:
    """The request for one batch; each has a seed of its own, made from the one that was given."""
    seed = request.sampling.seed
    sampling = replace(request.sampling, seed=None if seed is None else seed * SEED_STRIDE + number)
    return replace(request, n=size, sampling=sampling)


def _table(tally: Tally) -> Table:
    table = Table("figure", "value", title="records")
    table.add_row("records", str(tally.records))
    table.add_row("valid, says jsonschema-rs", f"{tally.valid} of {tally.records}")
    table.add_row("not to be judged", str(tally.not_judged))
    table.add_row("complete", str(tally.complete))
    table.add_row("model calls per record", f"{tally.model_calls / tally.records:.1f}")
    table.add_row("tokens per record", f"{tally.tokens / tally.records:.1f}")
    table.add_row("forced tokens per record", f"{tally.forced_tokens / tally.records:.1f}")
    table.add_row("ms per record", f"{1000 * tally.elapsed_s / tally.records:.2f}")
    return table
