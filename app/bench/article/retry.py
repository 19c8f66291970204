"""Validate and draw again: how many attempts a record takes.

In: the pool of free draws, five for each record asked for. Out: the attempts of each record when the draws are taken in
order until one is valid, beside the geometric distribution that the share p of valid draws predicts: mean 1/p. The
texts that pass are the model's own distribution, narrowed to the schema; `distribution` compares the mask with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from app.bench.article.published import alone, beside, published
from app.bench.article.report import Bars, Cell, Column, Experiment, Finding, Grid, Series
from app.bench.article.subject import CHAR, MODELS, Judge, Subject, share
from engine.training.corpus import RECORD_SCHEMA

CLOSE_TO = 0.15  # by how much of itself the mean may miss 1/p: three standard errors at 100 records


def run_retry(subject: Subject) -> Experiment:
    """Attempts of both models at T = 1.0."""
    judge = Judge(RECORD_SCHEMA)
    verdicts = {model: [judge.valid(text) for text in subject.free_draws(model).texts] for model in MODELS}
    counts = {model: attempts(verdicts[model]) for model in MODELS}
    p, taken = share(verdicts[CHAR]), counts[CHAR]
    mean = sum(taken) / len(taken) if taken else 0.0
    return Experiment(
        name="retry",
        title="Validate and draw again",
        about=f"{len(verdicts[CHAR]):,} free draws at T = 1.0, taken in order until one is valid.",
        figures=(
            beside("retry.acceptance", p),
            beside("retry.mean_attempts", mean),
            alone("retry.predicted", "1/p, which the mean should be", "number", 1 / p if p else 0.0),
            beside("retry.longest", max(taken, default=0)),
        ),
        grids=(_table(verdicts, counts),),
        plots=(_plot(taken, p),),
        findings=(
            Finding(
                "The mean of the attempts is 1/p",
                f"{published('retry.mean_attempts')} with p = {published('retry.acceptance'):.1%}",
                f"{mean:.3f} with p = {p:.1%}, so 1/p = {1 / p if p else 0.0:.3f}",
                bool(p) and abs(mean * p - 1) < CLOSE_TO,
                "So few draws are too few for a mean.",
            ),
        ),
        notes=(
            'The server does the same on request: `structured_options.method: "retry"` draws free text until one '
            "passes, up to `max_attempts`, and tells attempts and acceptance rate.",
        ),
    )


def attempts(verdicts: Iterable[bool]) -> list[int]:
    """How many draws each valid one took, itself included; draws after the last valid one belong to no record."""
    taken, since = [], 0
    for is_valid in verdicts:
        since += 1
        if is_valid:
            taken.append(since)
            since = 0
    return taken


def _table(verdicts: dict[str, list[bool]], counts: dict[str, list[int]]) -> Grid:
    histograms = {model: Counter(taken) for model, taken in counts.items()}
    longest = max((max(taken, default=0) for taken in counts.values()), default=0)
    rows: list[tuple[Cell, ...]] = []
    for number in range(1, longest + 1):
        cells: list[Cell] = [number]
        for model, taken in counts.items():
            p = share(verdicts[model])
            cells += [histograms[model][number], len(taken) * p * (1 - p) ** (number - 1)]
        rows.append(tuple(cells))
    columns = [Column("attempts", "count")]
    for model in counts:
        columns += [Column(f"{model}: records", "count"), Column("geometric", "number")]
    return Grid("Attempts until a valid record", tuple(columns), tuple(rows))


def _plot(taken: list[int], p: float) -> Bars:
    numbers = range(1, max(taken, default=0) + 1)
    histogram = Counter(taken)
    found = tuple(histogram[number] / len(taken) for number in numbers)
    predicted = tuple(p * (1 - p) ** (number - 1) for number in numbers)
    series = (Series("drawn", found), Series("geometric", predicted))
    return Bars("retry-attempts", f"Attempts until a valid record, {CHAR}", tuple(map(str, numbers)), series)
