"""A report on the terminal: tables of rich, one after another."""

from __future__ import annotations

from collections.abc import Iterator

from rich.markup import escape
from rich.table import Column, Table

from app.bench.article.report import Experiment, Figure, Finding, Grid, Report, shown


def tables(report: Report) -> Iterator[Table]:
    """Everything with numbers in it: what was found first, then each experiment."""
    yield findings_table(report.findings)
    for experiment in report.experiments:
        yield _figures_table(experiment)
        yield from map(_grid_table, experiment.grids)


def findings_table(findings: tuple[Finding, ...]) -> Table:
    """What the article found, and whether it was found again."""
    table = Table("the article found", "there", "here", "again", title="Findings")
    for finding in findings:
        table.add_row(finding.statement, finding.article, finding.ours, "yes" if finding.holds else "no")
    return table


def _figures_table(experiment: Experiment) -> Table:
    table = Table("figure", "article", "here", "where in the article", title=experiment.title)
    for figure in experiment.figures:
        table.add_row(figure.label, article_shown(figure), shown(figure.ours, figure.unit), figure.where)
    return table


def article_shown(figure: Figure) -> str:
    """The article's number, empty where it has none."""
    return shown(figure.article, figure.unit)


def _grid_table(grid: Grid) -> Table:
    table = Table(*(Column(column.name, overflow="fold") for column in grid.columns), title=grid.title)
    for row in grid.rows:
        cells = (shown(cell, column.unit) for cell, column in zip(row, grid.columns, strict=True))
        table.add_row(*map(escape, cells))
    return table
