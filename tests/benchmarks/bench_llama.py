"""SmolLM2's forward pass in numpy: start, prefill, decode steps, what the fast paths save, and memory.

    python tests/benchmarks/bench_llama.py [--model smollm2-135m-instruct] [--rounds 5]

The model is one that `katagami models pull` fetched, or a path. Prints for each figure the median of wall-clock time
and of processor time in milliseconds: on a busy machine the second is the one to compare. Beside decode steps and
prefill stands the floor: the matrix products alone, with nothing between them. `make bench` runs them on one thread, as
the server does; alone, set OPENBLAS_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import psutil

from engine.models import Batch
from engine.models.llama.decoder import LlamaModel
from engine.models.registry import ModelNotFoundError, load_model

ROWS = (1, 2, 4, 8, 16, 32)
PROMPT_TOKENS = 105
LONG_TOKENS = 1024
FORCED_TOKENS = 8
FEW_IDS = (10, 100, 1000)


def measure(action: Callable[[], object], rounds: int, before: Callable[[], object] = lambda: None) -> str:
    """Median wall-clock and processor time of an action."""
    taken = []
    for _ in range(rounds + 1):
        before()
        wall, cpu = time.perf_counter(), time.process_time()
        action()
        taken.append((time.perf_counter() - wall, time.process_time() - cpu))
    walls, cpus = zip(*taken[1:], strict=True)
    return f"{1e3 * median(walls):9.1f} ms wall {1e3 * median(cpus):9.1f} ms cpu"


def batch(rows: int, tokens: int, size: int, first: int = 0) -> Batch:
    """Random tokens for that many slots."""
    token_ids = np.random.default_rng(tokens).integers(0, size, rows * tokens).astype(np.int32)
    offsets = np.arange(0, rows * tokens + 1, tokens, dtype=np.int32)
    return Batch(token_ids, offsets, np.arange(first, first + rows, dtype=np.int32))


def floor(model: LlamaModel, rows: int, with_output: bool = True) -> None:
    """The matrix products of so many packed rows."""
    weights = model._weights
    hidden = np.ones((rows, weights.embedding.shape[1]), np.float32)
    inner = np.ones((rows, weights.down.shape[1]), np.float32)
    heads = np.ones((rows, weights.attention_output.shape[1]), np.float32)
    for layer in range(len(weights.qkv)):
        hidden @ weights.qkv[layer]
        heads @ weights.attention_output[layer]
        hidden @ weights.gate_up[layer]
        inner @ weights.down[layer]
    if with_output:
        hidden @ weights.output


def hold(model: LlamaModel, rows: int, tokens: int) -> None:
    """Fill slots as if so many tokens had been fed, without computing them."""
    model.allocate(rows)
    for slot in range(rows):
        model.cache.reserve(slot, tokens + 1)
        model.cache.extend(slot, np.zeros(tokens, np.int32))
        model.cache[slot].data[:, :, :tokens] = 0.01


def bench_prefill(model: LlamaModel, rounds: int) -> None:
    """Prompts of three lengths, alone; the last position's logits only."""
    for tokens in (PROMPT_TOKENS, 256, LONG_TOKENS):
        model.allocate(1)
        prompt = batch(1, tokens, model.vocabulary_size)
        print(
            f"prefill {tokens:5} tokens      ",
            measure(lambda p=prompt: model.forward(p), rounds, lambda: model.reset(0)),
        )
    print("  floor   256 tokens      ", measure(lambda: floor(model, 256, with_output=False), rounds))


def bench_decode(model: LlamaModel, rounds: int) -> None:
    """One token for each of some rows."""
    for rows in ROWS:
        hold(model, rows, PROMPT_TOKENS)
        step = batch(rows, 1, model.vocabulary_size)
        print(f"decode  {rows:2} rows x {PROMPT_TOKENS} tokens ", measure(lambda s=step: model.forward(s), 4 * rounds))
        print("  without logits          ", measure(lambda s=step: model.hidden(s), 4 * rounds))
        print("  floor                   ", measure(lambda r=rows: floor(model, r), 4 * rounds))


def bench_fast_paths(model: LlamaModel, rounds: int) -> None:
    """What forced chunks, few allowed tokens and common prefixes cost."""
    for rows in (1, 8):
        hold(model, rows, PROMPT_TOKENS)
        chunk = batch(rows, FORCED_TOKENS, model.vocabulary_size)
        print(f"chunk of {FORCED_TOKENS} for {rows} rows      ", measure(lambda c=chunk: model.hidden(c), rounds))
    hidden = np.ones((8, model._weights.embedding.shape[1]), np.float32)
    for count in FEW_IDS:
        ids, offsets = np.arange(8 * count, dtype=np.int32), np.arange(0, 8 * count + 1, count, dtype=np.int32)
        print(
            f"logits of {count:4} ids, 8 rows  ",
            measure(lambda i=ids, o=offsets: model.logits_of(hidden, i, o), rounds),
        )
    print("logits of all, 8 rows     ", measure(lambda: model.logits(hidden), rounds))
    hold(model, 2, LONG_TOKENS)
    print(f"copy of {LONG_TOKENS} tokens       ", measure(lambda: model.cache.copy_prefix(0, 1, LONG_TOKENS), rounds))


def bench_memory(model: LlamaModel) -> None:
    """32 rows of 1,024 tokens, every page of the cache touched, one decode step taken."""
    hold(model, 32, LONG_TOKENS - 1)
    model.forward(batch(32, 1, model.vocabulary_size))
    resident, cache = psutil.Process().memory_info().rss, model.cache.used_bytes
    print(f"32 rows x {LONG_TOKENS} tokens: {resident / 1e9:.2f} GB resident, {cache / 1e9:.2f} of it KV cache")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(
        f"{platform.machine()}, {psutil.cpu_count()} cores, numpy {np.__version__}, load {psutil.getloadavg()[0]:.1f}"
    )
    started = time.perf_counter()
    try:
        model = load_model(options.model).model
    except ModelNotFoundError as error:
        print(f"skipped: {error}")
        return
    print(f"loaded in {time.perf_counter() - started:.2f} s")
    if not isinstance(model, LlamaModel):
        sys.exit(f"{options.model} is no Llama-type model")
    bench_memory(model)
    bench_prefill(model, options.rounds)
    bench_decode(model, options.rounds)
    bench_fast_paths(model, options.rounds)


if __name__ == "__main__":
    main()
