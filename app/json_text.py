"""Bytes to one JSON value, within limits; for request bodies and for files.

In: bytes, and what to call them in a message. Out: the value, with the keys of objects in the order they came in and
numbers as `json` reads them. Cost: linear. What is refused here, although `json` takes it: duplicate keys (which of the
two is meant?), NaN and numbers beyond a double, halves of surrogate pairs (no text that could be sent back holds them),
and nesting beyond `MAX_DEPTH`, which would exhaust the stack of whatever walks the value.
"""

from __future__ import annotations

import json
import math
from typing import Any

from app.words import clip

MAX_DEPTH = 256  # 64 nested subschemas take at most 3 levels each
MAX_DIGITS = 4000  # of an integer; Python's own limit is a little above

FAULTS = {  # what the parser says -> what is told
    "Expecting value": "expected a value",
    "Expecting property name enclosed in double quotes": "expected a key in double quotes",
    "Illegal trailing comma before end of object": "expected no comma before the end of the object",
    "Illegal trailing comma before end of array": "expected no comma before the end of the array",
    "Expecting ':' delimiter": "expected a colon",
    "Expecting ',' delimiter": "expected a comma or the end of the object or array",
    "Extra data": "expected nothing more",
    "Unterminated string starting at": "expected the end of the string that begins",
    "Invalid control character at": "expected no control character inside a string",
    "Invalid \\escape": "expected a known escape",
    "Invalid \\uXXXX escape": "expected four hexadecimal digits",
}


class JsonTextError(ValueError):
    """The text is not JSON, or holds what is refused here; the message says where and what."""


def read_json(data: bytes, name: str) -> Any:
    """The value; raises `JsonTextError`, whose message calls the text `name`."""
    try:
        value = json.loads(
            _decode(data, name),
            object_pairs_hook=_unique_object,
            parse_float=_finite_float,
            parse_int=_short_integer,
            parse_constant=_refuse_constant,
        )
    except RecursionError:
        raise _too_deep(name) from None
    except json.JSONDecodeError as error:
        raise JsonTextError(f"{name} is not JSON: {_fault(error)}") from None
    _check_values(value, name)
    return value


def _decode(data: bytes, name: str) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{data[error.start]:02x} at position {error.start} begins no character"
        raise JsonTextError(f"{name} is not UTF-8: {found}") from None
    if text.startswith("\ufeff"):
        raise JsonTextError(f"{name} begins with a byte order mark; leave it out")
    return text


def _fault(error: json.JSONDecodeError) -> str:
    """What was expected, and where."""
    if not error.doc.strip():
        return "it is empty"
    what = FAULTS.get(error.msg, error.msg.lower())
    found = repr(error.doc[error.pos]) if error.pos < len(error.doc) else "the end"
    return f"{what} at line {error.lineno}, column {error.colno}, found {found}"


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    raise JsonTextError(f"the key {clip(twice)!r} occurs twice in one object; leave one of them out")


def _finite_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise JsonTextError(f"the number {clip(text)} is out of range; a double goes to about 1.8e308")
    return value


def _short_integer(text: str) -> int:
    digits = len(text.lstrip("-"))
    if digits > MAX_DIGITS:
        raise JsonTextError(f"a number has {digits} digits; at most {MAX_DIGITS} are read")
    return int(text)


def _refuse_constant(name: str) -> float:
    raise JsonTextError(f"{name} is not a JSON number; send a number, or null")


def _too_deep(name: str) -> JsonTextError:
    return JsonTextError(f"{name} is nested more than {MAX_DEPTH} levels deep")


def _check_values(root: object, name: str) -> None:
    """Walk level by level, without recursion."""
    level: list[Any] = [root]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value)
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str) and not value.isascii():
                _check_text(value)
        if not below:
            return
        level = below
    raise _too_deep(name)


def _check_text(text: str) -> None:
    """Refuse halves of surrogate pairs."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise JsonTextError(f"a string holds {half}, half of a surrogate pair, which is no text") from None
