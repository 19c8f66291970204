"""Token limits on the article's record: what comes out with `close` and with `truncate`, and what `close` costs.

    python tests/benchmarks/bench_budget.py [--model katagami-char] [--records 300]

The first table gives, for each limit, the share of records that are valid by an independent validator, the share that
was closed early, and tokens. The second gives microseconds of the engine's own work per token, the forward pass left
out, without a limit in sight (the same texts in both modes) and with one that all records meet.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import jsonschema_rs
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from engine import LoadedModel, OnLimit, Request, load_model
from engine.request import Choice
from engine.sequence import Job, choice_of, sequences_of
from engine.step import Decoder
from schemas_cache import CompiledSchema, Lookup, compile_source, schema_source
from schemas_cache.limits import Limits

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "article.json").read_text("utf-8"))
LIMITS = (80, 100, 120)
FAR, NEAR = 400, 70
MODES: tuple[OnLimit, ...] = ("close", "truncate")
RUNS = 5
LAZY = Limits(max_dense_entries=0)


@dataclass(frozen=True)
class Run:
    """What came out, and seconds of the engine's own work."""

    choices: list[Choice]
    own_s: float

    @property
    def tokens(self) -> int:
        """Tokens of all records."""
        return sum(len(choice.token_ids) for choice in self.choices)


def decode(model: LoadedModel, compiled: CompiledSchema, request: Request) -> Run:
    """All records at the same time."""
    job = Job(request, Future(), seed=0, submitted_s=0.0, lookup=Lookup(compiled, "memory", 0.0))
    rows = list(sequences_of(job, model.model.context_length))
    decoder = Decoder(model.model, model.tokenizer.vocabulary, model.tokenizer.encode_bytes, len(rows))
    decoder.scheduler.add(rows)
    while not decoder.scheduler.idle:
        decoder.step()
    counters = decoder.counters
    return Run([choice_of(row) for row in rows], counters.mask_s + counters.sample_s + counters.advance_s)


def is_valid(choice: Choice) -> bool:
    """By a validator that shares nothing with the masks."""
    try:
        return jsonschema_rs.is_valid(SCHEMA, json.loads(choice.text))
    except json.JSONDecodeError:
        return False


def outcomes(model: LoadedModel, compiled: CompiledSchema, records: int) -> Table:
    """Valid share by limit and mode."""
    table = Table("max_tokens", "on_limit", "valid", "closed early", "tokens, mean", title=f"{records} records")
    for limit in LIMITS:
        for mode in MODES:
            run = decode(model, compiled, Request(((),), limit, records, source=compiled.source, on_limit=mode))
            closed = mean(choice.closed_early for choice in run.choices)
            valid = mean(map(is_valid, run.choices))
            table.add_row(str(limit), mode, f"{valid:.1%}", f"{closed:.1%}", f"{run.tokens / records:.1f}")
    return table


def costs(model: LoadedModel, records: int) -> Table:
    """Microseconds per token by mode, far from the limit and near it, with and without the dense table."""
    table = Table("tables", "max_tokens", *MODES, title="us per token, without the forward pass: first run, median")
    source, vocabulary = schema_source(SCHEMA), model.tokenizer.vocabulary
    for name, limits in (("dense", Limits()), ("lazy", LAZY)):
        for limit in (FAR, NEAR):
            cells = []
            for mode in MODES:
                compiled = compile_source(source, vocabulary, limits=limits)
                request = Request(((),), limit, records, source=source, on_limit=mode)
                runs = [decode(model, compiled, request) for _ in range(RUNS)]
                times = [run.own_s / run.tokens * 1e6 for run in runs]
                cells.append(f"{times[0]:.1f}, {median(times):.1f}")
            table.add_row(name, str(limit), *cells)
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="katagami-char")
    parser.add_argument("--records", type=int, default=300)
    options = parser.parse_args()
    model = load_model(options.model)
    compiled = compile_source(schema_source(SCHEMA), model.tokenizer.vocabulary)
    print(f"{options.model}: {len(model.tokenizer.vocabulary)} tokens, minimum_tokens {compiled.minimum_tokens}")
    console = Console()
    console.print(outcomes(model, compiled, options.records))
    console.print(costs(model, options.records))


if __name__ == "__main__":
    main()
