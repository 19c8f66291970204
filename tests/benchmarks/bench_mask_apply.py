"""What the mask costs beside the forward pass: real decode steps of a shipped model, all slots taken.

    python tests/benchmarks/bench_mask_apply.py [--model katagami-char] [--rows 500] [--steps 200]

The schema has a pattern, which the one of `katagami bench article` has not; the steps are measured in the same way.

Prints the median, 90th and 99th percentile of each part of a step in milliseconds: `mask` is all between forward pass
and draw, `alone` the mask itself (fetching the rows of all matchers and applying them to the logits), whose share in
the forward pass comes last. Times are the processor's; `make bench` sets OPENBLAS_NUM_THREADS to 1, which is what the
server runs with.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

from app.bench.article.costs import PARTS, step_seconds
from engine import load_model
from schemas_cache import schema_source

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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="katagami-char")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    model = load_model(options.model)
    seconds = step_seconds(model, schema_source(SCHEMA), options.rows, options.steps)
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "default")
    print(f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}, BLAS threads: {threads}")
    print(f"{options.model}: {options.rows} rows x {len(model.tokenizer.vocabulary)} tokens, {len(seconds)} steps")
    for part, column in zip((*PARTS, "alone_s"), seconds.T, strict=True):
        median, p90, p99 = np.percentile(column, [50, 90, 99]) * 1e3
        print(f"{part.removesuffix('_s'):8} median {median:7.3f} ms   90th {p90:7.3f}   99th {p99:7.3f}")
    share = np.median(seconds[:, -1]) / np.median(seconds[:, 0])
    print(f"mask fetch and apply / forward: {share:.1%} of the medians")


if __name__ == "__main__":
    main()
