"""What is wrong with a value, in words of the project: what was expected, and what was found.

In: one fault as pydantic reports it. Out: the rest of a sentence whose subject is the field: "must be a string, not the
number 5". Cost: constant. Rejected: pydantic's own texts, which speak of its types, tags and validators.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic_core import ErrorDetails

MAX_QUOTE = 40  # characters of the value that is quoted


def clip(value: object, length: int = 80) -> str:
    """The value as short text, for messages that quote what came from outside."""
    text = str(value)
    return text if len(text) <= length else text[: length - 1] + "…"


def found(value: object) -> str:
    """A JSON value in few words."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return f"the string {clip(json.dumps(value, ensure_ascii=False), MAX_QUOTE)}"
    if isinstance(value, int | float):
        return f"the number {clip(value, MAX_QUOTE)}"
    if isinstance(value, dict):
        return "an object"
    return "an array" if isinstance(value, list | tuple) else clip(value, MAX_QUOTE)


def count(number: int, what: str) -> str:
    """A number with its noun: `1 item`, `2 items`."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def _type(expected: str) -> Callable[[ErrorDetails], str]:
    return lambda fault: f"must be {expected}, not {found(fault['input'])}"


def _bound(words: str, name: str) -> Callable[[ErrorDetails], str]:
    return lambda fault: f"must be {words} {_figure(_context(fault)[name])}, not {clip(fault['input'], MAX_QUOTE)}"


def _figure(bound: float) -> str:
    """Whole numbers to their last digit."""
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def _context(fault: ErrorDetails) -> dict[str, Any]:
    return fault.get("ctx", {})


def _options(listed: str) -> str:
    """Pydantic lists what it expects in single quotes; JSON has double ones."""
    return listed.replace("'", '"')


def _tag_found(fault: ErrorDetails) -> str:
    given = fault["input"].get("type") if isinstance(fault["input"], dict) else fault["input"]
    return f"must be one of {_options(_context(fault)['expected_tags'])}, not {found(given)}"


_REASONS: dict[str, Callable[[ErrorDetails], str]] = {
    "missing": lambda _: "is required",
    "extra_forbidden": lambda _: "unknown field",
    "union_tag_not_found": lambda _: "is required: it says what the text must be",
    "union_tag_invalid": _tag_found,
    "literal_error": lambda f: f"must be {_options(_context(f)['expected'])}, not {found(f['input'])}",
    "string_pattern_mismatch": lambda f: f"must match {_context(f)['pattern']}, not {found(f['input'])}",
    "too_short": lambda f: f"must hold at least {count(_context(f)['min_length'], 'item')}",
    "too_long": lambda f: f"must hold at most {count(_context(f)['max_length'], 'item')}",
    "greater_than": _bound("greater than", "gt"),
    "greater_than_equal": _bound("at least", "ge"),
    "less_than": _bound("less than", "lt"),
    "less_than_equal": _bound("at most", "le"),
    "finite_number": lambda _: "must be a finite number",
    **dict.fromkeys(("string_type", "path_type"), _type("a string")),
    **dict.fromkeys(("bool_type", "bool_parsing"), _type("true or false")),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), _type("an integer")),
    **dict.fromkeys(("float_type", "float_parsing"), _type("a number")),
    **dict.fromkeys(("list_type", "tuple_type"), _type("an array")),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "mapping_type"), _type("an object")),
    "invalid_type": lambda fault: f"{fault['msg']}, not {found(fault['input'])}",
}


def reason_of(fault: ErrorDetails) -> str:
    """What is wrong, the field being the subject; faults with words of their own keep them."""
    reason = _REASONS.get(fault["type"])
    return reason(fault) if reason else fault["msg"]
