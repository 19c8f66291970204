"""What the mask bends: titles under a `maxLength` of 12, which the model seldom keeps by itself.

In: records by the mask, and the pool of free draws. Out: lengths of titles by mask and by rejection (the free draws
that satisfy the narrower schema: the model's own distribution, conditioned), the probability that the model gave to the
closing quote where the limit forced it (the log-probabilities that the server reports), and one prefix looked at in
full. Cost: a thousand records and a forward pass.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from app.bench.article.published import alone, beside, published
from app.bench.article.report import Bars, Column, Experiment, Figure, Finding, Grid, Sample, Series
from app.bench.article.subject import CHAR, HOT, Judge, Subject, parsed, titled
from engine import Choice, load_model
from engine.models import Batch
from schemas_cache import schema_source

LIMIT = 12  # characters of a title
TOP = 8  # continuations shown of the probe
EXAMPLES = 8
RARE = 0.01
OPENING = '"title": "'


def run_distribution(subject: Subject) -> Experiment:
    """Mask against rejection, and the quotes that the limit forced."""
    judge = Judge(titled(LIMIT))
    request = subject.request(schema_source(titled(LIMIT)), HOT, logprobs=0)
    masked = subject.draw(CHAR, request).choices
    rejected = [text for text in subject.free_draws(CHAR).texts if judge.valid(text)]
    titles = {"mask": _titles([choice.text for choice in masked if choice.complete]), "rejection": _titles(rejected)}
    shares = {name: _lengths(found) for name, found in titles.items()}
    quotes = [value for choice in masked for value in forced_quote(choice)]
    best, quote, rank, prefix = probe(subject)
    figures = (
        beside("distribution.mask_at_limit", shares["mask"].get(LIMIT, 0.0)),
        beside("distribution.rejection_at_limit", shares["rejection"].get(LIMIT, 0.0)),
        *_quote_figures(quotes),
        beside("distribution.probe_best", best[0][1]),
        beside("distribution.probe_quote", quote),
        beside("distribution.probe_rank", rank),
        alone("distribution.kept", "free draws that satisfy the narrower schema", "count", len(rejected)),
    )
    return Experiment(
        name="distribution",
        title="What the mask bends",
        about=f"Titles of at most {LIMIT} characters: {len(masked):,} records by the mask, and what rejection keeps of "
        f"{len(subject.free_draws(CHAR).choices):,} free draws of {CHAR} at T = 1.0.",
        figures=figures,
        grids=(_length_grid(shares), _probe_grid(best, quote, rank)),
        plots=(_plot(shares),),
        findings=_findings(shares, quotes),
        samples=(
            Sample(f"The prefix that was looked at: {LIMIT} characters of a heading held out of training", (prefix,)),
            *(Sample(f"Titles by {name}", tuple(found[:EXAMPLES])) for name, found in titles.items()),
        ),
        notes=(
            "The headings are ours. As many of them are short as in the article, but the short ones are shorter, so "
            "that rejection leaves fewer of exactly 12 characters.",
            "The server tells the same of each answer: `structured_options.diagnostics` reports the mass that the mask "
            "kept for each field and whether a limit ended it, `logprobs` the raw probability of every token.",
        ),
    )


def forced_quote(choice: Choice) -> list[float]:
    """Probability of the title's closing quote where the limit forced it: one value, or none."""
    at = choice.text.find(OPENING) + len(OPENING) + LIMIT
    if choice.logprobs is None or choice.text[at : at + 1] != '"' or "\\" in choice.text:
        return []
    if choice.text.find('"', at - LIMIT) != at:  # shorter titles end before
        return []
    return [math.exp(choice.logprobs[at].logprob)]  # a token is a character


def probe(subject: Subject) -> tuple[list[tuple[str, float]], float, int, str]:
    """The model's best continuations after 12 characters of a title; the quote's probability and rank; the prefix."""
    loaded = load_model(CHAR)
    title = next(title for title in _held_out_titles(subject) if len(title) > LIMIT + 2)
    prefix = f'{{"id": 120, {OPENING}{title[:LIMIT]}'
    ids = np.array(loaded.tokenizer.encode(prefix), np.int32)
    loaded.model.allocate(1)
    batch = Batch(ids, np.array([0, len(ids)], np.int32), np.zeros(1, np.int32))
    logits = loaded.model.forward(batch)[0, : len(loaded.tokenizer.vocabulary)].astype(np.float64)
    weights = np.exp(logits - logits.max())
    weights /= weights.sum()
    order = np.argsort(-weights)
    quote = loaded.tokenizer.encode('"')[0]
    best = [
        (loaded.tokenizer.decode([token_id]) or "the end", float(weights[token_id]))
        for token_id in order[:TOP].tolist()
    ]
    return best, float(weights[quote]), int(np.flatnonzero(order == quote)[0]) + 1, prefix


def _held_out_titles(subject: Subject) -> list[str]:
    return [parsed(line)["title"] for line in subject.corpus.split()[1]]


def _titles(texts: list[str]) -> list[str]:
    return [value["title"] for value in map(parsed, texts) if value is not None]


def _lengths(titles: list[str]) -> dict[int, float]:
    """Length -> share of the titles."""
    return {length: count / len(titles) for length, count in sorted(Counter(map(len, titles)).items())}


def _quote_figures(quotes: list[float]) -> tuple[Figure, ...]:
    values = np.array(quotes or [0.0])
    return (
        beside("distribution.quote_median", float(np.median(values))),
        beside("distribution.quote_mean", float(values.mean())),
        beside("distribution.quote_rare", float((values < RARE).mean())),
        alone("distribution.forced", "records whose closing quote was forced by the limit", "count", len(quotes)),
    )


def _length_grid(shares: dict[str, dict[int, float]]) -> Grid:
    columns = (Column("characters", "count"), Column("mask", "share"), Column("rejection", "share"))
    rows = tuple((n, shares["mask"].get(n, 0.0), shares["rejection"].get(n, 0.0)) for n in range(1, LIMIT + 1))
    return Grid("Length of the title", columns, rows)


def _probe_grid(best: list[tuple[str, float]], quote: float, rank: int) -> Grid:
    rows = [(number, text, value) for number, (text, value) in enumerate(best, start=1)]
    columns = (Column("rank", "count"), Column("continuation"), Column("probability", "share"))
    return Grid("One prefix: what the model would write next", columns, (*rows, (rank, "the closing quote", quote)))


def _plot(shares: dict[str, dict[int, float]]) -> Bars:
    numbers = range(1, LIMIT + 1)
    series = tuple(Series(name, tuple(found.get(n, 0.0) for n in numbers)) for name, found in shares.items())
    return Bars("title-lengths", "Length of titles under maxLength 12", tuple(map(str, numbers)), series)


def _findings(shares: dict[str, dict[int, float]], quotes: list[float]) -> tuple[Finding, ...]:
    mask, rejection = shares["mask"].get(LIMIT, 0.0), shares["rejection"].get(LIMIT, 0.0)
    median = float(np.median(quotes)) if quotes else 1.0
    return (
        Finding(
            "The mask piles titles at the limit",
            f"{published('distribution.mask_at_limit'):.1%} at exactly 12, "
            f"{published('distribution.rejection_at_limit'):.1%} by rejection",
            f"{mask:.1%} at exactly 12, {rejection:.1%} by rejection",
            mask > rejection,
            "This model ends its titles before the limit by itself.",
        ),
        Finding(
            "It does so where the model hardly ever ends a title",
            f"the quote had a median of {published('distribution.quote_median'):.2%}",
            f"a median of {median:.2%} at {len(quotes):,} places",
            median < RARE,
            "This model is less sure of how a title goes on.",
        ),
    )
