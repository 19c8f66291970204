"""The independent judge: exact on every number, and without a word where it cannot say."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from app import proof
from app.proof import judge
from schemas_cache import json_object_source, regex_source, schema_source

HUGE, TINY = "1e9999999999999999999", "-1e-9999999999999999999"


@pytest.mark.parametrize(
    ("schema", "text", "verdict"),
    [
        ({"type": "number"}, HUGE, True),
        ({"type": "number"}, TINY, True),
        ({"type": "number"}, "0E+99999999999999999999", True),
        ({"type": "integer"}, HUGE, True),
        ({"type": "integer"}, TINY, False),
        ({"type": "integer"}, "0e-9999999999999999999", True),
        ({"minimum": 5}, HUGE, True),
        ({"minimum": 5}, f"-{HUGE}", False),
        ({"exclusiveMaximum": 0}, TINY, True),
        ({"multipleOf": 3}, HUGE, False),
        ({"multipleOf": 3}, "3" + HUGE[1:], True),
        ({"enum": [0]}, TINY, False),
        ({"enum": [0]}, "0e99999999999999999999", True),
        ({"type": "integer"}, "9" * 5000, True),
        ({"maximum": 10}, "9" * 5000, False),
        ({"items": {"type": "string"}}, f"[{HUGE}]", False),
        ({"const": 100}, "1.00e2", True),
    ],
)
def test_numbers_of_any_size(schema: dict[str, Any], text: str, verdict: bool) -> None:
    """No exponent and no length is too much for a verdict."""
    assert verdict is judge(schema_source(schema))(text)


def test_two_numbers_that_cannot_be_told_apart() -> None:
    """Where items have to be unique, numbers beyond what can be held are not judged; others are."""
    is_valid = judge(schema_source({"uniqueItems": True}))
    assert [None, True, False] == [
        is_valid(text) for text in (f"[{HUGE}, 1{HUGE}]", "[1e400, 1e401]", "[1e400, 10e399]")
    ]


def test_any_object() -> None:
    """Numbers are of no matter where every object will do."""
    assert judge(json_object_source())(f'{{"a": {HUGE}}}') is True


def test_text_that_is_no_json() -> None:
    """Not valid, whatever the schema."""
    assert judge(schema_source({}))("}") is False


def test_regular_expression_the_validator_cannot_read() -> None:
    """No judge, no verdict."""
    assert judge(regex_source("("))("(") is None


@pytest.mark.parametrize("fault", [RuntimeError, MemoryError, RecursionError, BaseException])
def test_whatever_the_judge_raises_it_cannot_say(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: type[BaseException]
) -> None:
    """A failure of the validator, a panic included, is no verdict, and is told once."""

    def fail(*_: object) -> bool:
        raise fault("made up")

    monkeypatch.setattr(proof, "_with_json", fail)
    is_valid = judge(schema_source({}))
    assert [None, None] == [is_valid("1"), is_valid("2")]
    assert [("katagami", logging.WARNING)] == [record[:2] for record in caplog.record_tuples]
    assert "made up" in caplog.text


def test_an_interrupt_is_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the command even while a text is judged."""

    def interrupt(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(proof, "_with_json", interrupt)
    with pytest.raises(KeyboardInterrupt):
        judge(schema_source({}))("1")
