"""What a writer of one type may ask of the lowering that it is part of.

In: nothing. Out: the protocol `Writing`, so that `strings`, `numbers`, `arrays` and `objects` know what they may call
and nothing of what calls them. Cost: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from schemas_cache.errors import Finding, PatternError
from schemas_cache.grammar import Expr, Ref
from schemas_cache.schema.document import Json
from schemas_cache.schema.facets import Facets
from schemas_cache.schema.nodes import Node, Schemas
from schemas_cache.schema.options import SchemaOptions
from schemas_cache.spelling import Characters


class Writing(Protocol):
    """A schema on its way to a grammar, as far as the writers of its types see it."""

    options: SchemaOptions
    characters: Characters

    @property
    def schemas(self) -> Schemas:
        """Subschemas by position; more of them may come, as complements of others are asked for."""

    def value(self, node: Node, depth: int, owner: str) -> Expr:
        """A value that satisfies all of `node`, inside `depth` brackets; `owner` is where to report that it is free."""

    def shared(self, node: Node, depth: int, owner: str) -> Expr:
        """As `value`, as a rule of its own: for what is written several times."""

    def alternatives(self, node: Node) -> Iterator[Facets]:
        """The facets of each way to satisfy all of `node`."""

    def listed(self, facets: Facets) -> list[Json]:
        """The values of facets that list some, as far as the other keywords allow them."""

    def complement(self, pointer: str) -> str:
        """The position of a subschema that holds exactly where another does not; raises `NoComplementError`."""

    def never(self, node: Node) -> bool:
        """Whether no value satisfies all of `node`, for certain."""

    def free(self, rule: Ref, pointer: str) -> Ref:
        """One of the rules of free JSON."""

    def once(self, name: str, text: Expr) -> Ref:
        """A rule for a text that may be written several times; the same name always stands for the same text."""

    def cannot(self, finding: Finding) -> None:
        """Note what cannot be enforced: an error under `strict`, otherwise dropped."""

    def malformed(self, finding: Finding) -> None:
        """Note what is no JSON Schema: an error always."""

    def dead_end(self, pointer: str, keyword: str, reason: str) -> None:
        """Note that no value satisfies this; a reason to report if that makes the whole schema impossible."""


def owner_of(facets: Facets) -> str:
    """The subschema to report for what its facets amount to."""
    return facets.positions[0] if facets.positions else "#"


def note_pattern(writing: Writing, error: PatternError, pointer: str, keyword: str, inside: str = "") -> None:
    """Note a pattern that cannot be read: malformed, or beyond what can be enforced; `inside` quotes all of it."""
    reason = f'{error.reason}: "{error.construct}" at character {error.position}{inside}'
    note = writing.malformed if error.is_malformed else writing.cannot
    note(Finding(pointer, keyword, reason, error.hint))
