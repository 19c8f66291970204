"""`katagami bench article`: its experiments run on few records, its numbers are counted and not remembered."""

from __future__ import annotations

import json
import re
import tomllib
from contextlib import closing
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from app.bench.article.automata import PATTERN, sizes
from app.bench.article.borders import cut_at, fitting_nats, healed_cut, run_borders
from app.bench.article.distribution import forced_quote
from app.bench.article.failures import failures
from app.bench.article.page import page
from app.bench.article.plots import nice_top, svg
from app.bench.article.published import beside, published
from app.bench.article.report import Bars, Column, Drawing, Experiment, Figure, Finding, Grid, Report, Series, shown
from app.bench.article.retry import attempts, run_retry
from app.bench.article.run import run_article
from app.bench.article.setup import run_setup
from app.bench.article.subject import BPE, CHAR, Judge, Subject, titled
from app.bench.article.token_masks import (
    ALL_BYTES,
    FIRST_CHARACTER,
    SINGLE_CHARACTER,
    TOKEN_MASKS,
    allowed_tokens,
    draw_under,
    table_of,
)
from app.bench.article.tokens import run_tokens
from app.cli import cli
from engine import Choice, TokenLogprobs, load_model
from engine.training.corpus import RECORD_SCHEMA, build_corpus
from schemas_cache import compile_schema, regex_source
from schemas_cache.automaton import DEAD

RECORDS = 40
NAMES = ("setup", "methods", "retry", "automata", "costs", "truncation", "distribution", "borders", "tokens")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def report() -> Report:
    """One run on few records."""
    return run_article(RECORDS, seed=3)


def test_every_experiment_has_figures_and_findings(report: Report) -> None:
    """All experiments in their order, each with numbers; each finding says what to think where it does not hold."""
    assert [*NAMES] == [experiment.name for experiment in report.experiments]
    assert all(experiment.figures for experiment in report.experiments)
    assert all(finding.otherwise for finding in report.findings)
    assert (RECORDS, 3) == (report.records, report.seed)


def test_every_figure_of_the_article_is_beside_one_of_ours(report: Report) -> None:
    """What published.toml has is shown, once, with the section it stands in."""
    text = (resources.files("app.bench.article") / "published.toml").read_text("utf-8")
    keys = {
        f"{section}.{name}"
        for section, entries in tomllib.loads(text).items()
        for name, entry in entries.items()
        if isinstance(entry, dict)
    }
    figures = [figure for experiment in report.experiments for figure in experiment.figures]
    ours = [figure.key for figure in figures if figure.article is not None]
    assert keys == set(ours)
    assert len(ours) == len(set(ours))
    assert all(figure.where for figure in figures if figure.article is not None)


def test_the_orderings_that_few_records_show(report: Report) -> None:
    """The mask is always valid, JSON mode below it; the mask piles titles at the limit; split prefixes cost loss."""
    figure = report.figure
    assert 1.0 == figure("methods.mask_valid_hot") == figure("methods.mask_valid_cool")
    assert figure("unconstrained.valid_hot") < 1
    assert figure("methods.json_valid_hot") < 1
    assert figure("distribution.mask_at_limit") > 0.5 > figure("distribution.rejection_at_limit")
    assert figure("tokens.title_split") > figure("tokens.title_canonical")
    assert figure("tokens.tags_split") > figure("tokens.tags_canonical")
    assert figure("tokens.single_cut") > 0.5 > figure("tokens.whole_cut")
    assert figure("questions.calls_saved") > 0.5
    losses = {row[0]: row[1:] for row in report.experiments[NAMES.index("borders")].grids[0].rows}
    assert all(losses[name][3] < min(losses[name][:2]) / 2 for name in ("level", "draft"))  # type: ignore[operator, type-var]
    assert figure("json_mode.cut_80") < figure("truncation.closed_80") == 1


def test_another_seed_gives_other_numbers(report: Report) -> None:
    """What depends on draws changes with the seed, what does not stays: nothing is remembered."""
    with closing(Subject(RECORDS, seed=4)) as subject:
        experiments = tuple(run(subject) for run in (run_setup, run_retry, run_borders, run_tokens))
    other = Report(RECORDS, 4, "here", 0.0, experiments)
    drawn = ("retry.acceptance", "retry.mean_attempts", "tokens.whole_cut", "tokens.single_length")
    assert not any(report.figure(key) == other.figure(key) for key in drawn)
    exact = ("setup.titles", "tokens.title_canonical", "tokens.allowed_mean")
    assert [report.figure(key) for key in exact] == [other.figure(key) for key in exact]


def test_methods_are_told_for_both_models_and_temperatures(report: Report) -> None:
    """Twenty rows: five methods, two models, two temperatures; retry and both masks are always valid."""
    grid = report.experiments[NAMES.index("methods")].grids[0]
    assert 20 == len(grid.rows)
    assert 20 == len({row[:3] for row in grid.rows})
    sure = [row for row in grid.rows if row[2] not in ("none", "JSON mode")]
    assert [1.0] * 12 == [row[4] for row in sure]


def test_failures_have_reasons_and_raw_texts() -> None:
    """Counted by the reader's message or the validator's keyword; keys that are missing or new are one reason."""
    good = '{"id": 1, "title": "x", "level": "初級", "tags": ["ai"], "draft": true}'
    texts = [good, good.replace("level", "livel"), good.replace('"ai"', '"ia"'), good.replace('"x"', ""), good[:20]]
    texts.append(good.replace('"ai"', '"ib"'))
    found = {failure.reason: failure for failure in failures(texts, Judge(RECORD_SCHEMA))}
    assert {"/tags/* enum": 2, "keys": 1, "no JSON: Expecting value": 1} | {
        "no JSON: Unterminated string starting at": 1
    } == {reason: failure.count for reason, failure in found.items()}
    assert texts[1] == found["keys"].example


def test_attempts_are_counted_up_to_each_valid_draw() -> None:
    """Draws after the last valid one belong to nobody."""
    assert [1, 3, 1] == attempts([True, False, False, True, True, False])
    assert [] == attempts([False])


def test_the_articles_expression_has_its_states() -> None:
    """One state more for each character of `maxLength`, and a table of four bytes an entry."""
    vocabulary = load_model(CHAR).tokenizer.vocabulary
    shorter, longer = (sizes(regex_source(PATTERN % maximum), vocabulary) for maximum in (12, 20))
    assert 8 == longer.token_states - shorter.token_states
    assert shorter.token_states * len(vocabulary) * 4 == shorter.table_bytes
    assert shorter.token_states == len(shorter.allowed)
    assert shorter.nfa_states == longer.nfa_states


def test_the_three_masks_over_tokens() -> None:
    """Single characters are a part of all bytes, which are a part of first characters; only the last leads astray."""
    compiled = compile_schema(RECORD_SCHEMA, load_model(BPE).tokenizer.vocabulary)
    whole, first, single = (allowed_tokens(compiled, name) for name in TOKEN_MASKS)
    assert (ALL_BYTES, FIRST_CHARACTER, SINGLE_CHARACTER) == TOKEN_MASKS
    dead = table_of(compiled).next_state == DEAD
    assert not (single & ~whole).any()
    assert not (whole & ~first).any()
    assert [False, True, False] == [bool((mask & dead).any()) for mask in (whole, first, single)]
    assert 0 < single.sum() < whole.sum() < first.sum()


def test_a_record_that_leaves_the_grammar_ends_there() -> None:
    """Under a mask of everything most records break, and none that broke goes on."""
    loaded = load_model(BPE)
    compiled = compile_schema(RECORD_SCHEMA, loaded.tokenizer.vocabulary)
    everything = allowed_tokens(compiled, ALL_BYTES) | True
    walked, _ = draw_under(loaded, compiled, everything, 30, most_tokens=60, seed=1)
    assert any(record.broken for record in walked)
    assert all(record.cuts == pytest.approx([0.0] * len(record.cuts)) for record in walked)
    for record in walked:
        matcher = compiled.matcher()
        for token_id in record.token_ids[:-1]:
            matcher.advance(token_id)
        assert record.broken == (not matcher.allows(record.token_ids[-1]))


def test_a_prefix_ends_inside_the_value() -> None:
    """Behind the quote of a string, and of an array's first string."""
    line = '{"id": 7, "title": "a\\"b", "tags": ["ai"], "draft": true}'
    assert ('{"id": ', '7, "title": "a\\"b", "tags": ["ai"], "draft": true}') == cut_at(line, "id")
    assert '{"id": 7, "title": "' == cut_at(line, "title")[0]
    assert 'ai"], "draft": true}' == cut_at(line, "tags")[1]
    assert "true}" == cut_at(line, "draft")[1]


@pytest.mark.parametrize(("title", "forced"), [("あ" * 12, [1.0]), ("あ" * 11, []), ("", [])])
def test_forced_quotes_are_found(title: str, forced: list[float]) -> None:
    """The quote behind a title of exactly twelve characters, and no other."""
    text = f'{{"id": 1, "title": "{title}", "level": "初級"}}'
    place = text.find('", "level')
    logprobs = tuple(TokenLogprobs(0, 0.0 if at == place else -9.0, ()) for at in range(len(text)))
    choice = Choice(0, text, (0,) * len(text), "end_turn", None, True, 0, 0, logprobs=logprobs)
    assert forced == forced_quote(choice)


def test_the_narrowed_schema_differs_in_one_bound() -> None:
    """Titles of twelve characters pass, of thirteen do not; the schema of all other experiments is unchanged."""
    record = {"id": 1, "level": "初級", "tags": ["ai"], "draft": True}
    verdicts = [Judge(titled(12)).valid(json.dumps(record | {"title": "x" * length})) for length in (12, 13)]
    assert [True, False] == verdicts
    assert 32 == RECORD_SCHEMA["properties"]["title"]["maxLength"]  # type: ignore[index]


def test_numbers_are_shown_in_their_units() -> None:
    """Shares below one percent keep two digits; counts have separators; what is missing is empty."""
    shares = [shown(value, "share") for value in (1.0, 0.0, 0.0002, 0.000015, 0.689)]
    assert ["100.0 %", "0.0 %", "0.02 %", "0.0015 %", "68.9 %"] == shares
    assert ["8,193", "653,640 B", "1.10 ×", "0.140 s", "5.90 ms", "29.8", "1.481", "", "x"] == [
        shown(8193, "count"),
        shown(653640, "bytes"),
        shown(1.1, "times"),
        shown(0.14, "s"),
        shown(5.9, "ms"),
        shown(29.8, "number"),
        shown(1.481, "number"),
        shown(None, "share"),
        shown("x", "text"),
    ]


def test_ours_stands_beside_the_articles() -> None:
    """Label, unit and section come with the article's number; an unknown key is an error."""
    figure = beside("retry.longest", 5)
    assert (5, 8, "count") == (figure.ours, figure.article, figure.unit)
    assert published("retry.longest") == figure.article
    with pytest.raises(KeyError):
        beside("retry.shortest", 1)


def test_a_bar_is_as_high_as_its_value() -> None:
    """Heights are proportional, each bar has its value as a tooltip, text is escaped; the file is XML."""
    plot = Bars("b", "a < b", ("x", "y"), (Series("s & t", (0.25, 1.0)),))
    root = ElementTree.fromstring(svg(plot))  # noqa: S314  # our own
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.find(f"{SVG}title") is not None]
    heights = [float(rect.attrib["height"]) for rect in bars]
    assert 4 == pytest.approx(heights[1] / heights[0])
    tips = [title.text for rect in bars if (title := rect.find(f"{SVG}title")) is not None]
    assert ["s & t, x: 25.0 %", "s & t, y: 100.0 %"] == tips


@pytest.mark.parametrize(("highest", "top"), [(0.0, 1.0), (0.95, 1.0), (1.0, 1.0), (7.3, 8.0), (12.0, 15.0)])
def test_axes_end_at_round_numbers(highest: float, top: float) -> None:
    """The least round number that is not below the highest value."""
    assert top == pytest.approx(nice_top(highest))


def test_an_automaton_is_drawn_with_all_states_and_edges() -> None:
    """A circle for each state, two for an accepting one, a line for each edge."""
    plot = Drawing("d", "d", 1, (3,), ((1, 2, "a"), (2, 3, "b"), (1, 3, "c")))
    root = ElementTree.fromstring(svg(plot))  # noqa: S314  # our own
    assert (4, 3) == (len(list(root.iter(f"{SVG}circle"))), len(list(root.iter(f"{SVG}line"))))


def test_a_finding_that_does_not_hold_is_explained() -> None:
    """The page says so, and why; one that holds needs no words."""
    found = [Finding("A", "a", "b", True, "why A"), Finding("B", "a", "b", False, "why B")]
    made = page(Report(20, 1, "here", 60.0, (Experiment("e", "E", "about", findings=tuple(found)),)), "article")
    assert "why B" in made
    assert "why A" not in made


def test_cells_do_not_break_tables() -> None:
    """Bars of a pattern are escaped."""
    grid = Grid("g", (Column("c"),), (("a|b",),))
    figure = Figure("k", "l", "count", 1)
    made = page(Report(20, 1, "here", 60.0, (Experiment("e", "E", "about", (figure,), (grid,)),)), "article")
    assert "| a\\|b |" in made


def test_the_command_writes_json_and_a_page(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All numbers unrounded as JSON; a page whose plots are there; tables on the terminal."""
    monkeypatch.setattr("app.cli.bench_command.run_article", lambda *_: report)
    arguments = ["bench", "article", "--records", "40", "--json", str(tmp_path / "f.json")]
    ran = CliRunner().invoke(cli, [*arguments, "--page", str(tmp_path / "docs" / "article.md")])
    assert 0 == ran.exit_code, ran.output
    assert "Findings" in ran.output
    read = json.loads((tmp_path / "f.json").read_text("utf-8"))
    assert report.figure("retry.mean_attempts") in [
        figure["ours"] for experiment in read["experiments"] for figure in experiment["figures"]
    ]
    made = (tmp_path / "docs" / "article.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)]+\.svg)\)", made)
    plots = [plot for experiment in report.experiments for plot in experiment.plots]
    assert len(plots) == len(links)
    for link in links:
        ElementTree.fromstring((tmp_path / "docs" / link).read_text("utf-8"))  # noqa: S314  # our own
    assert "http" not in re.sub(r"xmlns=\"[^\"]+\"", "", made)


def test_too_few_records_are_refused() -> None:
    """Shares of a handful say nothing."""
    assert 2 == CliRunner().invoke(cli, ["bench", "article", "--records", "5"]).exit_code


def test_a_healed_prefix_ends_where_a_token_of_the_record_does() -> None:
    """The token that crosses the cut comes after it, and what it has to begin with is what is left of the prefix."""
    tokenizer = load_model(BPE).tokenizer
    line = build_corpus(1).lines[0]
    for name in ("id", "title", "level", "tags", "draft"):
        prefix, rest = cut_at(line, name)
        before, after, left = healed_cut(tokenizer, prefix, rest)
        assert list(tokenizer.end_ids) == before[:1]
        assert tokenizer.encode(line) == before[1:] + after
        assert prefix == tokenizer.decode(before) + left
        assert tokenizer.decode(after[:1]).startswith(left)


def test_fitting_tokens_are_those_that_begin_alike() -> None:
    """With nothing left of the prefix every token fits, and the loss is 0; the more is left, the higher it is."""
    loaded = load_model(BPE)
    prefix = [*loaded.tokenizer.end_ids]
    loaded.model.allocate(1)
    nothing, brace, key = (fitting_nats(loaded, [prefix], [left]) for left in ("", "{", '{"id": '))
    assert 0 == pytest.approx(nothing, abs=1e-6)
    assert key <= brace <= 1e-6
