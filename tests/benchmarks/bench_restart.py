"""A restart with known schemas: the first request of each, in process and over HTTP.

In: schemas of `../shared/suites/maskbench_dev.jsonl.gz`. Out: a table of times from a schema's text to its first mask,
read from disk by a new process, for SmolLM2's 49,152 tokens; and of the first request of each schema to a server that
was restarted, with what it says of its cache. Known means: compiled, and walked through by two documents.

    python tests/benchmarks/bench_restart.py [--schemas 200] [--requests 200]

What is timed in process: parsing the schema, its hash, reading the tables, building what a mask needs, and the mask.
Over HTTP: `compile_ms` of the answer, and the whole request for one token, beside the same request once more.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from rich.console import Console
from rich.table import Column, Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from schemas_cache import SchemaCache, SchemaError, SchemaOptions, Vocabulary, schema_source
from schemas_cache.matcher import Matcher
from schemas_cache.token_index import token_index
from tests.end_to_end.conftest import running_server
from tests.suites.maskbench import read_cases
from tests.suites.smollm2 import smollm2

OPTIONS = SchemaOptions(additional_properties="open")
CHILD = "--child"


def learn(folder: Path, schemas: int) -> list[str]:
    """Fill a cache; returns the texts of schemas that can be compiled."""
    tokenizer, cache, texts = smollm2(), SchemaCache(folder), list[str]()
    for case in read_cases():
        if len(texts) == schemas:
            break
        try:
            compiled = cache.get(schema_source(case.schema, OPTIONS), tokenizer.vocabulary).compiled
        except SchemaError:
            continue
        texts.append(json.dumps(case.schema))
        for document in case.documents[:2]:
            walk(compiled.matcher(), tokenizer.encode(document.text))
    cache.close()
    return texts


def walk(matcher: Matcher, token_ids: list[int]) -> None:
    """Ask for every mask on the way, as far as the tokens are allowed."""
    for token_id in token_ids:
        matcher.mask()
        if not matcher.allows(token_id):
            break
        matcher.advance(token_id)


def first_masks(folder: Path, texts: list[str]) -> dict[str, Any]:
    """Milliseconds from text to mask, and the tiers, in this process."""
    vocabulary: Vocabulary = smollm2().vocabulary
    token_index(vocabulary)
    cache, times_ms, tiers = SchemaCache(folder), list[float](), Counter[str]()
    cache.get(schema_source({"const": "first"}, OPTIONS), vocabulary)  # opens the folder
    for text in texts:
        begun_s = time.perf_counter()
        lookup = cache.get(schema_source(json.loads(text), OPTIONS), vocabulary)
        lookup.compiled.matcher().mask()
        times_ms.append(1000 * (time.perf_counter() - begun_s))
        tiers[lookup.tier] += 1
    cache.close()
    return {"times_ms": times_ms, "tiers": tiers}


def ask_all(home: Path, schemas: Iterable[Any], wanted: int) -> dict[str, Any]:
    """First requests to a new server: whole milliseconds, `compile_ms` and tiers; and the same once more.

    Schemas that it refuses (its vocabulary is small) are left out, until there are as many as wanted.
    """
    first, again, compile_ms, tiers = list[float](), list[float](), list[float](), Counter[str]()
    answered = list[Any]()
    with running_server(home) as server, httpx.Client(base_url=server.url, timeout=120) as client:
        for schema in schemas:
            answer, taken_ms = ask(client, schema)
            if len(answered) == wanted:
                break
            if answer.status_code == 200:
                answered.append(schema)
                used = answer.json()["structured"]
                first.append(taken_ms)
                compile_ms.append(used["compile_ms"])
                tiers[used["cache"]] += 1
                again.append(ask(client, schema)[1])
    return {"first": first, "again": again, "compile_ms": compile_ms, "tiers": tiers, "answered": answered}


def ask(client: httpx.Client, schema: Any) -> tuple[httpx.Response, float]:
    """One request for one token."""
    wanted = {"type": "json_schema", "json_schema": {"name": "bench", "schema": schema, "strict": True}}
    body = {"model": "katagami-bpe", "prompt": "", "max_tokens": 1, "response_format": wanted, "seed": 1}
    body["structured_options"] = {"on_limit": "truncate", "additional_properties": "open"}
    begun_s = time.perf_counter()
    answer = client.post("/v1/completions", json=body)
    return answer, 1000 * (time.perf_counter() - begun_s)


def add(table: Table, name: str, times_ms: list[float], tiers: Counter[str] | None = None) -> None:
    """A row with p50, p95, p99 and the maximum."""
    figures = (*np.percentile(times_ms, (50, 95, 99)), max(times_ms))
    said = ", ".join(f"{count} {tier}" for tier, count in (tiers or {}).items())
    table.add_row(name, str(len(times_ms)), *(f"{figure:.2f}" for figure in figures), said)


def main() -> None:
    """Command line; see the module."""
    parser = argparse.ArgumentParser(description="The first request of each known schema after a restart.")
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument(CHILD, nargs=2)
    options = parser.parse_args()
    if options.child:
        folder, texts = map(Path, options.child)
        print(json.dumps(first_masks(folder, json.loads(texts.read_text()))))
        return
    numbers = (Column(name, justify="right") for name in ("schemas", "p50 ms", "p95 ms", "p99 ms", "max ms"))
    table = Table(
        "after a restart", *numbers, "tables from", title=f"{platform.machine()}, Python {platform.python_version()}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder, texts = Path(name) / "cache", Path(name) / "texts.json"
        known = learn(folder, options.schemas)
        texts.write_text(json.dumps(known))
        command = [sys.executable, __file__, CHILD, str(folder), str(texts)]
        told = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        add(table, "text to first mask, in process", told["times_ms"], told["tiers"])
        home, wanted = Path(name) / "home", options.requests
        answered = ask_all(home, (case.schema for case in read_cases()), wanted)["answered"]
        told = ask_all(home, answered, wanted)
        add(table, "compile_ms over HTTP", told["compile_ms"], told["tiers"])
        add(table, "whole first request", told["first"])
        add(table, "whole second request", told["again"])
    Console().print(table)


if __name__ == "__main__":
    main()
