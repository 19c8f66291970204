"""Records under a token limit that is too small: cut as the article cuts them, and led to their end in time.

In: limits of 80, 100 and 120 tokens, which are characters for the character model. Out: the share of valid records,
once with `on_limit: truncate` and once with `close`, the server's default, which the article has no counterpart of.
"""

from __future__ import annotations

from app.bench.article.published import alone, beside, published
from app.bench.article.report import Bars, Column, Experiment, Figure, Finding, Grid, Series
from app.bench.article.subject import CHAR, RECORD, Judge, Subject, share
from engine import OnLimit
from engine.training.corpus import RECORD_SCHEMA

LIMITS = (80, 100, 120)

Shares = tuple[float, ...]  # valid ones by limit


def run_truncation(subject: Subject) -> Experiment:
    """Valid records by limit and by what the limit does."""
    judge = Judge(RECORD_SCHEMA)

    def valid(limit: int, on_limit: OnLimit) -> float:
        request = subject.request(RECORD, max_tokens=limit, on_limit=on_limit, jump_forward=True)
        return share([judge.valid(text) for text in subject.draw(CHAR, request).texts])

    cut = tuple(valid(limit, "truncate") for limit in LIMITS)
    closed = tuple(valid(limit, "close") for limit in LIMITS)
    series = (Series("cut", cut), Series("closed in time", closed))
    return Experiment(
        name="truncation",
        title="A limit that is too small",
        about=f"{subject.records:,} records of {CHAR} at T = 1.0 under the schema mask, by their most characters.",
        figures=_figures(cut, closed),
        grids=(_grid(cut, closed),),
        plots=(Bars("truncation", "Valid records by limit", tuple(map(str, LIMITS)), series),),
        findings=_findings(cut, closed),
        notes=(
            "Our headings have other lengths than the article's, so the shares are others.",
            '`on_limit: "close"` is ours: near the limit the mask keeps a way to the end of the document, and the '
            "answer says `closed_early`. The form is whole then; the text is shorter than the model would have it.",
        ),
    )


def _figures(cut: Shares, closed: Shares) -> tuple[Figure, ...]:
    told = "led to their end within {} characters: valid"
    ours = zip(LIMITS, closed, strict=True)
    return (
        *(beside(f"json_mode.cut_{limit}", valid) for limit, valid in zip(LIMITS, cut, strict=True)),
        *(alone(f"truncation.closed_{limit}", told.format(limit), "share", valid) for limit, valid in ours),
    )


def _grid(cut: Shares, closed: Shares) -> Grid:
    names = ("article: cut", "cut", "closed")
    article = tuple(published(f"json_mode.cut_{limit}") for limit in LIMITS)
    columns = (Column("limit", "count"), *(Column(name, "share") for name in names))
    return Grid("Valid records", columns, tuple(zip(LIMITS, article, cut, closed, strict=True)))


def _findings(cut: Shares, closed: Shares) -> tuple[Finding, ...]:
    return (
        Finding(
            "A mask does not finish what a limit cuts",
            "2.1 %, 64.4 % and 100 % valid at 80, 100 and 120",
            ", ".join(f"{value:.1%}" for value in cut),
            cut[0] < cut[1] <= cut[2] and cut[0] < 0.5,
            "Records of this corpus have other lengths.",
        ),
        Finding(
            "Leading a record to its end in time does",
            "not done",
            ", ".join(f"{value:.1%}" for value in closed),
            min(closed) == 1,
            "The limit is below the shortest record.",
        ),
    )
