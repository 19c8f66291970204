"""The judge of the suites itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.suites.judging import Case, Document, Judge, Outcome

TWO = {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}


@pytest.mark.parametrize(
    ("outcome", "schema", "text", "valid"),
    [
        ("right", TWO, '{"a": 1, "b": 2}', True),
        ("right", TWO, '{"a": 1}', False),
        ("too loose", TWO, '{"a": 1, "b": 2}', False),
        ("too loose", TWO, '{"b": 2, "a": 1}', False),
        ("too strict", TWO, '{"a": 1}', True),
        ("refused", {"type": "strin"}, "1", True),
        ("right", False, "1", False),
        ("too strict", False, "1", True),
    ],
)
def test_outcomes(outcome: Outcome, schema: Any, text: str, valid: bool) -> None:
    """One document decides."""
    assert Judge().judge(Case("", schema, (Document(text, valid, ""),))).outcome == outcome


def test_order_of_keys_is_found_at_all_levels() -> None:
    """A document whose only fault is the order of its keys is judged in the schema's order, and counted."""
    schema = {"properties": {"x": {"type": "array", "items": TWO}, "y": True}, "additionalProperties": False}
    documents = (
        Document('{"y": [1, {"z": 1.50}], "x": [{"a": 1, "b": 2}, {"z": 0, "b": 2, "a": 1}]}', True, "reordered"),
        Document('{"y": 1, "x": []}', True, "reordered"),
        Document('{"x": [], "y": 1}', True, "as it is"),
        Document('{"y": 1, "x": [], "z": 1}', False, "never"),
    )
    verdict = Judge().judge(Case("", schema, documents))
    assert ("right", 2) == (verdict.outcome, verdict.reordered)


def test_a_slow_case_is_given_up() -> None:
    """The time of a case is bounded, and its outcome says so."""
    assert Judge(timeout_s=1e-5).judge(Case("", TWO, ())).outcome == "slow"
