"""Which rule explains that a valid value is refused."""

from __future__ import annotations

from typing import Any

import pytest

from schemas_cache import SchemaOptions
from tests.suites.explaining import Explainer
from tests.suites.judging import BYTES

TWO = {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("rule", "schema", "value"),
    [
        ("key order", TWO, {"b": 1, "a": 2}),
        ("closed objects", TWO, {"a": 1, "c": 2}),
        ("closed objects + key order", TWO, {"b": 1, "a": 1, "c": 2}),
        ("plain decimals", {"type": "integer"}, 1e20),
        ("plain decimals", {"minimum": 0}, -0.0),
        ("fifteen digits", {"multipleOf": 0.25}, 816076066303841.5),
        ("counted keys", {"minProperties": 2}, {"a": 1, "q": 2}),
        ("formats", {"format": "date"}, "0000-01-01"),
        (None, TWO, {"a": "x"}),
        (None, {"minProperties": 2}, {"a": 1}),
    ],
)
def test_rules(rule: str | None, schema: dict[str, Any], value: Any) -> None:
    """Each is named where the value is accepted without it; what is invalid has none."""
    assert rule == Explainer(schema, SchemaOptions(), BYTES).rule(value)
