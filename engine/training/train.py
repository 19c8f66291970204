"""Examples in, trained weights out; deterministic, and the same when interrupted and resumed.

In: examples and settings. Out: `Run`, whose weights are trained. Cost: about 10 ms per step of 512 examples on a core.
Set OPENBLAS_NUM_THREADS=1: a second thread saves a third of the time on an idle machine, but on a busy one the threads
wait for each other and a step takes up to ten times as long; and sums then do not depend on the number of cores. Step
n draws its batch from (seed, n) alone, so there is no generator to keep. Rejected: epochs over a shuffled corpus, whose
order would have to be kept.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.training.adam import Adam
from engine.training.checkpoint import Run, load_checkpoint, save_checkpoint
from engine.training.gradients import fill_gradients
from engine.training.weights import initial_weights, named_views
from engine.training.windows import Examples

WARM_UP_STEPS = 200
LAST_RATE_SHARE = 0.02  # of the peak
LOSS_MEMORY = 0.99  # of the running mean of batch losses, per step

OnStep = Callable[[int, float], None]


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """How to train one model."""

    seed: int
    steps: int
    batch_size: int = 512  # examples
    peak_learning_rate: float = 2e-3
    checkpoint_every: int = 250  # steps


def train(
    examples: Examples,
    vocabulary_size: int,
    config: TrainingConfig,
    *,
    checkpoint: Path | None = None,
    on_step: OnStep | None = None,
) -> Run:
    """Train a window model; goes on from `checkpoint` where that file is of this same run.

    Parameters
    ----------
    examples : Examples
        What to predict.
    vocabulary_size : int
        V; every token id in `examples` is below it.
    config : TrainingConfig
        Settings; equal settings and examples give equal weights, interrupted or not.
    checkpoint : path, optional
        Where to keep the run, every `checkpoint_every` steps.
    on_step : callable, optional
        Called after each step with the number of steps done and the recent loss, in nats per token.

    Returns
    -------
    Run
        Weights after the last step, Adam's state, seconds spent.
    """
    identity = json.dumps([asdict(config), vocabulary_size, zlib.crc32(examples.token_ids.tobytes())])
    run = (load_checkpoint(checkpoint, identity) if checkpoint else None) or _first_run(vocabulary_size, config.seed)
    gradient = np.empty_like(run.weights)
    while run.adam.steps < config.steps:
        _step(run, gradient, examples, vocabulary_size, config)
        if checkpoint and run.adam.steps % config.checkpoint_every == 0:
            save_checkpoint(checkpoint, run, identity)
        if on_step:
            on_step(run.adam.steps, run.recent_loss)
    return run


def learning_rate(step: int, config: TrainingConfig) -> float:
    """Rate of step 0, 1, …: up in a line, then down along half a cosine to 2 % of the peak."""
    warm_up = min(1.0, (step + 1) / WARM_UP_STEPS)
    fall = 0.5 * (1 + np.cos(np.pi * step / config.steps))
    return float(config.peak_learning_rate * warm_up * (LAST_RATE_SHARE + (1 - LAST_RATE_SHARE) * fall))


def _first_run(vocabulary_size: int, seed: int) -> Run:
    weights = initial_weights(vocabulary_size, seed)
    return Run(weights, Adam.for_size(len(weights)))


def _step(
    run: Run, gradient: NDArray[np.float32], examples: Examples, vocabulary_size: int, config: TrainingConfig
) -> None:
    """One batch; changes `run` and overwrites `gradient`, float32 (P,)."""
    started = time.perf_counter()
    step = run.adam.steps
    chosen = np.random.default_rng([config.seed, step]).integers(0, len(examples), config.batch_size)
    weights, gradients = named_views(run.weights, vocabulary_size), named_views(gradient, vocabulary_size)
    loss = fill_gradients(weights, *examples.at(chosen), gradients)
    run.adam.apply(run.weights, gradient, learning_rate(step, config))
    run.recent_loss = loss if step == 0 else LOSS_MEMORY * run.recent_loss + (1 - LOSS_MEMORY) * loss
    run.seconds += time.perf_counter() - started
