"""An independent judge of what was generated: it shares no code with the compiler.

In: a `Source` and the complete texts. Out: True or False, or None where no judge exists for this source. jsonschema-rs
judges schemas, and regular expressions too (as a `pattern` with both ends anchored, in ECMA-262's reading); choices are
looked up; any JSON object must parse to one. Cost: one build of the validator, then linear in the text. Rejected:
Python's `re`, whose classes and anchors differ from ECMA-262's; asking the matcher, which would only agree with itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import jsonschema_rs

from schemas_cache import Source

Judge = Callable[[str], bool | None]


def judge(source: Source) -> Judge:
    """The judge for this source."""
    if source.kind == "choice":
        return lambda text: text in source.content
    if source.kind == "json_object":
        return lambda text: _with_json(text, lambda value: isinstance(value, dict))
    schema = {"type": "string", "pattern": f"^(?:{source.content})$"} if source.kind == "regex" else source.content
    validator = _validator(schema)
    if validator is None:
        return lambda _: None
    if source.kind == "regex":
        return lambda text: _is_valid(validator, text)
    return lambda text: _with_json(text, lambda value: _is_valid(validator, value))


def _validator(schema: dict[str, Any] | bool) -> jsonschema_rs.Validator | None:
    """None for a schema that this validator cannot read; the newest draft where `$schema` names none that it knows."""
    for build in (jsonschema_rs.validator_for, jsonschema_rs.Draft202012Validator):
        try:
            return build(schema, offline=True)  # a reference never makes the server fetch anything
        except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
            continue
    return None


def _is_valid(validator: jsonschema_rs.Validator, value: object) -> bool | None:
    try:
        return bool(validator.is_valid(value))
    except ValueError:  # a value that the validator cannot hold
        return None


def _with_json(text: str, check: Callable[[Any], bool | None]) -> bool | None:
    """Parse, then check; numbers are kept exact, since a double would lose them."""
    try:
        value = json.loads(text, parse_float=Decimal)
    except json.JSONDecodeError:
        return False
    except (RecursionError, ValueError):  # deeper, or digits longer, than Python's parser goes
        return None
    return check(value)
