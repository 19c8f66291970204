"""Reads the reachable part of a schema: every subschema by position, its keywords checked, its children as positions.

In: a `Document`. Out: `Reading`, in which all that is left is well-formed and can be enforced, and everything else is a
finding. Cost: linear. A keyword at fault is left out of its subschema, so that the later stages can go on and all
findings come at once.

Definitions that nothing refers to cannot change the result: faults of form are found there, unenforceable keywords are
not looked for. Spellings of older drafts are brought to today's here: the boolean `exclusiveMinimum` of draft-04, and
the rule up to draft-07 that nothing beside `$ref` counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from schemas_cache.errors import Finding, SchemaTooComplexError
from schemas_cache.limits import MAX_ENUM_VALUES, MAX_PROPERTIES
from schemas_cache.schema.document import (
    ANNOTATIONS,
    LIST_OF_SCHEMAS,
    ONE_SCHEMA,
    SCHEMAS_BY_NAME,
    DanglingRefError,
    Document,
    Json,
    child,
)
from schemas_cache.schema.keywords import SUPPORTED, is_supported, unsupported

Keywords = dict[str, Any]
"""Keyword to value. Where the standard has subschemas, their positions stand: `items` holds a pointer, `properties`
pointers by name, `anyOf` a list of pointers, `$ref` the pointer of its target."""
DEFINITIONS = frozenset({"$defs", "definitions"})
_REF_ALONE = frozenset({"3", "4", "6", "7"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_SAYS_NOTHING = {"uniqueItems": False, "minProperties": 0}


@dataclass(frozen=True, slots=True)
class Reading:
    """Subschemas by position, and what was found on the way."""

    schemas: dict[str, Keywords | bool]
    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]


def read(document: Document, *, strict: bool) -> Reading:
    """Read all that the root reaches; see the module."""
    reader = _Reader(document, strict)
    reader.follow("#", document.root)
    reached = dict(reader.schemas)
    reader.quiet = True
    for pointer, schema in reader.definitions:
        reader.follow(pointer, schema)
    reader.check_limits()
    return Reading(reached, tuple(reader.findings), tuple(reader.warnings))


@dataclass(slots=True)
class _Reader:
    document: Document
    strict: bool
    schemas: dict[str, Keywords | bool] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    definitions: list[tuple[str, Json]] = field(default_factory=list)
    quiet: bool = False
    stack: list[tuple[str, Json]] = field(default_factory=list)
    properties: int = 0
    enum_values: int = 0

    def follow(self, pointer: str, schema: Json) -> None:
        """Read a subschema and all that it leads to, in the order of the document."""
        self.stack = [(pointer, schema)]
        while self.stack:
            pointer, schema = self.stack.pop()
            if pointer in self.schemas:
                continue
            children: list[tuple[str, Json]] = []
            self.schemas[pointer] = self._subschema(pointer, schema, children)
            self.stack += reversed(children)

    def check_limits(self) -> None:
        for figure, limit, what in (
            (self.properties, MAX_PROPERTIES, "properties"),
            (self.enum_values, MAX_ENUM_VALUES, "enum values"),
        ):
            if figure > limit:
                reason = f"the schema has {figure} {what}, the limit is {limit}"
                raise SchemaTooComplexError([Finding("#", "", reason, "split the schema into smaller ones")])

    def _subschema(self, pointer: str, schema: Json, children: list[tuple[str, Json]]) -> Keywords | bool:
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, dict):
            self.findings.append(Finding(pointer, "", "expected a schema: an object, true or false"))
            return True
        keywords: Keywords = {}
        for word, value in self._in_todays_words(pointer, schema):
            if self._is_enforced(pointer, word, value):
                self._keep(pointer, word, value, keywords, children)
        return keywords

    def _in_todays_words(self, pointer: str, schema: Json) -> Iterator[tuple[str, Json]]:
        ref_alone = "$ref" in schema and self.document.draft in _REF_ALONE
        for word, value in schema.items():
            if ref_alone and word not in DEFINITIONS | ANNOTATIONS | {"$ref"}:
                reason = f"draft-0{self.document.draft} ignores what stands beside $ref"
                self._warn(Finding(pointer, word, reason, "name a newer draft in $schema"))
            elif self.document.draft in ("3", "4") and word in _BOUNDS:
                yield from _bound_of_draft_4(word, schema)
            else:
                yield word, value

    def _is_enforced(self, pointer: str, word: str, value: Json) -> bool:
        if is_supported(word, value):
            faults = list(SUPPORTED[word](value))
            self.findings += [Finding(pointer, word, reason, hint) for reason, hint in faults]
            return not faults
        ignored = word in ANNOTATIONS or word.startswith("x-") or (pointer == "#" and word == "id")
        says_nothing = word in _SAYS_NOTHING and value is not True and value == _SAYS_NOTHING[word]
        if not ignored and not says_nothing:
            self._unsupported(Finding(pointer, word, *unsupported(word)))
        return False

    def _keep(self, pointer: str, word: str, value: Json, keywords: Keywords, children: list[tuple[str, Json]]) -> None:
        """Add a well-formed keyword to `keywords`, the subschemas in it to `children`."""
        at = child(pointer, word)
        if word in DEFINITIONS:
            self.definitions += [(child(at, name), schema) for name, schema in value.items()]
        elif word == "$ref":
            self._keep_reference(pointer, value, keywords, children)
        elif word in SCHEMAS_BY_NAME:
            self.properties += len(value)
            keywords[word] = {name: child(at, name) for name in value}
            children += zip(keywords[word].values(), value.values(), strict=True)
        elif word in LIST_OF_SCHEMAS and isinstance(value, list):
            keywords[word] = [child(at, str(i)) for i in range(len(value))]
            children += zip(keywords[word], value, strict=True)
        elif word in ONE_SCHEMA:
            keywords[word] = at
            children.append((at, value))
        else:
            self.enum_values += len(value) if word == "enum" else 0
            keywords[word] = value

    def _keep_reference(
        self, pointer: str, reference: str, keywords: Keywords, children: list[tuple[str, Json]]
    ) -> None:
        try:
            target, schema = self.document.resolve(reference)
        except DanglingRefError as error:
            self.findings.append(Finding(pointer, "$ref", error.reason, error.hint))
        else:
            keywords["$ref"] = target
            children.append((target, schema))

    def _unsupported(self, finding: Finding) -> None:
        if self.strict and not self.quiet:
            self.findings.append(finding)
        else:
            self._warn(finding)

    def _warn(self, finding: Finding) -> None:
        if not self.quiet:
            self.warnings.append(finding)


def _bound_of_draft_4(word: str, schema: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    """In draft-04 `exclusiveMinimum: true` says how `minimum` is meant."""
    exclusive = f"exclusive{word.capitalize()}"
    if not isinstance(schema[word], bool):
        yield (exclusive if schema.get(exclusive) is True else word), schema[word]
