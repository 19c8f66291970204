"""Writes subschemas as grammar rules.

In: the subschemas by position, with their complements (`logic`), and the options. Out: `Grammar`, and what could not be
written, as findings. Cost: linear in the schema, times the alternatives where `anyOf`s meet.

A referenced subschema is a rule, named by its position, and never written twice; so is every subschema that others are
merged into, and every conjunction that merging gives rise to, named by all of its positions. Since both are finite,
recursion needs no guard. Under `pretty` a rule also depends on its indentation, and there recursion is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from schemas_cache.errors import Finding, SchemaTooComplexError
from schemas_cache.grammar import NEVER, Expr, Grammar, Never, Ref, alt, literal
from schemas_cache.limits import LEVELS_PER_RULE, MAX_INDENTATION, MAX_MERGED, MAX_RULES
from schemas_cache.schema import free
from schemas_cache.schema.alternatives import alternatives
from schemas_cache.schema.arrays import write_array
from schemas_cache.schema.disjoint import Exclusive, Prover
from schemas_cache.schema.document import Json
from schemas_cache.schema.facets import Facets
from schemas_cache.schema.layout import layout
from schemas_cache.schema.logic import Complements
from schemas_cache.schema.nodes import BRANCHES, DEPENDENTS, IN_PLACE, Node, Schemas, simplify
from schemas_cache.schema.numbers import write_number
from schemas_cache.schema.objects import write_object
from schemas_cache.schema.options import SchemaOptions
from schemas_cache.schema.strings import write_string
from schemas_cache.schema.values import Judge, value_text
from schemas_cache.schema.writing import Writing
from schemas_cache.spelling import Characters
from schemas_cache.work import spend

_MERGED = BRANCHES.keys() | IN_PLACE.keys() | DEPENDENTS
"""Keywords by which other subschemas come in."""


@dataclass
class Lowering:
    """One schema on its way to a grammar.

    Attributes
    ----------
    findings : dict of Finding
        What cannot be enforced, each once: errors under `strict`, otherwise what was dropped.
    faults : dict of Finding
        What is malformed or cannot be written at all, whatever `strict` says.
    dead_ends : dict of Finding
        Subschemas that no value satisfies; a reason to report if that makes the whole schema impossible.
    """

    complements: Complements
    options: SchemaOptions
    characters: Characters
    findings: dict[Finding, None] = field(default_factory=dict)
    faults: dict[Finding, None] = field(default_factory=dict)
    dead_ends: dict[Finding, None] = field(default_factory=dict)
    rules: dict[str, Expr] = field(default_factory=dict)
    pending: list[tuple[str, Node, int]] = field(default_factory=list)
    level: int = 0
    merged: int = 0

    def grammar(self) -> Grammar:
        """All rules, from the root on."""
        root = simplify(("#",), self.schemas)
        start = self._rule(root, 0) if root else self.free(free.VALUE, "#")
        while self.pending:
            name, node, depth = self.pending.pop()
            self.level = 0
            self.rules[name] = self._write(node, depth)
        return Grammar(start.rule, self.rules, frozenset(name for name in self.rules if not name.startswith("#")))

    def _rule(self, node: Node, depth: int) -> Ref:
        """A reference to the rule of a node, which is written later if it is new."""
        name = " & ".join(node) + (f" @{depth}" if self._is_pretty and depth else "")
        if name not in self.rules:
            if len(self.rules) >= MAX_RULES:
                reason = f"the schema needs more than {MAX_RULES} grammar rules"
                raise SchemaTooComplexError([Finding(node[0], "", reason, "split the schema into smaller ones")])
            self.rules[name] = NEVER
            self.pending.append((name, node, depth))
        return Ref(name)

    def value(self, node: Node, depth: int, owner: str) -> Expr:
        """A value that satisfies all of `node`, inside `depth` brackets; `owner` is where to report that it is free."""
        simple = simplify(node, self.schemas)
        if not simple:
            return self.free(free.VALUE, node[0] if node else owner)
        if any(self.schemas[pointer] is False for pointer in simple):
            return NEVER
        if self._is_pretty and depth > MAX_INDENTATION:
            reason = f"under pretty a document can nest {MAX_INDENTATION} levels at most, and here it may nest deeper"
            self.faults[Finding(simple[0], "", reason, "choose another whitespace mode")] = None
            return NEVER
        if simple != node or self._is_merged(simple) or self.level >= LEVELS_PER_RULE:
            return self._rule(simple, depth)
        return self._write(simple, depth)

    def shared(self, node: Node, depth: int, owner: str) -> Expr:
        """As `value`, as a rule of its own: for what is written several times."""
        outer, self.level = self.level, LEVELS_PER_RULE
        written = self.value(node, depth, owner)
        self.level = outer
        return written

    def _is_merged(self, node: Node) -> bool:
        """Whether other subschemas come in, whose children are not this one's: only rules keep those finite."""
        schema = self.schemas[node[0]]
        return len(node) > 1 or (
            isinstance(schema, dict) and not _MERGED.isdisjoint(schema) and schema.keys() != {"anyOf"}
        )

    def _write(self, node: Node, depth: int) -> Expr:
        """The alternatives of a node; branches of an `anyOf` that stands alone need no merging."""
        self.level += 1
        spend(40)
        only = self.schemas[node[0]]
        if len(node) == 1 and isinstance(only, dict) and only.keys() == {"anyOf"}:
            written = alt(*(self.value((branch,), depth, branch) for branch in only["anyOf"]))
        else:
            written = alt(*(self._facets(facets, depth) for facets in self.alternatives(node)))
        self.level -= 1
        if isinstance(written, Never):
            self.dead_ends.setdefault(Finding(node[0], "", "no value satisfies all that is asked for here"))
        return written

    def alternatives(self, node: Node) -> Iterator[Facets]:
        """The facets of each way to satisfy all of `node`; raises beyond `MAX_MERGED`."""
        for i, facets in enumerate(alternatives(node, self.schemas, self._exclusive)):
            self.merged += 1 if i or len(node) > 1 else 0
            if self.merged > MAX_MERGED:
                reason = f"references and anyOf meet in more than {MAX_MERGED} combinations"
                raise SchemaTooComplexError([Finding(node[0], "", reason, "give fewer of them neighbours")])
            yield facets

    def _facets(self, facets: Facets, depth: int) -> Expr:
        if facets.enumerations:
            return self._enumeration(facets, depth)
        self.findings |= facets.unenforced
        return alt(*(write(self, facets, depth) for write in WRITERS))

    def listed(self, facets: Facets) -> list[Json]:
        """The values of facets that list some, as far as the other keywords allow them."""
        try:
            return self._judge.allowed(facets)
        except ValueError as error:
            listed = facets.enumerations[0]
            reason = f"the listed values cannot be checked by the keywords beside them: {error}"
            self.faults[Finding(listed.pointer, listed.keyword, reason)] = None
            return []

    def _enumeration(self, facets: Facets, depth: int) -> Expr:
        listed, values = facets.enumerations[0], self.listed(facets)
        if not values:
            self.dead_end(listed.pointer, listed.keyword, "none of the values satisfies the other keywords")
            return NEVER
        written = alt(*(value_text(value, depth, self.options, self.characters) for value in values))
        if isinstance(written, Never):
            lacking = "the value" if len(values) == 1 else "every value"
            self.dead_end(listed.pointer, listed.keyword, f"the vocabulary lacks characters of {lacking}")
        return written

    def complement(self, pointer: str) -> str:
        """The position of a subschema that holds exactly where another does not; raises `NoComplementError`."""
        return self.complements.of(pointer)

    def never(self, node: Node) -> bool:
        """Whether no value satisfies all of `node`, for certain."""
        return self._exclusive.prover.never(node)

    def free(self, rule: Ref, pointer: str) -> Ref:
        """One of the rules of free JSON."""
        if self._is_pretty:
            reason = "free JSON has no bound on its nesting, which pretty needs"
            self.faults[Finding(pointer, "", reason, "say what the value is, or choose another whitespace mode")] = None
        elif rule.rule not in self.rules:
            self.rules |= free.free_rules(layout(self.options.whitespace, 0), self.characters)
        return rule

    def once(self, name: str, text: Expr) -> Ref:
        """A rule for a text that may be written several times; no name begins as a position does."""
        self.rules.setdefault(name, text)
        return Ref(name)

    def cannot(self, finding: Finding) -> None:
        """Note what cannot be enforced."""
        self.findings[finding] = None

    def malformed(self, finding: Finding) -> None:
        """Note what is no JSON Schema."""
        self.faults[finding] = None

    def dead_end(self, pointer: str, keyword: str, reason: str) -> None:
        """Note that no value satisfies this."""
        self.dead_ends[Finding(pointer, keyword, reason)] = None

    @property
    def _is_pretty(self) -> bool:
        return self.options.whitespace == "pretty"

    @property
    def schemas(self) -> Schemas:
        """Subschemas by position, those of complements as well: they grow in number."""
        return self.complements.schemas

    @cached_property
    def _exclusive(self) -> Exclusive:
        open_reading = replace(self.options, strict=False, whitespace="compact", additional_properties="open")
        return Exclusive(self.complements, Prover(Lowering(self.complements, open_reading, None)))

    @cached_property
    def _judge(self) -> Judge:
        return Judge(self.schemas)


def write_null(writing: Writing, facets: Facets, depth: int) -> Expr:
    """The one null."""
    del writing, depth
    return literal("null") if "null" in facets.types and None not in facets.excluded_values else NEVER


def write_boolean(writing: Writing, facets: Facets, depth: int) -> Expr:
    """The booleans that are not excluded."""
    del writing, depth
    excluded = [value for value in facets.excluded_values if isinstance(value, bool)]
    texts = (NEVER if value in excluded else literal("true" if value else "false") for value in (True, False))
    return alt(*texts) if "boolean" in facets.types else NEVER


Writer = Callable[[Writing, Facets, int], Expr]
WRITERS: tuple[Writer, ...] = (write_null, write_boolean, write_number, write_string, write_array, write_object)
