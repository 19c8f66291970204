"""Subschemas that hold together, the keywords that bring others in, and the names of those that no schema has.

In: subschemas by position (`Reading`). Out: `Node`, a conjunction of positions, in its simplest form; and, for each
keyword that applies subschemas to the same value, which those are. Cost: linear in the positions. The stages behind
this one take such keywords from these tables, so that all of them follow the same ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from schemas_cache.schema.reading import Keywords

Node = tuple[str, ...]
"""Positions of subschemas that must all hold; none: any value."""
Schemas = Mapping[str, Keywords | bool]
"""Subschemas by position."""

DERIVED = "^"
"""In the names of positions that no schema has, but which `logic` derived from one; escaped in all others."""
COMPLEMENT = "^not"
"""What the name of a complement ends with, behind that of the subschema."""
NOTHING, ANYTHING = "^false", "^true"
"""The positions of `false` and `true`, which every schema has behind `logic`."""
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
BRANCHES: dict[str, Callable[[Any], tuple[Node, ...]]] = {
    "anyOf": lambda branches: tuple((branch,) for branch in branches),
    "oneOf": lambda branches: tuple((branch,) for branch in branches),
    "^if": tuple,
}
"""Keywords of which one branch holds, and its choices."""
UNEVALUATED = frozenset({"unevaluatedProperties", "unevaluatedItems"})
"""Keywords about all that their own subschema applies in place."""


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
