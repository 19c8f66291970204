"""All experiments in order: a number of records and a seed in, a `Report` out.

Cost: with 1,000 records some minutes on two cores. Experiments that are timed run while nothing else of this process
does.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from contextlib import closing

import numpy as np

from app.bench.article.automata import run_automata
from app.bench.article.borders import run_borders
from app.bench.article.costs import run_costs
from app.bench.article.distribution import run_distribution
from app.bench.article.methods import run_methods
from app.bench.article.report import Experiment, Report
from app.bench.article.retry import run_retry
from app.bench.article.setup import run_setup
from app.bench.article.subject import Subject
from app.bench.article.tokens import run_tokens
from app.bench.article.truncation import run_truncation

EXPERIMENTS: tuple[Callable[[Subject], Experiment], ...] = (
    run_setup,
    run_methods,
    run_retry,
    run_automata,
    run_costs,
    run_truncation,
    run_distribution,
    run_borders,
    run_tokens,
)


def run_article(records: int, seed: int, on_experiment: Callable[[str], None] = lambda _: None) -> Report:
    """Run everything.

    Parameters
    ----------
    records : int
        Of each method.
    seed : int
        Of all draws.
    on_experiment : callable
        Told the name of each experiment before it begins.
    """
    started_s = time.perf_counter()
    done = []
    with closing(Subject(records, seed)) as subject:
        for run in EXPERIMENTS:
            on_experiment(run.__module__.rpartition(".")[2])
            done.append(run(subject))
    return Report(records, seed, machine(), time.perf_counter() - started_s, tuple(done))


def machine() -> str:
    """What the times were taken on."""
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "all")
    return f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}, {threads} BLAS thread(s)"
