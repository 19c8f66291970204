"""What the mask costs beside the forward pass: real decode steps of a shipped model, all slots taken.

    python tests/benchmarks/bench_mask_apply.py [--model katagami-char] [--rows 500] [--steps 200]

Prints the median, 90th and 99th percentile of each part of a step in milliseconds, and the share of the mask (fetching
the rows of all matchers and applying them to the logits) in the forward pass. Matrix products run on one thread, as the
server's do, unless OPENBLAS_NUM_THREADS says otherwise.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import asdict

import numpy as np

from engine import LoadedModel, Request, load_model
from engine.sequence import Job, Sequence, sequences_of
from engine.step import Decoder
from schemas_cache import Lookup, compile_source, schema_source

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0, "maximum": 9999},
        "title": {"type": "string", "minLength": 4, "maxLength": 32},
        "level": {"enum": ["初級", "中級", "上級"]},
        "tags": {
            "type": "array",
            "items": {"type": "string", "pattern": "^[a-z]{2,12}$"},
            "minItems": 1,
            "maxItems": 3,
        },
        "draft": {"type": "boolean"},
    },
    "required": ["id", "title", "level", "tags", "draft"],
}
PARTS = ("forward_s", "mask_s", "sample_s", "advance_s")


def records(model: LoadedModel, count: int) -> Iterator[Sequence]:
    """That many records of the schema, in requests of 100."""
    source = schema_source(SCHEMA)
    compiled = compile_source(source, model.tokenizer.vocabulary)
    for seed in range(-(-count // 100)):
        request = Request(((),), max_tokens=400, n=100, source=source, jump_forward=False)
        job = Job(request, Future(), seed, submitted_s=0.0, lookup=Lookup(compiled, "memory", 0.0))
        job.sequences = list(sequences_of(job, model.model.context_length))
        yield from job.sequences


def measure(model: LoadedModel, rows: int, steps: int) -> np.ndarray:
    """Seconds of each part, float64 (steps, 4), in steps with all slots taken; the first steps only warm up."""
    decoder = Decoder(model.model, model.tokenizer.vocabulary, model.tokenizer.encode_bytes, rows)
    decoder.scheduler.add(records(model, rows * (2 + steps // 50)))
    taken: list[list[float]] = []
    warm_up = steps // 2
    while len(taken) < warm_up + steps and decoder.scheduler.waiting:
        before = asdict(decoder.counters)
        decoder.step()
        after = asdict(decoder.counters)
        if after["rows"] - before["rows"] == rows:
            taken.append([after[part] - before[part] for part in PARTS])
    return np.array(taken[warm_up:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="katagami-char")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    model = load_model(options.model)
    seconds = measure(model, options.rows, options.steps)
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "default")
    print(f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}, BLAS threads: {threads}")
    print(f"{options.model}: {options.rows} rows x {len(model.tokenizer.vocabulary)} tokens, {len(seconds)} steps")
    for part, column in zip(PARTS, seconds.T, strict=True):
        median, p90, p99 = np.percentile(column, [50, 90, 99]) * 1e3
        print(f"{part.removesuffix('_s'):8} median {median:7.3f} ms   90th {p90:7.3f}   99th {p99:7.3f}")
    share = np.median(seconds[:, 1]) / np.median(seconds[:, 0])
    print(f"mask fetch and apply / forward: {share:.1%} of the medians")


if __name__ == "__main__":
    main()
