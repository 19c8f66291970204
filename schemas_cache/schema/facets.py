"""What a value has to satisfy, by keyword, once subschemas are one: `Facets`, and the parts that they are made of.

In: nothing. Out: the types that `merge` fills, `alternatives` forks and the writers of each JSON type read. Cost: a
fork copies the lists, not what is in them.

A value has to satisfy every layer of property keywords at once, so layers are kept side by side: a name that one of
them knows may be forbidden by the `additionalProperties: false` of another. Rejected: one merged layer
(`additionalProperties` is about its own neighbours only).
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass, field
from fractions import Fraction

from schemas_cache.errors import Finding
from schemas_cache.schema.document import Json
from schemas_cache.schema.nodes import Node

ATOMS = ("null", "boolean", "integer", "fraction", "string", "array", "object")
"""Disjoint types: a `number` is an integer or a fraction."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One of the four keywords that bound numbers."""

    keyword: str
    value: Fraction
    pointer: str


@dataclass(frozen=True, slots=True)
class Enumeration:
    """The values of one `enum` or `const`."""

    keyword: str
    values: list[Json]
    pointer: str


@dataclass(slots=True)
class Layer:
    """Property keywords of one subschema; they know of each other, and of no other layer."""

    properties: dict[str, str] = field(default_factory=dict)
    patterns: dict[str, str] = field(default_factory=dict)
    additional: str | None = None


@dataclass(slots=True)
class ArrayLayer:
    """Array keywords of one subschema that know of each other: `rest` is about the elements behind `prefix`."""

    prefix: list[str] = field(default_factory=list)
    rest: str | None = None
    contains: str | None = None
    least: int = 1
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Dependent:
    """What the presence of a property asks for: other names, or that a subschema holds."""

    keyword: str
    pointer: str
    names: tuple[str, ...]
    schema: str | None
    trail: frozenset[str]


@dataclass(frozen=True, slots=True)
class Choice:
    """An `anyOf`, a `oneOf` or an `if` at `pointer`: branches, each a node, and the positions that led to it."""

    keyword: str
    pointer: str
    branches: tuple[Node, ...]
    trail: frozenset[str]


@dataclass(slots=True)
class Facets:
    """What a value has to satisfy, by keyword; `positions` are those of the subschemas that went in.

    `conditions` are the positions that hold because of a `not` or an `if` only: they never close an object. True: an
    `if`, whose properties count as evaluated. `unenforced` is what could not be expressed at all, `choices` are those
    that no branch was chosen of yet.
    """

    types: frozenset[str] = frozenset(ATOMS)
    min_length: int = 0
    max_length: int | None = None
    lengths_at: list[tuple[str, str]] = field(default_factory=list)
    patterns: dict[str, str] = field(default_factory=dict)
    bounds: list[Bound] = field(default_factory=list)
    is_plain_integer: bool = False
    multiples: list[tuple[Fraction, str]] = field(default_factory=list)
    min_items: int = 0
    max_items: int | None = None
    arrays: dict[str, ArrayLayer] = field(default_factory=dict)
    unique_items: dict[str, None] = field(default_factory=dict)
    unevaluated_items: dict[str, str] = field(default_factory=dict)
    layers: dict[str, Layer] = field(default_factory=dict)
    required: dict[str, str] = field(default_factory=dict)
    forbidden: dict[str, str] = field(default_factory=dict)
    key_schemas: dict[str, str] = field(default_factory=dict)
    min_properties: int = 0
    max_properties: int | None = None
    dependents: dict[str, tuple[Dependent, ...]] = field(default_factory=dict)
    unevaluated_properties: dict[str, str] = field(default_factory=dict)
    enumerations: list[Enumeration] = field(default_factory=list)
    positions: list[str] = field(default_factory=list)
    excluded_values: list[Json] = field(default_factory=list)
    excluded_patterns: dict[str, str] = field(default_factory=dict)
    formats: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, bool] = field(default_factory=dict)
    unenforced: dict[Finding, None] = field(default_factory=dict)
    choices: list[Choice] = field(default_factory=list)

    def fork(self) -> Facets:
        """A copy that can take another branch."""
        twin = copy.copy(self)
        for facet in dataclasses.fields(self):
            value = getattr(self, facet.name)
            if isinstance(value, list | dict):
                setattr(twin, facet.name, value.copy())
        return twin


def least(one: int | None, other: int | None) -> int | None:
    """The tighter of two upper bounds; None: no bound."""
    return min((bound for bound in (one, other) if bound is not None), default=None)
