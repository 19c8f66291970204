"""The conjunction of subschemas, keyword by keyword, before anything is written.

In: positions that must hold together (a `Node`), and the subschemas they name. Out: `Facets`, one per alternative: what
`type`, lengths, bounds, items, properties and enumerations amount to. `$ref` and its siblings, `anyOf` and its siblings
all come down to this one step. Cost: linear in the keywords, times the alternatives where `anyOf`s meet.

A value has to satisfy every layer of property keywords at once, so layers are kept side by side: a name that one of
them knows may be forbidden by the `additionalProperties: false` of another.

A position that leads back to itself in place adds nothing to the values it allows (the smallest solution), so that
alternative is dropped. A position met twice on other ways holds once, which also ends every recursion: a node is a set
of positions, and there are finitely many.

Rejected: merging schemas as documents (`additionalProperties` is about its own neighbours only, and merged text has no
position to report).
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from schemas_cache.errors import Finding, SchemaTooComplexError
from schemas_cache.limits import MAX_BRANCHES
from schemas_cache.schema.document import Json
from schemas_cache.schema.reading import Keywords

Node = tuple[str, ...]
"""Positions of subschemas that must all hold; none: any value."""
Schemas = Mapping[str, Keywords | bool]
Merge = Callable[["Facets", Any, str], None]

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
    additional: str | None = None


@dataclass(slots=True)
class Facets:
    """What a value has to satisfy, by keyword; `members` are the positions that went in.

    `choices` are `anyOf`s that no branch was chosen of yet, each with the positions that it was reached through.
    """

    types: frozenset[str] = frozenset(ATOMS)
    min_length: int = 0
    max_length: int | None = None
    lengths_at: list[tuple[str, str]] = field(default_factory=list)
    patterns: dict[str, str] = field(default_factory=dict)
    bounds: list[Bound] = field(default_factory=list)
    min_items: int = 0
    max_items: int | None = None
    items: list[str] = field(default_factory=list)
    layers: dict[str, Layer] = field(default_factory=dict)
    required: dict[str, str] = field(default_factory=dict)
    enumerations: list[Enumeration] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    choices: list[tuple[list[str], frozenset[str]]] = field(default_factory=list)

    def fork(self) -> Facets:
        """A copy that can take another branch."""
        twin = copy.copy(self)
        for facet in dataclasses.fields(self):
            value = getattr(self, facet.name)
            if isinstance(value, list | dict):
                setattr(twin, facet.name, value.copy())
        return twin


def simplify(node: Node, schemas: Schemas) -> Node:
    """The same conjunction with plain references followed, `true` dropped and nothing twice."""
    kept: dict[str, None] = {}
    for pointer in node:
        seen: set[str] = set()
        while (target := only_reference(schemas[pointer])) is not None and pointer not in seen:
            seen.add(pointer)
            pointer = target
        if schemas[pointer] is not True and schemas[pointer] != {}:
            kept[pointer] = None
    return tuple(kept)


def only_reference(schema: Keywords | bool) -> str | None:
    """The target where a subschema is a reference and nothing else."""
    return schema["$ref"] if isinstance(schema, dict) and schema.keys() == {"$ref"} else None


def alternatives(node: Node, schemas: Schemas) -> Iterator[Facets]:
    """The facets of each combination of `anyOf` branches; contradictions that show at once are left out.

    Raises
    ------
    SchemaTooComplexError
        Beyond `MAX_BRANCHES` combinations.
    """
    start = Facets()
    stack = [start] if _absorb(start, list(node), frozenset(), schemas) else []
    made = 0
    while stack:
        facets = stack.pop()
        if not facets.choices:
            yield facets
            continue
        branches, trail = facets.choices.pop(0)
        made += len(branches)
        if made > MAX_BRANCHES:
            reason = f"the combinations of anyOf are more than {MAX_BRANCHES}"
            raise SchemaTooComplexError([Finding(node[0], "anyOf", reason, "move common keywords into the branches")])
        forks = [(facets.fork(), branch) for branch in branches]
        stack += [fork for fork, branch in reversed(forks) if _absorb(fork, [branch], trail, schemas)]


def _absorb(facets: Facets, pointers: list[str], trail: frozenset[str], schemas: Schemas) -> bool:
    """Add subschemas and what they refer to, an object's own keywords first; False: nothing satisfies them."""
    pending = [(pointer, trail) for pointer in pointers]
    while pending:
        pointer, above = pending.pop(0)
        schema = schemas[pointer]
        if schema is False or pointer in above:
            return False
        if schema is True or pointer in facets.members:
            continue
        facets.members.append(pointer)
        inside = above | {pointer}
        for keyword, value in schema.items():
            if keyword == "$ref":
                pending.append((value, inside))
            elif keyword == "anyOf":
                facets.choices.append((value, inside))
            else:
                MERGE[keyword](facets, value, pointer)
    return True


def merge_type(facets: Facets, value: Any, pointer: str) -> None:
    """Types meet; `number` covers integers."""
    del pointer
    names = {value} if isinstance(value, str) else set(value)
    facets.types &= names | ({"integer", "fraction"} if "number" in names else set())


def merge_min_length(facets: Facets, value: Any, pointer: str) -> None:
    """The greatest counts."""
    facets.min_length = max(facets.min_length, int(value))
    facets.lengths_at += [(pointer, "minLength")] if value else []


def merge_max_length(facets: Facets, value: Any, pointer: str) -> None:
    """The least counts."""
    facets.max_length = _least(facets.max_length, value)
    facets.lengths_at.append((pointer, "maxLength"))


def merge_pattern(facets: Facets, value: Any, pointer: str) -> None:
    """All count; the same one twice is one."""
    facets.patterns.setdefault(value, pointer)


def merge_bound(keyword: str) -> Merge:
    """All count; which is the tightest depends on the type that they are applied to."""

    def merge(facets: Facets, value: Any, pointer: str) -> None:
        facets.bounds.append(Bound(keyword, Fraction(value), pointer))

    return merge


def merge_items(facets: Facets, value: Any, pointer: str) -> None:
    """Every element satisfies all."""
    del pointer
    facets.items.append(value)


def merge_min_items(facets: Facets, value: Any, pointer: str) -> None:
    """The greatest counts."""
    del pointer
    facets.min_items = max(facets.min_items, int(value))


def merge_max_items(facets: Facets, value: Any, pointer: str) -> None:
    """The least counts."""
    del pointer
    facets.max_items = _least(facets.max_items, value)


def merge_properties(facets: Facets, value: Any, pointer: str) -> None:
    """One more layer, or one more keyword of this subschema's layer."""
    facets.layers.setdefault(pointer, Layer()).properties = value


def merge_additional_properties(facets: Facets, value: Any, pointer: str) -> None:
    """As `properties`: it is about the names that its own layer does not list."""
    facets.layers.setdefault(pointer, Layer()).additional = value


def merge_required(facets: Facets, value: Any, pointer: str) -> None:
    """All names count."""
    for name in value:
        facets.required.setdefault(name, pointer)


def merge_enum(facets: Facets, value: Any, pointer: str) -> None:
    """All count; the values of the first are filtered by the rest."""
    facets.enumerations.append(Enumeration("enum", value, pointer))


def merge_const(facets: Facets, value: Any, pointer: str) -> None:
    """An enumeration of one."""
    facets.enumerations.append(Enumeration("const", [value], pointer))


def _least(one: int | None, other: float) -> int:
    return int(other) if one is None else min(one, int(other))


MERGE: dict[str, Merge] = {
    "type": merge_type,
    "minLength": merge_min_length,
    "maxLength": merge_max_length,
    "pattern": merge_pattern,
    "minimum": merge_bound("minimum"),
    "maximum": merge_bound("maximum"),
    "exclusiveMinimum": merge_bound("exclusiveMinimum"),
    "exclusiveMaximum": merge_bound("exclusiveMaximum"),
    "items": merge_items,
    "minItems": merge_min_items,
    "maxItems": merge_max_items,
    "properties": merge_properties,
    "additionalProperties": merge_additional_properties,
    "required": merge_required,
    "enum": merge_enum,
    "const": merge_const,
}
"""Every keyword of `Reading` but the two that lead to other subschemas."""
