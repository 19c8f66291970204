"""A seed in, the training corpus out: records like those of an index of technical articles, one JSON object per line.

In: a seed. Out: `Corpus`, 3,988 distinct headings and six records for each, 23,928 lines as `json.dumps` writes them.
Cost: about a second. The sizes are those of the article's experiment; words and templates are ours (headings.toml).
A heading is a template whose slots are filled from decks of words, shuffled and dealt to the end before they are
shuffled again, so that every word is used. Most slots of a heading are of one topic. Tags follow the words of the
heading; id, level and draft are random, which no model can learn and every model must learn to spread evenly over.
Rejected: an n-gram or random-kanji generator, whose headings are either copies or noise; words in Python lists, which
hide what is a table in code.
"""

from __future__ import annotations

import json
import random
import re
import tomllib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

TITLES = 3988
RECORDS_PER_TITLE = 6
SHORT_TITLES = 500  # 12.5 %: what a maxLength of 12 leaves
SHORTEST, SHORT_UP_TO, LONGEST = 4, 12, 32  # code points
LEVELS = ("初級", "中級", "上級")
TAGS = ("python", "linux", "ai", "web", "db", "network")
MOST_TAGS = 3
COMMON_NOUN_SHARE = 0.35  # of nouns: taken from no topic
NOTE_SHARE = 0.75  # of long headings: end in a bracketed note
SPACED_SHARE = 0.4  # of headings: blank between Latin and Japanese
HELD_OUT_SHARE = 0.05

_LATIN, _JAPANESE = "[A-Za-z0-9]", "[ぁ-んァ-ヶー一-龠]"
_SCRIPT_BORDER = re.compile(f"(?<={_LATIN})(?={_JAPANESE})|(?<={_JAPANESE})(?={_LATIN})")

RECORD_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0, "maximum": 9999},
        "title": {"type": "string", "minLength": 1, "maxLength": LONGEST},
        "level": {"enum": list(LEVELS)},
        "tags": {"type": "array", "minItems": 1, "maxItems": MOST_TAGS, "items": {"enum": list(TAGS)}},
        "draft": {"type": "boolean"},
    },
    "required": ["id", "title", "level", "tags", "draft"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Corpus:
    """Headings in random order, and their records: lines 6 i to 6 i + 5 belong to heading i; no line ends inside."""

    titles: tuple[str, ...]
    lines: tuple[str, ...]

    def split(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Training lines and held-out lines: no heading is in both."""
        border = round(len(self.titles) * (1 - HELD_OUT_SHARE)) * RECORDS_PER_TITLE
        return self.lines[:border], self.lines[border:]


def build_corpus(seed: int) -> Corpus:
    """The corpus of this seed; the same on every machine."""
    draws = random.Random(seed)
    titles = _titles(_Writer(draws))
    draws.shuffle(titles)
    lines = [_record(title, draws) for title in titles for _ in range(RECORDS_PER_TITLE)]
    return Corpus(tuple(titles), tuple(lines))


def tags_for(title: str) -> list[str]:
    """Tags whose words the heading contains, in the order in which they appear, at most three; never none."""
    found = {tag: match.start() for tag, words in _tag_patterns().items() if (match := words.search(title))}
    if not found:
        return [TAGS[zlib.crc32(title.encode()) % len(TAGS)]]
    return sorted(found, key=found.__getitem__)[:MOST_TAGS]


def _record(title: str, draws: random.Random) -> str:
    record = {
        "id": draws.randrange(10000),
        "title": title,
        "level": draws.choice(LEVELS),
        "tags": tags_for(title),
        "draft": draws.random() < 0.5,
    }
    return json.dumps(record, ensure_ascii=False)


def _titles(writer: _Writer) -> list[str]:
    """Distinct headings, exactly `SHORT_TITLES` of them short."""
    short: dict[str, None] = {}
    long: dict[str, None] = {}
    while len(short) < SHORT_TITLES:
        title = writer.heading("short")
        if SHORTEST <= len(title) <= SHORT_UP_TO:
            short[title] = None
    while len(long) < TITLES - SHORT_TITLES:
        title = writer.heading("long")
        if SHORT_UP_TO < len(title) <= LONGEST:
            long[title] = None
    return [*short, *long]


class _Writer:
    """Fills templates from decks of words; one deck per list of words."""

    def __init__(self, draws: random.Random) -> None:
        self._draws = draws
        self._decks = {
            (section, name): _deal(words, draws) for section, lists in _words().items() for name, words in lists.items()
        }

    def heading(self, kind: str) -> str:
        """One heading of a random topic; `kind` is short or long, as the templates are."""
        topic = self._draws.choice(TAGS)
        template = next(self._decks["templates", kind])
        if kind == "long" and self._draws.random() < NOTE_SHARE:
            template += "（{note}）"
        text = re.sub(r"\{(\w+)\}", lambda slot: self._word(slot[1], topic), template)
        return _SCRIPT_BORDER.sub(" ", text) if self._draws.random() < SPACED_SHARE else text

    def _word(self, slot: str, topic: str) -> str:
        if slot == "number":
            return str(self._draws.randint(2, 99))
        if slot == "term":
            return next(self._decks["terms", topic])
        if slot == "noun":
            common = self._draws.random() < COMMON_NOUN_SHARE
            return next(self._decks["nouns", "common" if common else topic])
        return next(self._decks["others", slot])


def _deal(words: Sequence[str], draws: random.Random) -> Iterator[str]:
    """Cards of a deck for ever: all of them in random order, then all of them in another."""
    while True:
        yield from draws.sample(words, len(words))


@cache
def _words() -> dict[str, dict[str, list[str]]]:
    """Section -> list name -> words, from headings.toml."""
    tables = tomllib.loads((resources.files(__package__) / "headings.toml").read_text("utf-8"))
    return {
        section: {name: [word.strip() for word in text.split(",")] for name, text in lists.items()}
        for section, lists in tables.items()
    }


@cache
def _tag_patterns() -> dict[str, re.Pattern[str]]:
    """Per tag one pattern of its terms and nouns; Latin letters match whole words only ("AI" is not in "TRAIN")."""
    patterns = {}
    for tag in TAGS:
        words = sorted([*_words()["terms"][tag], *_words()["nouns"][tag]], key=len, reverse=True)
        alternatives = "|".join(map(re.escape, words))
        patterns[tag] = re.compile(rf"(?<![A-Za-z])(?:{alternatives})(?![A-Za-z])")
    return patterns
