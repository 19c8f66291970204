"""Formats against the official suite, two validators and the standard library: never looser, and strict where said."""

from __future__ import annotations

import datetime
import ipaddress
import json
import random
import re
import uuid
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas_cache.automaton import START
from schemas_cache.finite import FiniteAutomaton
from schemas_cache.grammar import Grammar
from schemas_cache.schema import format_patterns as patterns
from schemas_cache.schema.formats import FORMATS, format_language, format_machine
from schemas_cache.spelling import json_string
from tests.schemas_cache.machines import automaton_of
from tests.schemas_cache.schema.documents import accepts as text_accepts
from tests.schemas_cache.schema.documents import grammar

SUITE = (
    Path(__file__).parents[4] / "shared" / "suites" / "json_schema_test_suite" / "tests" / "draft2020-12" / "optional"
) / "format"
needs_suite = pytest.mark.skipif(not SUITE.exists(), reason="../shared/suites/json_schema_test_suite is not here")
CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER

PUNYCODE = "A-labels: whether Punycode decodes to a valid label is no regular question"
CONTEXT = "letters with rules about their context"
DIRECTION = "letters from right to left, with rules about the whole name"
LONG_LABEL = "labels beyond ASCII have 10 letters at most, so that their A-labels are short enough"
NO_REGEX = "not in the part of ECMA-262's patterns that is regular and reads the same everywhere"
COMBINING = "a letter with a combining mark: not in composed form"
TOO_STRICT = {
    ("hostname", "a valid host name (example.test in Hangul)"): PUNYCODE,
    ("hostname", "Exceptions that are PVALID, left-to-right chars"): PUNYCODE,
    ("hostname", "Exceptions that are PVALID, right-to-left chars"): PUNYCODE,
    ("hostname", "MIDDLE DOT with surrounding 'l's"): PUNYCODE,
    ("hostname", "Greek KERAIA followed by Greek"): PUNYCODE,
    ("hostname", "Hebrew GERESH preceded by Hebrew"): PUNYCODE,
    ("hostname", "Hebrew GERSHAYIM preceded by Hebrew"): PUNYCODE,
    ("hostname", "KATAKANA MIDDLE DOT with Hiragana"): PUNYCODE,
    ("hostname", "KATAKANA MIDDLE DOT with Katakana"): PUNYCODE,
    ("hostname", "KATAKANA MIDDLE DOT with Han"): PUNYCODE,
    ("hostname", "Arabic-Indic digits not mixed with Extended Arabic-Indic digits"): PUNYCODE,
    ("hostname", "Extended Arabic-Indic digits not mixed with Arabic-Indic digits"): PUNYCODE,
    ("hostname", "ZERO WIDTH JOINER preceded by Virama"): PUNYCODE,
    ("hostname", "ZERO WIDTH NON-JOINER preceded by Virama"): PUNYCODE,
    ("hostname", "ZERO WIDTH NON-JOINER not preceded by Virama but matches regexp"): PUNYCODE,
    ("idn-hostname", "valid Chinese Punycode"): PUNYCODE,
    ("idn-hostname", "Exceptions that are PVALID, left-to-right chars"): "the Tibetan mark TSHEG",
    ("idn-hostname", "Exceptions that are PVALID, right-to-left chars"): DIRECTION,
    ("idn-hostname", "MIDDLE DOT with surrounding 'l's"): CONTEXT,
    ("idn-hostname", "Greek KERAIA followed by Greek"): CONTEXT,
    ("idn-hostname", "Hebrew GERESH preceded by Hebrew"): DIRECTION,
    ("idn-hostname", "Hebrew GERSHAYIM preceded by Hebrew"): DIRECTION,
    ("idn-hostname", "KATAKANA MIDDLE DOT with Hiragana"): CONTEXT,
    ("idn-hostname", "KATAKANA MIDDLE DOT with Katakana"): CONTEXT,
    ("idn-hostname", "KATAKANA MIDDLE DOT with Han"): CONTEXT,
    ("idn-hostname", "Arabic-Indic digits not mixed with Extended Arabic-Indic digits"): DIRECTION,
    ("idn-hostname", "Extended Arabic-Indic digits not mixed with Arabic-Indic digits"): CONTEXT,
    ("idn-hostname", "ZERO WIDTH JOINER preceded by Virama"): CONTEXT,
    ("idn-hostname", "ZERO WIDTH NON-JOINER preceded by Virama"): CONTEXT,
    ("idn-hostname", "ZERO WIDTH NON-JOINER not preceded by Virama but matches regexp"): CONTEXT,
    ("idn-hostname", "label too long if separator ignored (full stop)"): LONG_LABEL,
    ("idn-hostname", "label too long if separator ignored (ideographic full stop)"): LONG_LABEL,
    ("idn-hostname", "label too long if separator ignored (fullwidth full stop)"): LONG_LABEL,
    ("idn-hostname", "label too long if separator ignored (halfwidth ideographic full stop)"): LONG_LABEL,
    ("idn-email", "a domain label that is not in Unicode NFC is valid"): COMBINING,
    ("regex", "an ECMA 262 named group (?<name>...)"): NO_REGEX,
    ("regex", r"an ECMA 262 named backreference \k<name>"): NO_REGEX,
    ("regex", "a variable-width lookbehind (ES2018)"): NO_REGEX,
    ("regex", "an empty character class is valid ECMA 262"): NO_REGEX,
    ("regex", "a negated empty character class is valid ECMA 262"): NO_REGEX,
    ("regex", r"a control escape \cA is valid ECMA 262"): NO_REGEX,
}
"""Every valid case of the official suite that is not allowed, and why."""


@cache
def machine(name: str) -> FiniteAutomaton:
    """The automaton of a format."""
    return format_machine(name)


def allows(name: str, text: str) -> bool:
    """Whether a format allows a value."""
    longest = FORMATS[name].max_length
    return machine(name).accepts(text.encode()) and (longest is None or len(text) <= longest)


def suite() -> list[Any]:
    """The groups of the official suite's format tests, by file."""
    paths = sorted(SUITE.glob("*.json")) if SUITE.exists() else []
    return [
        pytest.param(group, id=f"{path.stem}: {group['description']}")
        for path in paths
        for group in json.loads(path.read_text("utf-8"))
    ]


def strings_of(group: dict[str, Any]) -> list[dict[str, Any]]:
    """The cases of a group that are about strings."""
    return [test for test in group["tests"] if isinstance(test["data"], str)]


@needs_suite
@pytest.mark.parametrize("group", suite())
def test_official_suite(group: dict[str, Any]) -> None:
    """No invalid value is allowed, and of the valid ones all but those listed."""
    name, tests = group["schema"]["format"], strings_of(group)
    allowed = [test["description"] for test in tests if name not in FORMATS or allows(name, test["data"])]
    expected = [t["description"] for t in tests if t["valid"] and (name, t["description"]) not in TOO_STRICT]
    assert expected == allowed


@needs_suite
@pytest.mark.parametrize("group", suite())
def test_official_suite_as_grammars(group: dict[str, Any]) -> None:
    """The compiler says the same of a schema as the automaton of its format; other types are free."""
    rules = grammar(group["schema"])
    for test in group["tests"][:12]:
        name, data = group["schema"]["format"], test["data"]
        expected = not isinstance(data, str) or name not in FORMATS or allows(name, data)
        assert expected == text_accepts(rules, json.dumps(data, ensure_ascii=False)), test["description"]


@needs_suite
def test_every_listed_case_is_there() -> None:
    """The list of what is too strict names cases of the suite."""
    groups = [param.values[0] for param in suite()]
    named = {(g["schema"]["format"], test["description"]) for g in groups for test in strings_of(g) if test["valid"]}
    assert TOO_STRICT.keys() <= named


def random_text(finite: FiniteAutomaton, rng: random.Random) -> str | None:
    """A text of an automaton, byte by byte at random; None where it gets too long."""
    state, data, ends = START, bytearray(), rng.choice((0.02, 0.1, 0.4))
    while len(data) < 300:
        live = np.unique(finite.alphabet.class_of[np.flatnonzero(finite.next_state[state][finite.alphabet.class_of])])
        if not len(live) or (finite.accepting[state] and rng.random() < ends):
            return data.decode()
        letter = int(rng.choice(live.tolist()))
        data.append(int(rng.choice(np.flatnonzero(finite.alphabet.class_of == letter).tolist())))
        state = int(finite.next_state[state, letter])
    return None


def random_values(name: str, count: int) -> list[str]:
    """Values that a format allows."""
    rng = random.Random(name)
    texts = [random_text(machine(name), rng) for _ in range(count)]
    return [text for text in texts if text is not None and len(text) <= (FORMATS[name].max_length or len(text))]


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_whatever_is_allowed_is_valid(name: str) -> None:
    """Random values of the automaton are valid to one validator, and to the other where it knows the format."""
    validator = jsonschema_rs.Draft202012Validator({"format": name}, validate_formats=True)
    values = random_values(name, 400)
    assert len(values) > 300
    assert [] == [
        v for v in values if not validator.is_valid(v) or (name in CHECKER.checkers and not CHECKER.conforms(v, name))
    ]


@pytest.mark.parametrize("name", sorted(name for name, known in FORMATS.items() if not known.left_out))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_exact_formats_agree_with_a_validator(name: str, data: st.DataObject) -> None:
    """On values and slight changes of them: where nothing is left out, both say the same."""
    validator = jsonschema_rs.Draft202012Validator({"format": name}, validate_formats=True)
    value = data.draw(st.sampled_from(random_values(name, 40)))
    at = data.draw(st.integers(0, len(value)))
    changed = (
        value[:at]
        + data.draw(st.text("0123459aAfFgG:./-#%?@[]~", max_size=2))
        + value[at + data.draw(st.integers(0, 2)) :]
    )
    assert validator.is_valid(changed) == allows(name, changed)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("date-time", patterns.DATE_TIME),
        ("time", patterns.TIME),
        ("duration", patterns.DURATION),
        ("ipv6", patterns.IPV6),
        ("uri", patterns.URI),
        ("uri-reference", patterns.URI_REFERENCE),
        ("uuid", patterns.UUID),
        ("json-pointer", patterns.JSON_POINTER),
        ("relative-json-pointer", patterns.RELATIVE_JSON_POINTER),
    ],
)
def test_another_engine_reads_the_patterns_alike(name: str, pattern: str) -> None:
    """Python's `re` and the automaton agree on values with one character put in, left out or changed."""
    rng, reader = random.Random(name), re.compile(pattern)
    for value in random_values(name, 60):
        for _ in range(10):
            at = rng.randrange(len(value) + 1)
            changed = value[:at] + rng.choice(("", *"0159zZ:./-T~#")) + value[at + rng.randrange(2) :]
            assert (reader.fullmatch(changed) is not None) == allows(name, changed), changed


def test_every_day_of_four_centuries() -> None:
    """A date is allowed exactly if the calendar has it."""
    days = {f"{day:%Y-%m-%d}" for day in map(datetime.date.fromordinal, range(577_000, 577_000 + 146_097, 7))}
    assert [] == [day for day in days if not allows("date", day)]
    wrong = [
        f"{year:04}-{month:02}-{day:02}" for year in range(1580, 1981) for month, day in ((2, 29), (2, 30), (4, 31))
    ]
    assert [calendar_has(text) for text in wrong] == [allows("date", text) for text in wrong]


def calendar_has(text: str) -> bool:
    """Ask the standard library for a date."""
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**128 - 1), st.uuids())
def test_addresses_of_the_standard_library(four: int, six: int, identifier: uuid.UUID) -> None:
    """What `ipaddress` and `uuid` write is allowed."""
    short = ipaddress.IPv6Address(six)
    assert allows("ipv4", str(ipaddress.IPv4Address(four)))
    assert allows("ipv6", str(short))
    assert allows("ipv6", short.exploded)
    assert allows("uuid", str(identifier))


@given(st.text("0123456789abcdef:.", max_size=20))
def test_texts_that_might_be_addresses(text: str) -> None:
    """Allowed exactly if `ipaddress` reads them."""
    assert allows("ipv6", text) == reads(ipaddress.IPv6Address, text)
    assert allows("ipv4", text) == reads(ipaddress.IPv4Address, text)


def reads(kind: Any, text: str) -> bool:
    """Whether an address of the standard library can be made of a text."""
    try:
        kind(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_expression_and_automaton_of_a_format_agree(name: str) -> None:
    """The language that is determinised when visited is that of the automaton with the greatest length."""
    lazy = automaton_of(json_string(format_language(name), None), Grammar("", {}).rules)
    for value in random_values(name, 60):
        for changed in (value, value[:-1], value[1:], value + "a"):
            text = json.dumps(changed, ensure_ascii=False).encode()[1:-1]
            assert allows(name, changed) == lazy.accepting[lazy.walk(START, text)], changed


@pytest.mark.parametrize(
    ("name", "longest", "too_long"),
    [
        ("hostname", ".".join(["a" * 63] * 3 + ["a" * 61]), ".".join(["a" * 63] * 3 + ["a" * 62])),
        ("hostname", ".".join(["a"] * 127), ".".join(["a"] * 128)),
        ("email", "a@" + ".".join(["b" * 62] * 4), "ab@" + ".".join(["b" * 62] * 4 + ["b"])),
        ("email", "a" * 64 + "@b", "a" * 65 + "@b"),
        ("email", '"' + "@" * 62 + '"@b', '"' + "@" * 63 + '"@b'),
        ("idn-email", "é" * 15 + "@b", "é" * 16 + "@b"),
    ],
)
def test_greatest_lengths(name: str, longest: str, too_long: str) -> None:
    """Of a name, of its labels, of an address and of its local part."""
    assert [True, False] == [allows(name, longest), allows(name, too_long)]


@given(st.lists(st.text("aé日本ü가ω0", min_size=1, max_size=10), min_size=1, max_size=4))
def test_names_beyond_ascii_are_short_as_octets(labels: list[str]) -> None:
    """As A-labels they keep to the limits of the DNS."""
    name = ".".join(labels)
    spelled = [label if label.isascii() else "xn--" + label.encode("punycode").decode() for label in labels]
    assert allows("idn-hostname", name)
    assert max(map(len, spelled)) <= 63
    assert len(".".join(spelled)) <= 253
