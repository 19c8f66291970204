"""The conjunction of subschemas, keyword by keyword, before anything is written.

In: positions that must hold together (a `Node`), and the subschemas they name. Out: `Facets`, one per alternative: what
`type`, lengths, bounds, items, properties and enumerations amount to. `$ref`, `allOf`, `anyOf`, `oneOf`, what `logic`
made of `not` and `if`, and their siblings all come down to this one step. Cost: linear in the keywords, times the
alternatives where `anyOf`s meet. What `oneOf` asks beyond `anyOf`, and which alternatives are contradictions, a
`Chooser` knows.

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
from itertools import combinations
from typing import Any, Protocol

from schemas_cache.errors import Finding, SchemaTooComplexError
from schemas_cache.limits import MAX_BRANCHES
from schemas_cache.schema.decimals import exact
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
    """What a value has to satisfy, by keyword; `members` are the positions that went in.

    `conditions` are the members that hold because of a `not` or an `if` only: they never close an object. True: an
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
    members: list[str] = field(default_factory=list)
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


class Chooser(Protocol):
    """What `alternatives` asks about the facets that it has so far."""

    def branches(self, facets: Facets, choice: Choice) -> tuple[Node, ...]:
        """The branches of a `oneOf`, each with what must not hold beside it."""

    def is_possible(self, facets: Facets) -> bool:
        """False where the facets contradict each other for certain."""


def alternatives(node: Node, schemas: Schemas, chooser: Chooser, start: Facets | None = None) -> Iterator[Facets]:
    """The facets of each combination of branches, on top of `start`; contradictions that show at once are left out.

    Raises
    ------
    SchemaTooComplexError
        Beyond `MAX_BRANCHES` combinations.
    """
    first = start.fork() if start else Facets()
    stack = [first] if _absorb(first, node, frozenset(), schemas) else []
    made = 0
    while stack:
        facets = stack.pop()
        if facets.dependents and all(choice.keyword == "oneOf" for choice in facets.choices):
            stack += filter(chooser.is_possible, reversed(_by_presence(facets, schemas)))
            continue
        if not facets.choices:
            yield facets
            continue
        choice = _next_choice(facets)
        branches = chooser.branches(facets, choice) if choice.keyword == "oneOf" else _branches(facets, choice)
        forks = [(facets.fork(), branch) for branch in reversed(branches)]
        kept = [
            fork
            for fork, branch in forks
            if _absorb(fork, branch, choice.trail, schemas, choice) and chooser.is_possible(fork)
        ]
        stack += kept
        made += len(kept)
        if made > MAX_BRANCHES:
            reason = f"the combinations of {choice.keyword.removeprefix('^')} are more than {MAX_BRANCHES}"
            hint = "move common keywords into the branches"
            raise SchemaTooComplexError([Finding(choice.pointer, choice.keyword.removeprefix("^"), reason, hint)])


def _branches(facets: Facets, choice: Choice) -> tuple[Node, ...]:
    """The branches, and under `unevaluated...` every set of them: those that hold besides evaluate as well."""
    many, holders = len(choice.branches), facets.unevaluated_properties.keys() | facets.unevaluated_items.keys()
    if choice.keyword != "anyOf" or many > MAX_SETS_OF or choice.trail.isdisjoint(holders):
        return choice.branches
    sets = (subset for size in range(1, many + 1) for subset in combinations(choice.branches, size))
    return tuple(tuple(pointer for branch in subset for pointer in branch) for subset in sets)


def _by_presence(facets: Facets, schemas: Schemas) -> list[Facets]:
    """Facets without a property that others depend on, and with it and all that it asks for.

    What is no object has no members and goes with the first, so that no value is in both.
    """
    name, asked = next(iter(facets.dependents.items()))
    del facets.dependents[name]
    if "object" not in facets.types or name in facets.forbidden:
        return [facets]
    without, with_it = facets.fork(), facets.fork()
    without.types -= {"object"} if name in facets.required else frozenset()
    without.forbidden.setdefault(name, asked[0].pointer)
    with_it.types &= {"object"}
    merge_required(with_it, [name], asked[0].pointer)
    possible = all(_meet(with_it, dependent, schemas) for dependent in asked)
    return [fork for fork, kept in ((without, bool(without.types)), (with_it, possible)) if kept]


def _meet(facets: Facets, dependent: Dependent, schemas: Schemas) -> bool:
    """Add what a property that is present asks for; False: nothing satisfies it."""
    merge_required(facets, dependent.names, dependent.pointer)
    if dependent.schema is None:
        return True
    choice = Choice(dependent.keyword, dependent.pointer, ((dependent.schema,),), dependent.trail)
    return _absorb(facets, (dependent.schema,), dependent.trail, schemas, choice)


def _next_choice(facets: Facets) -> Choice:
    """Take the first choice, a `oneOf` only where nothing else is left: what holds beside it helps to tell it apart."""
    order = range(len(facets.choices))
    return facets.choices.pop(min(order, key=lambda i: facets.choices[i].keyword == "oneOf"))


def _absorb(facets: Facets, node: Node, trail: frozenset[str], schemas: Schemas, choice: Choice | None = None) -> bool:
    """Add subschemas and what they refer to, an object's own keywords first; False: nothing satisfies them."""
    pending = [(pointer, trail, _role(facets, pointer, choice)) for pointer in node]
    while pending:
        pointer, above, role = pending.pop(0)
        schema = schemas[pointer]
        if schema is False or pointer in above:
            return False
        if role is None:
            facets.conditions.pop(pointer, None)
        if schema is True or pointer in facets.members:
            continue
        facets.members.append(pointer)
        if role is not None:
            facets.conditions[pointer] = role
        inside = above | {pointer}
        below: list[tuple[str, frozenset[str], bool | None]] = []
        for keyword, value in schema.items():
            if keyword in IN_PLACE:
                below += [(target, inside, _role_below(keyword, role)) for target in IN_PLACE[keyword](value)]
            elif keyword in BRANCHES:
                facets.choices.append(Choice(keyword, pointer, BRANCHES[keyword](value), inside))
            elif keyword in DEPENDENTS:
                _merge_dependents(facets, keyword, value, pointer, inside)
            elif keyword not in JUDGED:
                MERGE[keyword](facets, value, pointer)
        pending = below + pending
    return True


def _role(facets: Facets, pointer: str, choice: Choice | None) -> bool | None:
    """Why a branch holds: None where it is a plain part of the schema."""
    if choice is None:
        return None
    if DERIVED in pointer:
        return False
    if choice.keyword == "^if" and pointer == choice.branches[0][0]:
        return facets.conditions.get(choice.pointer, True)
    return facets.conditions.get(choice.pointer)


def _role_below(keyword: str, role: bool | None) -> bool | None:
    return False if keyword == "^not" else role


DERIVED = "^"
"""In the names of positions that no schema has, but which `logic` derived from one; escaped in all others."""
COMPLEMENT = "^not"
"""What the name of a complement ends with, behind that of the subschema."""
JUDGED = frozenset({"not", "if", "then", "else"})
"""What `logic` has rewritten as `^` words; kept for the validator that judges listed values."""
IN_PLACE: dict[str, Callable[[Any], Node]] = {
    "$ref": lambda target: (target,),
    "allOf": tuple,
    "^not": lambda target: (target,),
}
"""Keywords whose subschemas hold as well, and which those are."""
DEPENDENTS = frozenset({"dependentRequired", "dependentSchemas", "dependencies"})
"""Keywords that branch on whether a property is present."""
MAX_SETS_OF = 6
"""Branches of an `anyOf` whose every set is an alternative, 63 of them, where it matters which others hold besides."""
BRANCHES: dict[str, Callable[[Any], tuple[Node, ...]]] = {
    "anyOf": lambda branches: tuple((branch,) for branch in branches),
    "oneOf": lambda branches: tuple((branch,) for branch in branches),
    "^if": tuple,
}
"""Keywords of which one branch holds, and its choices."""


def _merge_dependents(facets: Facets, keyword: str, value: Any, pointer: str, trail: frozenset[str]) -> None:
    """All count, in the order of the names that they depend on."""
    for name, asked in value.items():
        names, schema = (tuple(asked), None) if isinstance(asked, list) else ((), asked)
        known = facets.dependents.get(name, ())
        facets.dependents[name] = (*known, Dependent(keyword, pointer, names, schema, trail))


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


def merge_format(facets: Facets, value: Any, pointer: str) -> None:
    """All count; unknown ones were left out when reading."""
    facets.formats.setdefault(value, pointer)


def merge_bound(keyword: str) -> Merge:
    """All count; which is the tightest depends on the type that they are applied to."""

    def merge(facets: Facets, value: Any, pointer: str) -> None:
        facets.bounds.append(Bound(keyword, exact(value), pointer))

    return merge


def merge_multiple_of(facets: Facets, value: Any, pointer: str) -> None:
    """All count."""
    facets.multiples.append((exact(value), pointer))


def merge_items(facets: Facets, value: Any, pointer: str) -> None:
    """About the elements behind the prefix of its own layer."""
    facets.arrays.setdefault(pointer, ArrayLayer()).rest = value


def merge_prefix_items(facets: Facets, value: Any, pointer: str) -> None:
    """One more layer; position by position all count."""
    facets.arrays.setdefault(pointer, ArrayLayer()).prefix = value


def merge_contains(facets: Facets, value: Any, pointer: str) -> None:
    """Each is counted by itself."""
    facets.arrays.setdefault(pointer, ArrayLayer()).contains = value


def merge_min_contains(facets: Facets, value: Any, pointer: str) -> None:
    """About the `contains` of its own layer, if there is one."""
    facets.arrays.setdefault(pointer, ArrayLayer()).least = int(value)


def merge_max_contains(facets: Facets, value: Any, pointer: str) -> None:
    """As `minContains`."""
    facets.arrays.setdefault(pointer, ArrayLayer()).most = int(value)


def merge_unique_items(facets: Facets, value: Any, pointer: str) -> None:
    """Asking twice is asking once; `false` says nothing."""
    if value:
        facets.unique_items[pointer] = None


def merge_unevaluated_items(facets: Facets, value: Any, pointer: str) -> None:
    """As `unevaluatedProperties`."""
    facets.unevaluated_items[pointer] = value


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


def merge_pattern_properties(facets: Facets, value: Any, pointer: str) -> None:
    """As `properties`."""
    facets.layers.setdefault(pointer, Layer()).patterns = value


def merge_property_names(facets: Facets, value: Any, pointer: str) -> None:
    """Every name satisfies all."""
    facets.key_schemas.setdefault(value, pointer)


def merge_min_properties(facets: Facets, value: Any, pointer: str) -> None:
    """The greatest counts."""
    del pointer
    facets.min_properties = max(facets.min_properties, int(value))


def merge_max_properties(facets: Facets, value: Any, pointer: str) -> None:
    """The least counts."""
    del pointer
    facets.max_properties = _least(facets.max_properties, value)


def merge_unevaluated_properties(facets: Facets, value: Any, pointer: str) -> None:
    """Each is about what its own subschema, with all that it applies in place, does not know."""
    facets.unevaluated_properties[pointer] = value


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


def merge_types(facets: Facets, value: Any, pointer: str) -> None:
    """As `type`, in our own disjoint types."""
    del pointer
    facets.types &= value


def merge_excluded_values(facets: Facets, value: Any, pointer: str) -> None:
    """None of these values."""
    del pointer
    facets.excluded_values += value


def merge_excluded_pattern(facets: Facets, value: Any, pointer: str) -> None:
    """Strings without a match; the same pattern twice is one."""
    facets.excluded_patterns.setdefault(value, pointer)


def merge_digits(facets: Facets, value: Any, pointer: str) -> None:
    """Integers are written without a fraction, not even `.0`."""
    del value, pointer
    facets.is_plain_integer = True


def merge_absent(facets: Facets, value: Any, pointer: str) -> None:
    """None of these names."""
    for name in value:
        facets.forbidden.setdefault(name, pointer)


def merge_refused(facets: Facets, value: Any, pointer: str) -> None:
    """What `logic` could not rewrite."""
    del pointer
    facets.unenforced |= dict.fromkeys(value)


def _least(one: int | None, other: float) -> int:
    return int(other) if one is None else min(one, int(other))


MERGE: dict[str, Merge] = {
    "type": merge_type,
    "minLength": merge_min_length,
    "maxLength": merge_max_length,
    "pattern": merge_pattern,
    "format": merge_format,
    "minimum": merge_bound("minimum"),
    "maximum": merge_bound("maximum"),
    "exclusiveMinimum": merge_bound("exclusiveMinimum"),
    "exclusiveMaximum": merge_bound("exclusiveMaximum"),
    "multipleOf": merge_multiple_of,
    "items": merge_items,
    "prefixItems": merge_prefix_items,
    "contains": merge_contains,
    "minContains": merge_min_contains,
    "maxContains": merge_max_contains,
    "uniqueItems": merge_unique_items,
    "unevaluatedItems": merge_unevaluated_items,
    "minItems": merge_min_items,
    "maxItems": merge_max_items,
    "properties": merge_properties,
    "additionalProperties": merge_additional_properties,
    "patternProperties": merge_pattern_properties,
    "propertyNames": merge_property_names,
    "minProperties": merge_min_properties,
    "maxProperties": merge_max_properties,
    "unevaluatedProperties": merge_unevaluated_properties,
    "required": merge_required,
    "enum": merge_enum,
    "const": merge_const,
    "^types": merge_types,
    "^values": merge_excluded_values,
    "^pattern": merge_excluded_pattern,
    "^absent": merge_absent,
    "^digits": merge_digits,
    "^refused": merge_refused,
}
"""Every keyword of `Reading`, and of `logic`, but those that lead to other subschemas in place."""
