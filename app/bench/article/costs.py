"""What the mask costs beside the forward pass: real decode steps of the character model with 500 rows.

In: a model and a number of rows. Out: processor seconds of each part of a step, and of the mask alone: bits looked up
for the matchers of the same rows, and applied to logits, between the steps. All rows are of one schema and none takes
forced text, so that the batch stays full; steps that are not full are left out, and so is the first half, which only
warms up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from app.bench.article.published import alone, beside, published
from app.bench.article.report import Column, Experiment, Finding, Grid
from app.bench.article.subject import CHAR, RECORD, ROWS, Subject
from engine import LoadedModel, Request, load_model
from engine.sampling import WORD_BITS, apply_mask
from engine.sequence import Job, Sequence, sequences_of
from engine.step import Decoder
from schemas_cache import Lookup, Source, compile_source, fill_masks

PARTS = ("forward_s", "mask_s", "sample_s", "advance_s")
STEPS = 200
MOST_TOKENS = 400
CHEAP = 0.15  # of the forward pass
BETWEEN = "all between forward pass and draw, beside the former"


def run_costs(subject: Subject) -> Experiment:
    """Parts of a step at 500 rows, or at as many as there are records."""
    rows = min(ROWS, subject.records)
    seconds = step_seconds(load_model(CHAR), RECORD, rows, STEPS)
    forward_ms, between_ms, sample_ms, advance_ms, mask_ms = (1000 * np.median(seconds, axis=0)).tolist()
    names = ("forward pass", "between it and the draw", "of that, the mask: looked up and applied", "draw", "advance")
    medians = (forward_ms, between_ms, mask_ms, sample_ms, advance_ms)
    return Experiment(
        name="costs",
        title="The mask beside the forward pass",
        about=f"Medians over {len(seconds)} steps with {rows} rows of {CHAR}.",
        figures=(
            beside("masking.mask_ms", mask_ms),
            beside("masking.forward_ms", forward_ms),
            beside("masking.mask_share", mask_ms / forward_ms),
            alone("costs.between_share", BETWEEN, "share", between_ms / forward_ms),
            alone("costs.rows", "rows of the batch", "count", rows),
        ),
        grids=(Grid("A step", (Column("part"), Column("median", "ms")), tuple(zip(names, medians, strict=True))),),
        findings=(_finding(mask_ms / forward_ms),),
        notes=(
            "The article times the look-up of the mask alone. Ours is the look-up of packed rows and their application "
            "to the logits, everything that an unconstrained step would not do. Between forward pass and draw a step "
            "also counts for `/metrics` where the mask kept the model from its best token.",
        ),
    )


def _finding(mask_share: float) -> Finding:
    return Finding(
        "The mask costs little beside the model",
        f"{published('masking.mask_share'):.0%} of the forward pass",
        f"{mask_share:.1%}",
        mask_share < CHEAP,
        "With few rows the constant part of a step outweighs the model, which is very small.",
    )


def step_seconds(model: LoadedModel, source: Source, rows: int, steps: int) -> NDArray[np.float64]:
    """Seconds of each part of a step, then of the mask alone, float64 (steps or fewer, 5); all `rows` slots taken."""
    decoder = Decoder(model.model, model.tokenizer.vocabulary, model.tokenizer.encode_bytes, rows, time.process_time)
    decoder.scheduler.add(_records(model, source, rows * (2 + steps // 50)))
    taken: list[list[float]] = []
    warm_up = steps // 2
    while len(taken) < warm_up + steps and decoder.scheduler.waiting:
        before = asdict(decoder.counters)
        decoder.step()
        after = asdict(decoder.counters)
        if after["rows"] - before["rows"] == rows:
            parts = [after[part] - before[part] for part in PARTS]
            taken.append([*parts, _mask_s(decoder.scheduler.running, model.model.vocabulary_size)])
    return np.array(taken[min(warm_up, len(taken) // 2) :])


def _mask_s(running: list[Sequence], tokens: int) -> float:
    """Seconds to look up the masks of these rows, and to apply them to logits."""
    words = -(-tokens // WORD_BITS)
    logits, scores = np.ones((2, len(running), WORD_BITS * words), np.float32)
    masks = np.zeros((len(running), words), np.uint32)
    started_s = time.process_time()
    fill_masks([row.matcher for row in running], masks)
    apply_mask(logits, masks, scores)
    return time.process_time() - started_s


def _records(model: LoadedModel, source: Source, count: int) -> Iterator[Sequence]:
    """That many records, in requests of 100."""
    compiled = compile_source(source, model.tokenizer.vocabulary)
    for seed in range(-(-count // 100)):
        request = Request(((),), max_tokens=MOST_TOKENS, n=100, source=source, jump_forward=False)
        job = Job(request, Future(), seed, submitted_s=0.0, lookup=Lookup(compiled, "memory", 0.0))
        job.sequences = list(sequences_of(job, model.model.context_length))
        yield from job.sequences
