"""Random values near to the borders of a schema: made of its constants and bounds, or of another value by one change.

In: a schema, a value, a seeded `random.Random`. Out: values, valid or not. Cost: microseconds.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

from tests.suites.random_schemas import NAMES, SCALARS, WORDS, Schema, Value


def scalars_of(schema: Any) -> list[Value]:
    """Constants of a schema, numbers around its bounds, and a few others."""
    found = {repr(value): value for value in SCALARS + WORDS}
    for word, value in words(schema):
        if word in ("enum", "const"):
            found |= {repr(one): one for one in (value if word == "enum" else [value])}
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found |= {repr(near): near for near in (value, value - 1, value + 1, -value)}
    return list(found.values())


def words(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every keyword or name and what stands there, at all levels."""
    if isinstance(schema, dict):
        yield from schema.items()
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from words(inner)


def small_values(schema: Schema, rng: Random, count: int) -> list[Value]:
    """Scalars, and arrays and objects of a few of them."""
    scalars = scalars_of(schema)
    values: list[Value] = [[], {}, *rng.sample(scalars, min(len(scalars), count // 2))]
    while len(values) < count:
        some = rng.choices(scalars, k=rng.randint(1, 3))
        values.append(some if rng.random() < 0.4 else dict(zip(rng.sample(NAMES, len(some)), some, strict=True)))
    return values


def neighbour(value: Value, scalars: list[Value], rng: Random) -> Value:
    """The same value but for one change: a leaf, a member, an element, or an order."""
    if isinstance(value, dict | list) and value and rng.random() < 0.5:
        value = copy.deepcopy(value)
        at = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        value[at] = neighbour(value[at], scalars, rng)
        return value
    return _changed(value, scalars, rng)


def _changed(value: Value, scalars: list[Value], rng: Random) -> Value:
    other = rng.choice(scalars)
    if isinstance(value, dict):
        return _other_members(value, other, rng)
    if isinstance(value, list):
        return rng.choice([value[1:], value[:-1], [*value, other], [*value, *value[-1:]], value[::-1]])
    if isinstance(value, str):
        return rng.choice([value[1:], value[:-1], value + rng.choice("ab1é日\n"), value * 2, other])
    if isinstance(value, int | float) and not isinstance(value, bool):
        return rng.choice([value + 1, value - 1, -value, value * 10, value / 2, value + 0.1, other])
    return other


def _other_members(value: dict[str, Value], other: Value, rng: Random) -> Value:
    """A member less, one renamed, or another order."""
    members, key = list(value.items()), rng.choice(list(value) or NAMES)
    without = [member for member in members if member[0] != key]
    renamed = [*without, (rng.choice(NAMES), other)]
    return dict(rng.choice([without, renamed, [*members, *renamed[-1:]], members[::-1], [*members[1:], *members[:1]]]))
