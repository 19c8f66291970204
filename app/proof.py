"""An independent judge of what was generated: it shares no code with the compiler.

In: a `Source` and the complete texts. Out: True or False, or None where no judge exists for this source. jsonschema-rs
judges schemas, and regular expressions too (as a `pattern` with both ends anchored, in ECMA-262's reading); choices are
looked up; any JSON object must parse to one. Cost: one build of the validator, then linear in the text. Rejected:
Python's `re`, whose classes and anchors differ from ECMA-262's; asking the matcher, which would only agree with itself.

Numbers are kept exact, as `Decimal`. An exponent of more than 18 digits, which that type cannot hold, becomes one of 17
digits with its sign: no bound, constant or divisor of a schema lies between the two, so the verdict is the same. Only
two such numbers cannot be told apart, so where items have to be unique the judge has no word on them.

A judge never costs anybody the text: whatever it raises means that it cannot say, and is told once in the log.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import jsonschema_rs

from schemas_cache import Source

Judge = Callable[[str], bool | None]

LONGEST_INTEGER = 4000  # digits
FAR_EXPONENT = 10**17  # beyond every number that a schema can name, and within what `Decimal` holds

log = logging.getLogger("katagami")


def judge(source: Source) -> Judge:
    """The judge for this source; it raises nothing, and says None where it cannot say."""
    try:
        check = _judge(source)
    except Exception as error:
        log.warning("a schema cannot be read by the validator, so its texts are not judged: %s", error)
        return lambda _: None
    return _Unfailing(check)


class _Unfailing:
    """The judge, with None for whatever it raises; the first failure goes to the log."""

    def __init__(self, check: Judge) -> None:
        self.check, self.failed = check, False

    def __call__(self, text: str) -> bool | None:
        """The verdict."""
        try:
            return self.check(text)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the validator's own language is no `Exception`
            if not self.failed:
                log.warning("a text could not be judged: %s: %s", type(error).__name__, error)
            self.failed = True
            return None


def _judge(source: Source) -> Judge:
    if source.kind == "choice":
        return lambda text: text in source.content
    if source.kind == "json_object":
        return lambda text: _with_json(text, lambda value: isinstance(value, dict))
    if source.kind == "regex":
        pattern = _validator({"type": "string", "pattern": f"^(?:{source.content})$"})
        return lambda text: pattern.is_valid(text) if pattern else None
    validator = _validator(source.content)
    return lambda text: _with_json(text, validator.is_valid, source.content) if validator else None


def _validator(schema: dict[str, Any] | bool) -> jsonschema_rs.Validator | None:
    """None for a schema that this validator cannot read; the newest draft where `$schema` names none that it knows."""
    for build in (jsonschema_rs.validator_for, jsonschema_rs.Draft202012Validator):
        try:
            return build(schema, offline=True)  # a reference never makes the server fetch anything
        except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError):
            continue
    return None


class _Numbers:
    """Reads numbers, and remembers whether one was brought nearer."""

    def __init__(self) -> None:
        self.moved = False

    def __call__(self, text: str) -> Decimal:
        """The number, or one of its sign and size where its exponent has too many digits."""
        try:
            return Decimal(text)
        except InvalidOperation:
            self.moved = True
            digits, _, exponent = text.lower().partition("e")
            return Decimal(f"{digits}e{'-' if exponent.startswith('-') else ''}{FAR_EXPONENT}")


def _integer(text: str) -> int | Decimal:
    """The number; Python's own integers are not read beyond some thousand digits."""
    return int(text) if len(text) <= LONGEST_INTEGER else Decimal(text)


def _with_json(text: str, check: Callable[[Any], bool], schema: object = True) -> bool | None:
    """Parse, then check."""
    numbers = _Numbers()
    try:
        value = json.loads(text, parse_float=numbers, parse_int=_integer)
    except json.JSONDecodeError:
        return False
    if numbers.moved and '"uniqueItems"' in json.dumps(schema):
        return None
    return check(value)
