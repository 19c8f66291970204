"""The alternatives of subschemas that hold together, each as facets, before anything is written.

In: positions that must hold together (a `Node`), and the subschemas they name. Out: `Facets`, one per alternative.
References, `allOf`, `anyOf`, `oneOf`, the dependent keywords, what `logic` made of `not` and `if`, and the siblings of
all these come down to this one step. Cost: linear in the keywords, times the alternatives where `anyOf`s meet. What
`oneOf` asks beyond `anyOf`, and which alternatives are contradictions, a `Chooser` knows.

A position that leads back to itself in place adds nothing to the values it allows (the smallest solution), so that
alternative is dropped. A position met twice on other ways holds once, which also ends every recursion: a node is a set
of positions, and there are finitely many.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Protocol

from schemas_cache.errors import Finding, SchemaTooComplexError
from schemas_cache.limits import MAX_BRANCHES
from schemas_cache.schema.facets import Choice, Dependent, Facets
from schemas_cache.schema.merge import MERGE, merge_dependents, merge_required
from schemas_cache.schema.nodes import BRANCHES, DEPENDENTS, DERIVED, IN_PLACE, JUDGED, Node, Schemas
from schemas_cache.schema.reading import Keywords
from schemas_cache.work import spend

MAX_SETS_OF = 6
"""Branches of an `anyOf` whose every set is an alternative, 63 of them, where it matters which others hold besides."""
_Pending = tuple[str, frozenset[str], bool | None]
"""A position to absorb, those above it, and its role: see `Facets.conditions`; None: a plain part of the schema."""


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
        spend(32 + 8 * len(facets.layers))
        if facets.dependents and all(choice.keyword == "oneOf" for choice in facets.choices):
            stack += filter(chooser.is_possible, reversed(_by_presence(facets, schemas)))
        elif facets.choices:
            choice = _next_choice(facets)
            forks = _by_branch(facets, choice, schemas, chooser)
            stack += forks
            made += len(forks)
            if made > MAX_BRANCHES:
                raise _too_many(choice)
        else:
            yield facets


def _too_many(choice: Choice) -> SchemaTooComplexError:
    keyword = choice.keyword.removeprefix(DERIVED)
    reason = f"the combinations of {keyword} are more than {MAX_BRANCHES}"
    return SchemaTooComplexError([Finding(choice.pointer, keyword, reason, "move common keywords into the branches")])


def _by_branch(facets: Facets, choice: Choice, schemas: Schemas, chooser: Chooser) -> list[Facets]:
    """Facets with each branch that is possible, the first one last, where a stack takes it first."""
    branches = chooser.branches(facets, choice) if choice.keyword == "oneOf" else _branches(facets, choice)
    forks = [(facets.fork(), branch) for branch in reversed(branches)]
    return [
        fork
        for fork, branch in forks
        if _absorb(fork, branch, choice.trail, schemas, choice) and chooser.is_possible(fork)
    ]


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
        if schema is True or pointer in facets.positions:
            continue
        facets.positions.append(pointer)
        if role is not None:
            facets.conditions[pointer] = role
        pending = _absorb_keywords(facets, schema, pointer, above | {pointer}, role) + pending
    return True


def _absorb_keywords(
    facets: Facets, schema: Keywords, pointer: str, trail: frozenset[str], role: bool | None
) -> list[_Pending]:
    """Add the keywords of one subschema; the subschemas that hold as well are returned."""
    below: list[_Pending] = []
    for keyword, value in schema.items():
        if keyword in IN_PLACE:
            below += [(target, trail, _role_below(keyword, role)) for target in IN_PLACE[keyword](value)]
        elif keyword in BRANCHES:
            facets.choices.append(Choice(keyword, pointer, BRANCHES[keyword](value), trail))
        elif keyword in DEPENDENTS:
            merge_dependents(facets, keyword, value, pointer, trail)
        elif keyword not in JUDGED:
            MERGE[keyword](facets, value, pointer)
    return below


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
