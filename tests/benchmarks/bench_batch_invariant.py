"""What bits that do not depend on the batch cost: forward passes with and without fixed tiles.

    python tests/benchmarks/bench_batch_invariant.py [--repeat 200]

For both shipped models and several batch sizes: the median time of a decode step's forward pass (one new token a row),
as it is and batch-invariant, in milliseconds, and their ratio; interleaved, so that both see the same machine. Matrix
products run on one thread, as the server's do, unless OPENBLAS_NUM_THREADS says otherwise.
"""

from __future__ import annotations

import argparse
import os
import platform
from time import perf_counter

import numpy as np

from engine import load_model
from engine.models import Batch, Model

ROWS = (1, 4, 8, 16, 32, 64, 256, 500)


def forward_s(model: Model, batch: Batch) -> float:
    """Seconds of one pass."""
    started_s = perf_counter()
    model.forward(batch)
    return perf_counter() - started_s


def measure(plain: Model, invariant: Model, rows: int, repeat: int) -> tuple[float, float]:
    """Median milliseconds of a pass over so many rows, plain and batch-invariant."""
    token_ids = np.random.default_rng(0).integers(0, plain.vocabulary_size, rows).astype(np.int32)
    batch = Batch(token_ids, np.arange(rows + 1, dtype=np.int32), np.arange(rows, dtype=np.int32))
    for model in (plain, invariant):
        forward_s(model, batch)
    pairs = [(forward_s(plain, batch), forward_s(invariant, batch)) for _ in range(repeat)]
    first, second = np.median(np.array(pairs), axis=0) * 1e3
    return float(first), float(second)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=200)
    repeat = parser.parse_args().repeat
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "default")
    print(f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}, BLAS threads: {threads}")
    for name in ("katagami-char", "katagami-bpe"):
        plain, invariant = load_model(name).model, load_model(name).model
        plain.allocate(max(ROWS))
        started_s = perf_counter()
        invariant.allocate(max(ROWS), batch_invariant=True)
        print(
            f"{name}: {plain.vocabulary_size} tokens; finding the tile took {1e3 * (perf_counter() - started_s):.1f} ms"
        )
        for rows in ROWS:
            first, second = measure(plain, invariant, rows, repeat)
            print(f"{rows:4} rows   plain {first:7.3f} ms   invariant {second:7.3f} ms   {second / first:5.2f} times")


if __name__ == "__main__":
    main()
