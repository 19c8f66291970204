"""Objects: declared members in order, then listed and open keys; or all of them in any order.

In: facets. Out: a text expression, braces included, linear in the number of members however many are optional. Which
keys there are is `object_keys`' to say, how they are put together and counted `members`'.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from schemas_cache.errors import Finding
from schemas_cache.finite import FiniteAutomaton
from schemas_cache.grammar import EMPTY, NEVER, Expr, Member, Never, alt, concat, literal, mark
from schemas_cache.machines import MachineTooLargeError
from schemas_cache.schema import free
from schemas_cache.schema.facets import Facets
from schemas_cache.schema.keys import by_first_character, expression
from schemas_cache.schema.layout import Layout, layout
from schemas_cache.schema.members import Members, UncountedMembersError, needs_parts, together
from schemas_cache.schema.nodes import Node
from schemas_cache.schema.object_keys import ObjectKeys, OpenKeys, object_keys
from schemas_cache.schema.strings import QUOTE
from schemas_cache.schema.writing import Writing, owner_of
from schemas_cache.spelling import json_string, other_string, string_literal


def write_object(writing: Writing, facets: Facets, depth: int) -> Expr:
    """Objects of these members."""
    if "object" not in facets.types:
        return NEVER
    _note_excluded_values(writing, facets)
    low, high, owner = _least_members(facets), facets.max_properties, owner_of(facets)
    if low == 0 and high is None and _is_free(facets):
        return writing.free(free.OBJECT, owner)
    if high is not None and low > high:
        writing.dead_end(owner, "maxProperties", f"no object has at least {low} and at most {high} properties")
        return NEVER
    return _Object(writing, facets, layout(writing.options.whitespace, depth), depth, low, high).text()


def _note_excluded_values(writing: Writing, facets: Facets) -> None:
    if any(isinstance(value, dict) and value for value in facets.excluded_values):
        reason = "an object with members cannot be left out as a value"
        writing.cannot(Finding(owner_of(facets), "not", reason, "say which members are not allowed"))


def _least_members(facets: Facets) -> int:
    """`minProperties`; the empty object may also be left out as a value."""
    return max(facets.min_properties, int({} in facets.excluded_values))


def _is_free(facets: Facets) -> bool:
    about_names = (facets.layers, facets.required, facets.forbidden, facets.key_schemas, facets.unevaluated_properties)
    return not any(about_names)


@dataclass(frozen=True, slots=True)
class _Object:
    """One object on its way to a text expression: from `low` to `high` members (None: no bound)."""

    writing: Writing
    facets: Facets
    around: Layout
    depth: int
    low: int
    high: int | None

    def text(self) -> Expr:
        around, members = self.around, self._members(object_keys(self.writing, self.facets))
        if self.low or members.required:
            return around.bracketed("{}", self._together(members, self.low), may_be_empty=False)
        if around.first == around.last == around.none == EMPTY:
            return concat(literal("{"), self._together(members, 0), literal("}"))
        return around.bracketed("{}", self._together(members, 1), may_be_empty=True)

    def _together(self, members: Members, low: int) -> Expr:
        try:
            return together(members, low, self.high)
        except UncountedMembersError as error:
            self._cannot_count(str(error))
            return together(members, 0, None)

    def _members(self, keys: ObjectKeys) -> Members:
        found = Members(
            [self._declared(name, node) for name, node in keys.declared.items()],
            [Member(self._member(name, self._value(node)), required=False) for name, node in keys.listed.items()],
            alt(*(self._open(self._key_text(kind), self._value(kind.node)) for kind in keys.open)),
            self.around.comma,
            any_order=self.writing.options.key_order == "any",
        )
        return replace(found, parts=self._parts(keys)) if needs_parts(found, self.low) else found

    def _declared(self, name: str, node: Node | None) -> Member:
        value = NEVER if node is None else self._value(node)
        required, written = name in self.facets.required, self._member(name, value)
        if required and isinstance(written, Never):
            nameless = not isinstance(value, Never)
            why = "has a name that the vocabulary cannot spell" if nameless else "cannot have a value"
            reason = f'the property "{name}" is required and {why}'
            self.writing.dead_end(self.facets.required[name], "required", reason)
        return Member(written, required)

    def _member(self, name: str, value: Expr) -> Expr:
        return concat(string_literal(name, self.writing.characters), self.around.colon, mark(name, value))

    def _open(self, key: Expr, value: Expr) -> Expr:
        return concat(QUOTE, key, QUOTE, self.around.colon, value)

    def _key_text(self, kind: OpenKeys) -> Expr:
        return other_string(kind.but) if kind.language is None else self._spelled(kind.language)

    def _spelled(self, keys: FiniteAutomaton) -> Expr:
        return json_string(expression(keys), self.writing.characters)

    def _parts(self, keys: ObjectKeys) -> list[Expr]:
        """Open members apart by the first character of their keys."""
        try:
            parts = [(part, kind.node) for kind in keys.open for part in by_first_character(kind.keys)]
        except MachineTooLargeError as error:
            self._cannot_count(str(error))
            return []
        return [self._open(self._spelled(part), self._value(node)) for part, node in parts]

    def _value(self, node: Node) -> Expr:
        """A value; a rule of its own where members are counted, since those may be written several times."""
        write = self.writing.shared if self.low > 1 or self.high is not None else self.writing.value
        return write(node, self.depth + 1, owner_of(self.facets))

    def _cannot_count(self, reason: str) -> None:
        owner = owner_of(self.facets)
        self.writing.cannot(Finding(owner, "minProperties", reason, "declare the names as properties"))
