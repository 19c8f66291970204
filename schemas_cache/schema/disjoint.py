"""Proofs that subschemas never hold together, and `oneOf` as `anyOf` with the rest said explicitly.

In: facets, and the branches of a `oneOf` beside them. Out: the branches, each with the complements of those that it
could not be told apart from; what has no complement is a finding that names the two branches. Cost: for each pair of
branches one merge; a proof is kept by its positions, and looks `PROOF_DEPTH` levels into objects and arrays.

A proof is about the standard's open reading: it merges the two branches (and, if that is not enough, everything that
holds beside them) and asks the writers of scalars whether anything is left; an object is impossible when a required
member is, an array when an element is. `oneOf`s inside count as `anyOf`, so what is proved impossible is.

Rejected: comparing keyword by keyword (a second semantics for each pair of keywords, silent on patterns, formats and
`multipleOf`); writing both branches as grammars and intersecting those (not closed).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations, islice

from schemas_cache.errors import Finding, PatternError, SchemaTooComplexError
from schemas_cache.grammar import Never
from schemas_cache.limits import MAX_PROOF_ALTERNATIVES
from schemas_cache.machines import MachineTooLargeError
from schemas_cache.schema.alternatives import alternatives
from schemas_cache.schema.complements import NoComplementError
from schemas_cache.schema.elements import element, prefix_length
from schemas_cache.schema.evaluated import value_node
from schemas_cache.schema.facets import Choice, Facets
from schemas_cache.schema.logic import Complements
from schemas_cache.schema.nodes import Node, Schemas, simplify
from schemas_cache.schema.numbers import write_number
from schemas_cache.schema.strings import pattern_machine, write_string
from schemas_cache.schema.values import Judge, distinct, identity, type_of
from schemas_cache.schema.writing import Writing
from schemas_cache.work import spend

PROOF_DEPTH = 4
_PRUNING_DEPTH = 2


@dataclass(slots=True)
class Prover:
    """Finds contradictions; a chooser that takes `oneOf` for `anyOf`.

    `writing` is asked for scalars only, in the open reading, and nothing that it writes or notes is used.
    """

    writing: Writing
    known: dict[tuple[Node, int], bool] = field(default_factory=dict)
    judge: Judge = field(init=False)

    def __post_init__(self) -> None:
        self.judge = Judge(self.schemas, is_lenient=True)

    @property
    def schemas(self) -> Schemas:
        """Subschemas by position, which grow in number."""
        return self.writing.schemas

    def branches(self, facets: Facets, choice: Choice) -> tuple[Node, ...]:
        """All of them: more than the standard allows, so what is impossible remains so."""
        del facets
        return choice.branches

    def is_possible(self, facets: Facets) -> bool:
        """Nothing is known of parts."""
        return bool(facets.types)

    def never(self, node: Node, depth: int = PROOF_DEPTH) -> bool:
        """Whether no value satisfies all of `node`, for certain."""
        key = simplify(node, self.schemas), depth
        if key not in self.known:
            self.known[key] = False  # what needs itself as a proof is not proved
            self.known[key] = self._none_of(key[0], depth, None)
        return self.known[key]

    def never_beside(self, context: Facets, node: Node) -> bool:
        """Whether no value satisfies all of `node` and the context, for certain."""
        return self._none_of(node, PROOF_DEPTH, context)

    def is_contradiction(self, facets: Facets, depth: int = PROOF_DEPTH) -> bool:
        """Whether no value has these facets, for certain."""
        if facets.enumerations:
            return not self._listed(facets)
        return all(self._lacks(atom, facets, depth) for atom in sorted(facets.types))

    def is_clash_of_members(self, facets: Facets, depth: int = _PRUNING_DEPTH) -> bool:
        """Whether a required member is impossible, for certain."""
        if not facets.required.keys().isdisjoint(facets.forbidden):
            return True
        return any(self._clash(self._member_node(facets, name), depth) for name in facets.required)

    def _member_node(self, facets: Facets, name: str) -> Node:
        """What a member of this name has to satisfy; none where a pattern cannot tell."""
        patterns = {pattern for layer in facets.layers.values() for pattern in layer.patterns}
        try:
            matched = frozenset(pattern for pattern in patterns if pattern_machine(pattern).accepts(name.encode()))
        except (PatternError, MachineTooLargeError):
            return ()
        return value_node(facets, self.schemas, name, matched)

    def _none_of(self, node: Node, depth: int, context: Facets | None) -> bool:
        try:
            found = list(islice(alternatives(node, self.schemas, self, context), MAX_PROOF_ALTERNATIVES + 1))
        except SchemaTooComplexError:
            spend(0)  # raises again where it was the work for all of the schema that is spent
            return False
        return len(found) <= MAX_PROOF_ALTERNATIVES and all(self.is_contradiction(facets, depth) for facets in found)

    def _clash(self, node: Node, depth: int) -> bool:
        """A node of one position is left alone: it is what somebody wrote, and seldom impossible."""
        if any(self.schemas[pointer] is False for pointer in node):
            return True
        return depth > 0 and len(node) > 1 and self.never(node, depth - 1)

    def _listed(self, facets: Facets) -> bool:
        """Whether some listed value may be left."""
        lists = [{identity(value) for value in listed.values} for listed in facets.enumerations]
        values = [
            value
            for value in distinct(facets.enumerations[0].values)
            if all(identity(value) in others for others in lists[1:]) and type_of(value) in facets.types
        ]
        try:
            return bool(values) and bool(self.judge.allowed(facets))
        except ValueError:
            return True

    def _lacks(self, atom: str, facets: Facets, depth: int) -> bool:
        match atom:
            case "null":
                return any(value is None for value in facets.excluded_values)
            case "boolean":
                return {value for value in facets.excluded_values if isinstance(value, bool)} == {True, False}
            case "string":
                return isinstance(write_string(self.writing, facets, 0), Never)
            case "integer" | "fraction":
                narrowed = facets.fork()
                narrowed.types = frozenset({atom})
                return isinstance(write_number(self.writing, narrowed, 0), Never)
            case "array":
                return self._no_array(facets, depth)
            case _:
                return self._no_object(facets, depth)

    def _no_array(self, facets: Facets, depth: int) -> bool:
        if facets.max_items is not None and facets.min_items > facets.max_items:
            return True
        positions = range(min(facets.min_items, prefix_length(facets) + 1))
        return any(all(self._clash(node, depth) for node in element(facets, self.schemas, i)) for i in positions)

    def _no_object(self, facets: Facets, depth: int) -> bool:
        if (
            facets.max_properties is not None
            and max(facets.min_properties, len(facets.required)) > facets.max_properties
        ):
            return True
        return self.is_clash_of_members(facets, depth)


@dataclass(slots=True)
class Exclusive:
    """The chooser of the lowering: of a `oneOf` one branch holds and no other.

    Attributes
    ----------
    complements : Complements
        Grows by what could not be proved disjoint.
    prover : Prover
    """

    complements: Complements
    prover: Prover

    def branches(self, facets: Facets, choice: Choice) -> tuple[Node, ...]:
        """Each branch, with the complements of those that may hold as well; refused pairs go into the facets."""
        if facets.enumerations:  # listed values are judged one by one
            return choice.branches
        branches = choice.branches
        pairs = [
            (i, j)
            for i, j in combinations(range(len(branches)), 2)
            if not self._apart(facets, branches[i] + branches[j])
        ]
        try:
            without = {i: (self.complements.of(branches[i][0]),) for pair in pairs for i in pair}
        except NoComplementError as error:
            facets.unenforced |= dict.fromkeys(_not_apart(choice, pair, error) for pair in pairs)
            return branches
        return tuple(
            branch + tuple(p for pair in pairs if i in pair for j in pair if j != i for p in without[j])
            for i, branch in enumerate(branches)
        )

    def is_possible(self, facets: Facets) -> bool:
        """Contradictions that a look at types, lists and required members shows."""
        if not facets.types:
            return False
        if facets.enumerations:
            return not self.prover.is_contradiction(facets)
        return facets.types != {"object"} or not self.prover.is_clash_of_members(facets)

    def _apart(self, facets: Facets, pair: Node) -> bool:
        return self.prover.never(pair) or self.prover.never_beside(facets, pair)


def _not_apart(choice: Choice, pair: tuple[int, int], error: NoComplementError) -> Finding:
    reason = f"branches {pair[0]} and {pair[1]} may both hold, so far as can be proved, and {error}"
    hint = "give both a required property with different constants, or write anyOf if no value satisfies both"
    return Finding(choice.pointer, choice.keyword, reason, hint)
