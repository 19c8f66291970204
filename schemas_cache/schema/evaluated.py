"""Which subschemas the value of a property has to satisfy, by layer.

In: facets, and a property: its name or None for any that no layer declares, and which patterns its name matches. Out: a
`Node`. Cost: linear in the layers.

`additionalProperties` is about the neighbours in its own layer. `unevaluatedProperties` is about every layer that its
subschema applies in place, as far as it holds: in one of the `alternatives` that is known, so the rule is exact. What
holds because of a `not` evaluates nothing. Source: JSON Schema Core 2020-12, 11.3 (and 7.7.1.1 for what `not` drops).
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas_cache.schema.facets import Facets
from schemas_cache.schema.nodes import BRANCHES, DEPENDENTS, IN_PLACE, Node, Schemas
from schemas_cache.work import spend


def value_node(facets: Facets, schemas: Schemas, name: str | None, matched: frozenset[str]) -> Node:
    """Positions of all that the value of a property has to satisfy; none: nobody speaks of it."""
    node: list[str] = []
    knowing: set[str] = set()
    spend(1 + len(facets.layers))
    for pointer, layer in facets.layers.items():
        own = [layer.properties[name]] if name is not None and name in layer.properties else []
        own += [position for pattern, position in layer.patterns.items() if pattern in matched]
        if not own and layer.additional is not None:
            own = [layer.additional]
        node += own
        knowing |= {pointer} if own else set()
    for holder, position in facets.unevaluated_properties.items():
        below = set(applied_by(holder, facets, schemas))
        if knowing.isdisjoint(below) and (below - {holder}).isdisjoint(facets.unevaluated_properties):
            node.append(position)
    return tuple(dict.fromkeys(node))


def applied_by(holder: str, facets: Facets, schemas: Schemas) -> Iterator[str]:
    """A subschema and those that it applies in place and that hold, but for the sake of a `not`."""
    held = set(facets.positions)
    seen, todo = {holder}, [holder]
    while todo:
        pointer = todo.pop()
        if facets.conditions.get(pointer) is False:
            continue
        yield pointer
        fresh = [target for target in _children(pointer, facets, schemas) if target in held and target not in seen]
        seen.update(fresh)
        todo += fresh


def _children(pointer: str, facets: Facets, schemas: Schemas) -> Iterator[str]:
    schema = schemas[pointer]
    for keyword, value in schema.items() if isinstance(schema, dict) else ():
        if keyword in IN_PLACE and keyword != "^not":
            yield from IN_PLACE[keyword](value)
        elif keyword in BRANCHES:
            for branch in BRANCHES[keyword](value):
                if all(target in facets.positions or schemas[target] is True for target in branch):
                    yield from branch
        elif keyword in DEPENDENTS:
            yield from (v for name, v in value.items() if isinstance(v, str) and name in facets.required)
