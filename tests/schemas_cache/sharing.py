"""One of several processes that use one cache folder at the same time, as servers do, and what they report.

In: the arguments of `share`. Out: `Report`. Each process asks for schemas in an order of its own, again and again,
walks through some tokens of each, and compares masks with tables that it compiled by itself. Its memory tier is small,
so it goes to the disk all the time. Every compile that the cache asks for is a line in a file that all append to.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from schemas_cache import CompiledSchema, SchemaError, SchemaOptions, Source, Vocabulary, compile_source, schema_source
from schemas_cache.limits import Limits
from schemas_cache.store import SchemaCache
from tests.schemas_cache.tables import ROOT, VOCABULARY

STEPS = 12  # tokens of one walk
SHARE_CHECKED = 0.1  # of the walks, whose masks are compared with fresh ones
READY = "ready"


@dataclass(frozen=True, slots=True)
class Report:
    """What all processes together did."""

    compiles: Counter[str]
    tiers: Counter[str]
    times_ms: list[float]
    checked: int
    complaints: str


def small_schemas(count: int) -> list[Any]:
    """Different schemas of some kinds."""
    return [
        {
            "type": "object",
            "properties": {f"key{n}": {"type": "integer"}, "tags": {"type": "array", "items": {"enum": ["a", n]}}},
            "required": [f"key{n}"],
        }
        for n in range(count)
    ]


def share(folder: Path, schemas: list[Any], seconds: float, processes: int, tokens: str = "small") -> Report:
    """Have processes use one folder for some time; raises where one of them failed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schemas.json").write_text(json.dumps(schemas))
    command = [sys.executable, "-m", "tests.schemas_cache.sharing", str(folder), str(seconds), tokens]
    children = [
        subprocess.Popen(
            [*command, str(seed)],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for seed in range(processes)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == READY
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    done = [child.communicate(timeout=seconds + 120) for child in children]
    complaints = "".join(complaint for _, complaint in done)
    if any(child.returncode for child in children):
        raise RuntimeError(complaints)
    told = [json.loads(said.splitlines()[-1]) for said, _ in done]
    log = folder / "compiles"
    compiles = Counter(log.read_text().splitlines() if log.exists() else [])
    tiers = sum((Counter(one["tiers"]) for one in told), Counter[str]())
    times_ms = [time_ms for one in told for time_ms in one["times_ms"]]
    return Report(compiles, tiers, times_ms, sum(one["checked"] for one in told), complaints)


def use(folder: Path, seconds: float, vocabulary: Vocabulary, seed: int) -> dict[str, Any]:
    """One process."""
    chance, options = random.Random(seed), SchemaOptions(additional_properties="open")
    sources = [schema_source(schema, options) for schema in json.loads((folder / "schemas.json").read_text())]

    def compile_counted(source: Source, vocabulary: Vocabulary, *, limits: Limits) -> CompiledSchema:
        compiled = compile_source(source, vocabulary, limits=limits)
        with (folder / "compiles").open("a") as log:
            log.write(source.schema_hash + "\n")
        return compiled

    cache = SchemaCache(
        folder / "cache", memory_entries=len(sources) // 4, write_delay_s=0.1, compile_function=compile_counted
    )
    end_s, tiers, times_ms, checked = time.monotonic() + seconds, Counter[str](), list[float](), 0
    while time.monotonic() < end_s:
        for source in chance.sample(sources, len(sources)):
            try:
                lookup = cache.get(source, vocabulary)
            except SchemaError:
                tiers["refused"] += 1
                continue
            tiers[lookup.tier] += 1
            times_ms.append(lookup.compile_ms)
            fresh = compile_source(source, vocabulary) if chance.random() < SHARE_CHECKED else None
            checked += fresh is not None
            walk(lookup.compiled, fresh, chance)
            if time.monotonic() >= end_s:
                break
    cache.close()
    return {"tiers": tiers, "times_ms": times_ms, "checked": checked}


def walk(compiled: CompiledSchema, fresh: CompiledSchema | None, chance: random.Random) -> None:
    """Take some random tokens, and compare each mask where there is something to compare with."""
    one, other = compiled.matcher(), fresh.matcher() if fresh else None
    for _ in range(STEPS):
        mask = one.mask()
        if other is not None and not np.array_equal(mask, other.mask()):
            raise AssertionError(f"a wrong mask at {one.pointer()}")
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        if not len(allowed):
            return
        token_id = int(chance.choice(allowed))
        one.advance(token_id)
        if other is not None:
            other.advance(token_id)


def main() -> None:
    """One process; see `share`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("tokens", choices=["small", "smollm2"])
    parser.add_argument("seed", type=int)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    vocabulary = VOCABULARY
    if options.tokens == "smollm2":
        from tests.suites.smollm2 import smollm2  # needs more than a test of the cache has to

        vocabulary = smollm2().vocabulary
    compile_source(schema_source({"const": 1}), vocabulary)  # so that all begin together
    print(READY, flush=True)
    sys.stdin.readline()
    print(json.dumps(use(options.folder, options.seconds, vocabulary, options.seed)))


if __name__ == "__main__":
    main()
