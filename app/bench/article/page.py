"""A report as a page for docs/, with its plots in a folder beside it.

In: a `Report`. Out: Markdown that GitHub and others render, and SVG files in a folder of the page's name. The same
report gives the same bytes. Nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from app.bench.article.plots import svg
from app.bench.article.report import Experiment, Finding, Grid, Report, Sample, shown
from app.bench.article.tables import article_shown

INTRODUCTION = """\
This page is written by `katagami bench article`, which repeats the experiments of an article on constrained decoding
with the two models that ship with Katagami. Each number of ours was computed in that run; only the columns "article"
are given, with the section they stand in. The models and the corpus are ours, so equal numbers are not to be expected,
but equal orderings are: they come first.

A mask guarantees the form of an answer: that it is JSON, with these keys, types and choices. It does not guarantee the
values. The headings below satisfy their schema and are nonsense, since the models are tiny on purpose."""


def write_page(report: Report, path: Path) -> None:
    """Write the page and its plots; plots of an earlier run are replaced."""
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for experiment in report.experiments:
        for plot in experiment.plots:
            (folder / f"{plot.name}.svg").write_text(svg(plot), "utf-8")
    path.write_text(page(report, folder.name), "utf-8")


def page(report: Report, plots_folder: str) -> str:
    """The Markdown."""
    blocks = ["# The article's experiments, repeated", INTRODUCTION, _run(report), *_findings(report.findings)]
    for experiment in report.experiments:
        blocks += _experiment(experiment, plots_folder)
    return "\n\n".join(blocks) + "\n"


def _run(report: Report) -> str:
    return (
        f"Made by `katagami bench article --records {report.records} --seed {report.seed}` in "
        f"{report.elapsed_s / 60:.1f} minutes on {report.machine}. Shares and sizes come out the same again. Times are "
        "those of the processor, which a busy machine changes by up to a third; the article's are those of the clock."
    )


def _findings(findings: tuple[Finding, ...]) -> Iterator[str]:
    yield "## What the article found, and what was found again"
    rows = [(it.statement, it.article, it.ours, "yes" if it.holds else "no") for it in findings]
    yield _table(("finding", "article", "here", "again"), rows)
    for finding in findings:
        if not finding.holds:
            yield f"*{finding.statement}* did not come out again: {finding.otherwise}"


def _experiment(experiment: Experiment, plots_folder: str) -> Iterator[str]:
    yield f"## {experiment.title}"
    yield experiment.about
    rows = [(it.label, article_shown(it), shown(it.ours, it.unit), it.where) for it in experiment.figures]
    yield _table(("figure", "article", "here", "section of the article"), rows)
    for plot in experiment.plots:
        yield f"![{plot.title}]({plots_folder}/{plot.name}.svg)"
    for grid in experiment.grids:
        yield f"**{grid.title}**"
        yield _grid(grid)
    yield from map(_sample, experiment.samples)
    if experiment.notes:
        yield "Where ours is of another kind:\n\n" + "\n".join(f"- {note}" for note in experiment.notes)


def _grid(grid: Grid) -> str:
    rows = [[shown(cell, column.unit) for cell, column in zip(row, grid.columns, strict=True)] for row in grid.rows]
    return _table([column.name for column in grid.columns], rows)


def _sample(sample: Sample) -> str:
    lines = "\n".join(sample.lines)
    return f"{sample.title}:\n\n```text\n{lines}\n```"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    body = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(map(_cell, row)) + " |" for row in body)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
