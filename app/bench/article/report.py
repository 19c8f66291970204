"""What an experiment hands on: figures beside the article's, tables, plots and findings, as plain values.

In: numbers from the experiments. Out: `Experiment` and `Report`, which the terminal, the JSON file and the page are
written from; nothing is rounded before it is shown. Cost: none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Unit = Literal["share", "ms", "s", "count", "number", "bytes", "times", "text"]
Cell = float | int | str | None


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of ours, and the article's where it has one."""

    key: str  # section and name in published.toml, or our own
    label: str
    unit: Unit
    ours: float
    article: float | None = None
    where: str = ""  # the section of the article


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    unit: Unit = "text"


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; cells are raw numbers, shown in the column's unit."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one colour in a plot."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Bars:
    """A bar chart: one group of bars for each label."""

    name: str  # of its file
    title: str
    labels: tuple[str, ...]
    series: tuple[Series, ...]
    unit: Unit = "share"


@dataclass(frozen=True, slots=True)
class Drawing:
    """A small automaton as a picture."""

    name: str
    title: str
    start: int
    accepting: tuple[int, ...]
    edges: tuple[tuple[int, int, str], ...]  # from, to, label


Plot = Bars | Drawing


@dataclass(frozen=True, slots=True)
class Finding:
    """What the article found in an experiment, and whether it was found again."""

    statement: str
    article: str
    ours: str
    holds: bool
    otherwise: str  # what to think of where it does not hold


@dataclass(frozen=True, slots=True)
class Sample:
    """Raw text that an experiment produced."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment's outcome; `notes` say where ours is of another kind than the article's, and why."""

    name: str
    title: str
    about: str
    figures: tuple[Figure, ...] = ()
    grids: tuple[Grid, ...] = ()
    plots: tuple[Plot, ...] = ()
    findings: tuple[Finding, ...] = ()
    samples: tuple[Sample, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """All experiments of one run."""

    records: int
    seed: int
    machine: str
    elapsed_s: float
    experiments: tuple[Experiment, ...] = field(default_factory=tuple)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Of all experiments, in their order."""
        return tuple(finding for experiment in self.experiments for finding in experiment.findings)

    def figure(self, key: str) -> float:
        """One number of ours by its key; raises `KeyError`."""
        for experiment in self.experiments:
            for figure in experiment.figures:
                if figure.key == key:
                    return figure.ours
        raise KeyError(key)


def shown(value: Cell, unit: Unit) -> str:
    """A cell as people read it; empty for None."""
    if value is None or isinstance(value, str):
        return value or ""
    match unit:
        case "share":
            return f"{100 * value:.1f} %" if value >= 0.01 or value == 0 else f"{100 * value:.2g} %"
        case "ms":
            return f"{value:.2f} ms"
        case "s":
            return f"{value:.3f} s"
        case "count":
            return f"{value:,.0f}"
        case "bytes":
            return f"{value:,.0f} B"
        case "times":
            return f"{value:.2f} ×"
        case _:
            return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"
