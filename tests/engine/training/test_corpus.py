"""The corpus has the sizes of the article's experiment, and its records follow from their headings."""

import json
from collections.abc import Sequence

import jsonschema_rs
import pytest

from engine.training.corpus import RECORD_SCHEMA, TAGS, Corpus, build_corpus, tags_for


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """The corpus of the shipped models."""
    return build_corpus(1)


def test_counts(corpus: Corpus) -> None:
    """3,988 distinct headings and six lines for each."""
    assert (len(corpus.titles), len(set(corpus.titles)), len(corpus.lines)) == (3988, 3988, 23928)


def test_about_two_point_three_million_characters(corpus: Corpus) -> None:
    """Within five per cent, line ends counted."""
    assert sum(len(line) + 1 for line in corpus.lines) == pytest.approx(2_300_000, rel=0.05)


def test_heading_lengths(corpus: Corpus) -> None:
    """From 4 to 32 code points, one in eight of at most twelve."""
    lengths = [len(title) for title in corpus.titles]
    assert (min(lengths), max(lengths)) == (4, 32)
    assert 0.12 <= sum(length <= 12 for length in lengths) / len(lengths) <= 0.13


def test_distinct_characters(corpus: Corpus) -> None:
    """At least 800, and none that JSON has to escape."""
    characters = set().union(*corpus.titles)
    assert len(set().union(*corpus.lines)) >= 800
    assert not characters & {'"', "\\", "\n"}


def test_every_line_is_as_json_dumps_writes_it(corpus: Corpus) -> None:
    """Reading and writing a line gives the line again."""
    assert all(json.dumps(json.loads(line), ensure_ascii=False) == line for line in corpus.lines)


def test_every_line_is_valid(corpus: Corpus) -> None:
    """An independent validator accepts all records."""
    validator = jsonschema_rs.validator_for(RECORD_SCHEMA)
    assert all(validator.is_valid(json.loads(line)) for line in corpus.lines)


def test_tags_are_the_same_in_all_records_of_a_heading(corpus: Corpus) -> None:
    """Only id, level and draft are random."""
    for index, title in enumerate(corpus.titles[:200]):
        records = [json.loads(line) for line in corpus.lines[6 * index : 6 * index + 6]]
        assert [(title, tags_for(title))] * 6 == [(record["title"], record["tags"]) for record in records]


def test_every_tag_level_and_draft_appears(corpus: Corpus) -> None:
    """Nothing of the schema is missing from the corpus."""
    records = [json.loads(line) for line in corpus.lines]
    assert set(TAGS) == {tag for record in records for tag in record["tags"]}
    assert {"初級", "中級", "上級"} == {record["level"] for record in records}
    assert {True, False} == {record["draft"] for record in records}
    assert {1, 2, 3} == {len(record["tags"]) for record in records}


def test_same_seed_same_corpus_other_seed_another(corpus: Corpus) -> None:
    """The seed decides, and nothing else."""
    assert build_corpus(1).lines == corpus.lines
    assert build_corpus(2).lines != corpus.lines


def test_held_out_headings_are_not_trained_on(corpus: Corpus) -> None:
    """The split is by heading, one in twenty held out, nothing lost."""
    training, held_out = corpus.split()
    assert not _headings(training) & _headings(held_out)
    assert len(_headings(held_out)) == 199
    assert (*training, *held_out) == corpus.lines


@pytest.mark.parametrize(
    ("title", "tags"),
    [
        ("nginxでPythonを動かす", ["network", "python"]),
        ("TRAINとMAIL", ["python"]),
        ("AIの使い方", ["ai"]),
        ("DNSとSQLとCSSとAI", ["network", "db", "web"]),
    ],
)
def test_tags_follow_words(title: str, tags: list[str]) -> None:
    """In the order of the heading, whole Latin words only, three at most; without any word the text decides."""
    assert tags_for(title) == tags


def _headings(lines: Sequence[str]) -> set[str]:
    return {json.loads(line)["title"] for line in lines}
