"""What a writer of one type may ask of the lowering that it is part of.

In: nothing. Out: the protocol `Writing`, so that `strings`, `numbers`, `arrays` and `objects` know what they may call
and nothing of what calls them. Cost: none.
"""

from __future__ import annotations

from typing import Protocol

from schemas_cache.errors import Finding
from schemas_cache.grammar import Expr, Ref
from schemas_cache.schema.merge import Facets, Node, Schemas
from schemas_cache.schema.options import SchemaOptions
from schemas_cache.spelling import Characters


class Writing(Protocol):
    """A schema on its way to a grammar, as far as the writers of its types see it."""

    schemas: Schemas
    options: SchemaOptions
    characters: Characters

    def value(self, node: Node, depth: int, owner: str) -> Expr:
        """A value that satisfies all of `node`, inside `depth` brackets; `owner` is where to report that it is free."""

    def free(self, rule: Ref, pointer: str) -> Ref:
        """One of the rules of free JSON."""

    def cannot(self, finding: Finding) -> None:
        """Note what cannot be enforced: an error under `strict`, otherwise dropped."""

    def dead_end(self, pointer: str, keyword: str, reason: str) -> None:
        """Note that no value satisfies this; a reason to report if that makes the whole schema impossible."""


def owner_of(facets: Facets) -> str:
    """The subschema to report for what its facets amount to."""
    return facets.members[0] if facets.members else "#"
