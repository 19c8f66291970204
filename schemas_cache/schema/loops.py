"""Finds subschemas that lead back to themselves without taking a step into the document.

In: subschemas by position (`Reading.schemas`). Out: loops of `$ref` alone, which no value can satisfy and the standard
forbids, and whether there are loops at all that pass through logic such as `anyOf`, which have a smallest solution but
which recursive validators do not survive. Cost: linear, without recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from schemas_cache.errors import Finding
from schemas_cache.schema.nodes import Schemas
from schemas_cache.schema.reading import Keywords


def reference_loops(schemas: Schemas) -> list[Finding]:
    """One finding for each loop of references."""
    return [
        Finding(loop[0], "$ref", f"the reference only leads back to itself: {' -> '.join([*loop, loop[0]])}")
        for loop in _loops(schemas, _reference)
    ]


def has_loop_in_place(schemas: Schemas) -> bool:
    """Whether some subschema applies itself to the same value, by way of references and logic."""
    return bool(_loops(schemas, _in_place))


def _in_place(keywords: Keywords) -> list[str]:
    lists = (keywords.get(word, ()) for word in ("allOf", "anyOf", "oneOf"))
    single = (keywords[word] for word in ("not", "if", "then", "else") if word in keywords)
    dependent = (*keywords.get("dependentSchemas", {}).values(), *keywords.get("dependencies", {}).values())
    return [*_reference(keywords), *chain(*lists), *single, *(v for v in dependent if isinstance(v, str))]


def _reference(keywords: Keywords) -> list[str]:
    return [keywords["$ref"]] if "$ref" in keywords else []


def _loops(schemas: Schemas, edges: Callable[[Keywords], Iterable[str]]) -> list[list[str]]:
    """Depth-first search; an edge to a position on the current path closes a loop."""

    def targets(pointer: str) -> Iterator[str]:
        keywords = schemas[pointer]
        return iter(edges(keywords) if isinstance(keywords, dict) else ())

    done: set[str] = set()
    found: list[list[str]] = []
    for start in schemas:
        path = {} if start in done else {start: targets(start)}
        while path:
            here = next(reversed(path))
            target = next(path[here], None)
            if target is None:
                del path[here]
                done.add(here)
            elif target in path:
                found.append(list(path)[list(path).index(target) :])
            elif target not in done:
                path[target] = targets(target)
    return found
