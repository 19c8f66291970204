"""Two independent validators as one judge of texts: jsonschema-rs and jsonschema, formats included.

In: a schema and JSON texts. Out: a `Ruling` for each. Cost: some tenths of a millisecond a text, nearly all of it
jsonschema's.

A reader of JSON makes doubles of numbers with a point, so validators err by rounding: 0.07 is no `multipleOf` 0.01 to
some, and 0.29999999999999999999 not below 0.3. So where schema or text has such numbers a text is judged twice: as
doubles, and exactly, each number being the decimal that is written, in the schema as in the text (`Decimal` for
jsonschema-rs, `Fraction` for jsonschema). The exact ruling counts; where only the doubles are at fault, it says so.

Patterns are ECMA-262's: for jsonschema, which uses Python's `re`, `$` and `.` are respelled. It checks few formats
itself, and of an address only that it has an `@`: but for those of `OWN_FORMATS` it asks jsonschema-rs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache, cached_property, partial
from numbers import Number
from typing import Any

import jsonschema
import jsonschema_rs
from jsonschema.validators import extend

from tests.suites import random_schemas

PYTHON_SPELLING = str.maketrans({"$": r"\Z", ".": r"[^\n\r\u2028\u2029]"})
Standard = jsonschema.Draft202012Validator
OWN_FORMATS = ("date", "ipv4", "ipv6", "uuid")


def _format_checker() -> jsonschema.FormatChecker:
    checker = jsonschema.FormatChecker(OWN_FORMATS)
    for name in set(random_schemas.FORMATS) - set(OWN_FORMATS):
        checker.checkers = {**checker.checkers, name: (partial(_has_format, name), ())}
    return checker


def _has_format(name: str, value: object) -> bool:
    return not isinstance(value, str) or bool(_format_validator(name).is_valid(value))


@cache
def _format_validator(name: str) -> Any:
    return jsonschema_rs.Draft202012Validator({"format": name}, validate_formats=True)


FORMATS = _format_checker()


def _is_number(_checker: Any, value: object) -> bool:
    return isinstance(value, Number) and not isinstance(value, bool)


def _is_integer(_checker: Any, value: object) -> bool:
    return isinstance(value, int | Fraction) and not isinstance(value, bool) and value.denominator == 1


Exact: Any = extend(  # type: ignore[no-untyped-call]
    Standard, type_checker=Standard.TYPE_CHECKER.redefine_many({"number": _is_number, "integer": _is_integer})
)


@dataclass(frozen=True)
class Ruling:
    """What the validators say of one text.

    Attributes
    ----------
    valid : bool
        What both say.
    disputed : bool
        They contradict each other, numbers being exact; `valid` is False then.
    rounded : bool
        On doubles one of them says something else.
    """

    valid: bool
    disputed: bool = False
    rounded: bool = False


@dataclass(frozen=True)
class Validators:
    """Both validators of one schema, on doubles and on exact numbers."""

    schema: Any

    def rule(self, text: str) -> Ruling:
        """Judge one text, which has to be JSON."""
        value = json.loads(text)
        on_doubles = self._rust.is_valid(value), self._python.is_valid(value)
        if not (self._schema_has_decimals or has_decimals(text)):
            return Ruling(all(on_doubles), on_doubles[0] != on_doubles[1])
        exactly = (
            self._exact_rust.is_valid(json.loads(text, parse_float=Decimal)),
            self._exact_python.is_valid(json.loads(text, parse_float=Fraction)),
        )
        return Ruling(all(exactly), exactly[0] != exactly[1], on_doubles != exactly)

    @cached_property
    def _schema_has_decimals(self) -> bool:
        return has_decimals(json.dumps(self.schema))

    @cached_property
    def _rust(self) -> Any:
        return jsonschema_rs.Draft202012Validator(self.schema, validate_formats=True)

    @cached_property
    def _exact_rust(self) -> Any:
        return jsonschema_rs.Draft202012Validator(with_numbers(self.schema, Decimal), validate_formats=True)

    @cached_property
    def _python(self) -> Any:
        return Standard(for_python(self.schema), format_checker=FORMATS)

    @cached_property
    def _exact_python(self) -> Any:
        return Exact(with_numbers(for_python(self.schema), Fraction), format_checker=FORMATS)


def has_decimals(text: str) -> bool:
    """Whether a document has a number with a point or an exponent."""
    found: list[str] = []
    json.loads(text, parse_float=found.append)
    return bool(found)


def with_numbers(schema: Any, number: Callable[[str], Any]) -> Any:
    """The same schema, its doubles being the decimals that are written."""
    if isinstance(schema, dict):
        return {word: with_numbers(value, number) for word, value in schema.items()}
    if isinstance(schema, list):
        return [with_numbers(value, number) for value in schema]
    return number(repr(schema)) if isinstance(schema, float) else schema


def for_python(schema: Any) -> Any:
    """The same schema with patterns that mean to Python's `re` what they mean to ECMA-262."""
    if isinstance(schema, list):
        return [for_python(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    respelled = {word: for_python(value) for word, value in schema.items()}
    if isinstance(schema.get("pattern"), str):
        respelled["pattern"] = schema["pattern"].translate(PYTHON_SPELLING)
    if "patternProperties" in schema:
        by_pattern = respelled["patternProperties"].items()
        respelled["patternProperties"] = {key.translate(PYTHON_SPELLING): value for key, value in by_pattern}
    return respelled
