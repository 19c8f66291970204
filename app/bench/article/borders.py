"""Tokens that cross the grammar's borders, and what cutting a prefix otherwise costs the model.

In: the BPE model and held-out records. Out: merges with a sign of structure in them; for each field the loss of the
true rest of the record after its prefix cut canonically, and after the same prefix cut into characters: the rest is cut
canonically in both cases, so nothing differs but the prefix. Beside the article's two cuts a third: the prefix ends
where a token of the whole record ends, and what is left of it binds the next token, which is what the server does
(token healing). Cost: a forward pass or two over some hundred records for each field.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from app.bench.article.published import alone, beside
from app.bench.article.report import Bars, Column, Experiment, Figure, Finding, Grid, Sample, Series
from app.bench.article.subject import BPE, Subject, parsed
from engine import LoadedModel, load_model
from engine.models import Batch
from engine.tokenizer import Tokenizer

LINES = 800  # held-out records, as many as the article takes
ROWS = 200  # of a forward pass
SHOWN_MERGES = 40
_STRUCTURE = frozenset('"{}[]')


@dataclass(frozen=True, slots=True)
class Losses:
    """Nats per character of what follows one field's prefix."""

    canonical: float
    split: float
    healed: float


def run_borders(subject: Subject) -> Experiment:
    """Merges, and losses by field."""
    loaded = load_model(BPE)
    lines = subject.corpus.split()[1][: min(LINES, subject.records)]
    merges = crossing_merges(loaded.tokenizer)
    pieces = [loaded.tokenizer.decode([token_id]) for token_id in loaded.tokenizer.encode(lines[0])]
    losses = {name: field_losses(loaded, lines, name) for name in parsed(lines[0])}
    return Experiment(
        name="borders",
        title="Tokens across the grammar's borders",
        about=f"The BPE vocabulary of {len(loaded.tokenizer.vocabulary):,} tokens; {len(lines):,} held-out records.",
        figures=_figures(merges, losses),
        grids=(_losses_grid(losses),),
        plots=(_plot(losses),),
        findings=_findings(losses),
        samples=(
            Sample(
                f"The first of {len(merges)} merges that cross a border, in the order of training",
                (str(merges[:SHOWN_MERGES]),),
            ),
            Sample("A held-out record as its tokens", (str(pieces),)),
        ),
        notes=(
            "The article takes records that its model was trained on; ours are held out of training.",
            "Where the split prefix is no worse, the canonical one ends inside of what is usually one token: a value "
            "of `level` or `draft` nearly always stands in one token with the key before it, so that either cut is "
            "strange to the model. Text that the server forces is cut canonically as a whole, and its last token is "
            "given back to the model: the healed prefix, which the article names and does not measure.",
        ),
    )


def crossing_merges(tokenizer: Tokenizer) -> list[str]:
    """Tokens of several characters with a sign of structure among them, which end or begin something inside."""
    texts = [data.decode("utf-8", "replace") for data in tokenizer.vocabulary.token_bytes]
    return [text for text in texts if len(text) > 1 and not _STRUCTURE.isdisjoint(text)]


def field_losses(loaded: LoadedModel, lines: Sequence[str], name: str) -> Losses:
    """Loss of the rest of the records after both cuts of a field's prefix."""
    parts = [cut_at(line, name) for line in lines]
    characters = sum(len(rest) for _, rest in parts)
    encode = loaded.tokenizer.encode
    rests = [encode(rest) for _, rest in parts]
    whole = [encode(prefix) for prefix, _ in parts]
    split = [[token for character in prefix for token in encode(character)] for prefix, _ in parts]
    canonical, by_character = (continuation_nats(loaded, prefixes, rests) / characters for prefixes in (whole, split))
    return Losses(canonical, by_character, healed_nats(loaded, parts) / characters)


def healed_nats(loaded: LoadedModel, parts: Sequence[tuple[str, str]]) -> float:
    """Sum of the losses of all rests, where a token that crosses the cut is drawn among those that fit the prefix."""
    before, after, left = zip(*(healed_cut(loaded.tokenizer, *part) for part in parts), strict=True)
    return continuation_nats(loaded, before, after) + fitting_nats(loaded, before, left)


def healed_cut(tokenizer: Tokenizer, prefix: str, rest: str) -> tuple[list[int], list[int], str]:
    """Tokens before the one that crosses the cut, those from it on, and what of the prefix it has to begin with."""
    ids = tokenizer.encode(prefix + rest)
    ends = list(accumulate(len(tokenizer.decode([token_id])) for token_id in ids))
    first = sum(end <= len(prefix) for end in ends)
    start = ends[first - 1] if first else 0
    return [*tokenizer.end_ids[:1], *ids[:first]], ids[first:], prefix[start:]


def fitting_nats(loaded: LoadedModel, prefixes: Sequence[list[int]], left: Sequence[str]) -> float:
    """Sum of the logarithms of what the model gives, after each prefix, to tokens that fit what is left of it."""
    texts = [data.decode("utf-8", "replace") for data in loaded.tokenizer.vocabulary.token_bytes]
    fits = {
        text: np.array([bool(it) and (it.startswith(text) or text.startswith(it)) for it in texts]) for text in left
    }
    total = 0.0
    for start in range(0, len(prefixes), ROWS):
        scores = _log_probabilities(loaded, prefixes[start : start + ROWS], [])
        masks = np.array([fits[text] if text else np.ones(len(texts), bool) for text in left[start : start + ROWS]])
        total += float(np.log((np.exp(scores) * masks).sum(axis=1)).sum())
    return total


def cut_at(line: str, name: str) -> tuple[str, str]:
    """The record up to the inside of a field's value, and the rest of it.

    A string's prefix ends behind its quote, an array's behind the quote of its first string.
    """
    value = json.dumps(parsed(line)[name], ensure_ascii=False)
    opening = next(text for text in ('["', '"', "") if value.startswith(text))
    at = line.index(f'"{name}": ') + len(f'"{name}": ')
    return line[: at + len(opening)], line[at + len(opening) :]


def continuation_nats(loaded: LoadedModel, prefixes: Sequence[list[int]], rests: Sequence[list[int]]) -> float:
    """Sum of the losses of the tokens of all rests, each after its prefix."""
    loaded.model.allocate(ROWS)
    pairs = list(zip(prefixes, rests, strict=True))
    return sum(_nats(loaded, pairs[start : start + ROWS]) for start in range(0, len(pairs), ROWS))


def _nats(loaded: LoadedModel, pairs: Sequence[tuple[list[int], list[int]]]) -> float:
    """Of one forward pass: the logits of a rest's first token are those after the prefix."""
    rows = [prefix + rest[:-1] for prefix, rest in pairs]
    starts = [0, *accumulate(map(len, rows))]
    places = zip(pairs, starts, starts[1:], strict=False)
    inner = [at for (prefix, _), start, end in places for at in range(start + len(prefix) - 1, end - 1)]
    scores = _log_probabilities(loaded, rows, inner)
    targets = [rest[-1] for _, rest in pairs] + [token for _, rest in pairs for token in rest[:-1]]
    return -float(scores[np.arange(len(scores)), targets].sum())


def _log_probabilities(loaded: LoadedModel, rows: Sequence[list[int]], inner: Sequence[int]) -> NDArray[np.float64]:
    """After the last token of each row, then after the tokens of `inner`; float64 (B + M, V)."""
    batch = Batch(
        token_ids=np.array([token for row in rows for token in row], np.int32),
        row_offsets=np.array([0, *accumulate(map(len, rows))], np.int32),
        slots=np.arange(len(rows), dtype=np.int32),
        inner=np.array(inner, np.int32),
    )
    for slot in range(len(rows)):
        loaded.model.reset(slot)
    logits = loaded.model.forward(batch)[:, : len(loaded.tokenizer.vocabulary)].astype(np.float64)
    top = logits.max(axis=1, keepdims=True)
    scores: NDArray[np.float64] = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    return scores


def _figures(merges: list[str], losses: dict[str, Losses]) -> tuple[Figure, ...]:
    return (
        beside("tokens.title_canonical", losses["title"].canonical),
        beside("tokens.title_split", losses["title"].split),
        beside("tokens.tags_canonical", losses["tags"].canonical),
        beside("tokens.tags_split", losses["tags"].split),
        alone("borders.merges", "merges that cross a border of the grammar, of 200", "count", len(merges)),
    )


def _losses_grid(losses: dict[str, Losses]) -> Grid:
    columns = (
        *(Column("field"), Column("canonical prefix", "number"), Column("character-split prefix", "number")),
        *(Column("split beside canonical", "times"), Column("healed prefix", "number")),
    )
    rows = tuple((name, it.canonical, it.split, it.split / it.canonical, it.healed) for name, it in losses.items())
    return Grid("Loss of the true rest, nats per character", columns, rows)


def _plot(losses: dict[str, Losses]) -> Bars:
    canonical = Series("canonical prefix", tuple(it.canonical for it in losses.values()))
    split = Series("character-split prefix", tuple(it.split for it in losses.values()))
    healed = Series("healed prefix", tuple(it.healed for it in losses.values()))
    series = (canonical, split, healed)
    return Bars("prefix-loss", "Loss of the true rest, nats per character", tuple(losses), series, "number")


def _findings(losses: dict[str, Losses]) -> tuple[Finding, ...]:
    worse = [name for name, it in losses.items() if it.split > it.canonical]
    title, tags, level, draft = (losses[name] for name in ("title", "tags", "level", "draft"))
    return (
        Finding(
            "A prefix cut into characters costs loss",
            "title 0.676 to 0.885, tags 0.152 to 0.434",
            f"title {title.canonical:.3f} to {title.split:.3f}, tags {tags.canonical:.3f} to {tags.split:.3f}; "
            f"worse in {len(worse)} of {len(losses)} fields",
            title.split > title.canonical and tags.split > tags.canonical,
            "This model has seen such cuts, or too little of them to be put off.",
        ),
        Finding(
            "Giving back the last token mends both",
            "named, not measured",
            f"level {level.canonical:.3f} to {level.healed:.3f}, draft {draft.canonical:.3f} to {draft.healed:.3f}",
            level.healed < min(level.canonical, level.split) and draft.healed < min(draft.canonical, draft.split),
            "The prefixes ended where the model's tokens end anyway.",
        ),
    )
