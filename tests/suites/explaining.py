"""Why a valid value is refused in its canonical form: the stated rules, one by one.

In: a schema, the options it was compiled with, a value. Out: the rules without which it is accepted, or None. Cost: a
compile for each reading that is tried, once; for each attempt a search for an order of keys that the automaton takes.

The rules, and how each is shown to be the reason:

- closed objects: where the schema says nothing of further keys there are none; accepted when they are open;
- key order: keys come in the order of `properties`; accepted in some other order;
- plain decimals: integers, multiples and numbers within bounds have no exponent that no automaton can compare, and no
  `-0`; accepted as a plain decimal;
- fifteen digits: multiples with a point have no more, so that every double keeps them; the next multiple below, which
  is an integer, is accepted;
- formats: some leave out texts that their standard allows, as `FORMATS` says; accepted without these formats;
- counted keys: where a minimum depends on open keys, these differ in the last four bits of their first character;
  accepted with another first character.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

from schemas_cache import SchemaError, SchemaOptions, Vocabulary, compile_source, schema_source
from schemas_cache.automaton import Automaton
from schemas_cache.schema.decimals import exact
from schemas_cache.schema.formats import FORMATS
from schemas_cache.schema.multiples import FAITHFUL_DIGITS, common_multiple
from schemas_cache.schema.options import Whitespace
from tests.suites.judging import LAZY, OrderSearch, Raw
from tests.suites.random_values import words

READINGS = ("", "closed objects", "formats")
LETTERS = "mnopqrstuvwxyz{|}~"


def canonical(value: Any, whitespace: Whitespace) -> str:
    """The text that Python writes, with the blanks of a mode; raises ValueError for an infinity."""
    separators = (", ", ": ") if whitespace == "spaced" else (",", ":")
    return json.dumps(value, ensure_ascii=False, separators=separators, allow_nan=False)


def plain_decimal(number: str) -> Raw:
    """The same number without an exponent, integral ones without a point."""
    value = Decimal(number)
    return Raw(int(value)) if value == int(value) else Raw(f"{value:f}")


@dataclass
class Explainer:
    """Looks for the rules by which one schema refuses values."""

    schema: Any
    options: SchemaOptions
    vocabulary: Vocabulary
    _known: dict[str, Automaton | None] = field(default_factory=dict)

    def rule(self, value: Any) -> str | None:
        """The rules without which the value is accepted, joined; None where they do not explain it."""
        text = canonical(value, "spaced")
        spellings: dict[str, Callable[[str], Raw]] = {
            "": Raw,
            "plain decimals": plain_decimal,
            "fifteen digits": self._next_multiple,
        }
        renaming = {"": 0, "counted keys": 1, "counted keys ": -1}
        for reading, (digits, number), (keys, step) in product(READINGS, spellings.items(), renaming.items()):
            other = renamed(json.loads(text, parse_float=number, parse_int=Raw), step)
            ordered = self._in_order(reading, other)
            if ordered is not None:
                order = "key order" if list(_keys(json.loads(ordered))) != list(_keys(other)) else ""
                return " + ".join(filter(None, (reading, digits, keys.strip(), order))) or None
        return None

    def _next_multiple(self, number: str) -> Raw:
        plain = plain_decimal(number)
        if "." not in plain or len(plain.strip("-").replace(".", "")) <= FAITHFUL_DIGITS:
            return plain
        step = common_multiple(
            [Fraction(1), *(exact(value) for word, value in words(self.schema) if word == "multipleOf")]
        )
        return Raw(Fraction(plain) // step * step)

    def _in_order(self, reading: str, value: Any) -> str | None:
        if reading not in self._known:
            self._known[reading] = self._automaton(reading)
        automaton = self._known[reading]
        return OrderSearch(automaton).order(value) if automaton else None

    def _automaton(self, reading: str) -> Automaton | None:
        schema = without_inexact_formats(self.schema) if reading == "formats" else self.schema
        options = replace(self.options, whitespace="spaced")
        if reading == "closed objects":
            options = replace(options, additional_properties="open")
        try:
            return compile_source(schema_source(schema, options), self.vocabulary, limits=LAZY).tokens.automaton
        except SchemaError:
            return None


def without_inexact_formats(schema: Any) -> Any:
    """The same schema without the formats that leave out valid texts."""
    if isinstance(schema, list):
        return [without_inexact_formats(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    inexact = {name for name, entry in FORMATS.items() if entry.left_out}
    kept = {word: value for word, value in schema.items() if word != "format" or value not in inexact}
    return {word: without_inexact_formats(value) for word, value in kept.items()}


def renamed(value: Any, step: int) -> Any:
    """The same value, keys apart by their first characters: the first ones stay for 1, the last for -1, all for 0."""
    if isinstance(value, list):
        return [renamed(element, step) for element in value]
    if not isinstance(value, dict) or not step:
        return value
    names: dict[str, str] = {}
    for key in list(value)[::step]:
        free = (letter for letter in LETTERS if _part(letter) not in map(_part, names.values()))
        names[key] = key if _part(key) not in map(_part, names.values()) else next(free, "") + key
    return {names[key]: renamed(inner, step) for key, inner in value.items()}


def _part(key: str) -> int:
    return ord(key[0]) % 16 if key and " " <= key[0] <= "~" else -1


def _keys(value: Any) -> Iterator[str]:
    """All keys, in order."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield str(key)
        yield from _keys(inner)
