"""Reads the reachable part of a schema: every subschema by position, its keywords checked, its children as positions.

In: a `Document`. Out: `Reading`, in which all that is left is well-formed and can be enforced, and everything else is a
finding. Cost: linear. A keyword at fault is left out of its subschema, so that the later stages can go on and all
findings come at once.

Definitions that nothing refers to cannot change the result: faults of form are found there, unenforceable keywords are
not looked for. Spellings of older drafts are brought to today's here: the boolean `exclusiveMinimum` of draft-04, and
the rule up to draft-07 that nothing beside `$ref` counts.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from schemas_cache.errors import Finding, SchemaTooComplexError
from schemas_cache.limits import MAX_ENUM_VALUES, MAX_PROPERTIES
from schemas_cache.schema.document import (
    ANNOTATIONS,
    IDENTIFIERS,
    LIST_OF_SCHEMAS,
    NEWEST_DRAFT,
    ONE_SCHEMA,
    REFERENCES,
    SCHEMAS_BY_NAME,
    DanglingRefError,
    Document,
    Json,
    child,
)
from schemas_cache.schema.formats import FORMATS
from schemas_cache.schema.keywords import (
    ANCHORS,
    SUPPORTED,
    draft_name,
    is_meant,
    is_newer,
    refusal,
)
from schemas_cache.schema.references import References

Keywords = dict[str, Any]
"""Keyword to value. Where the standard has subschemas, their positions stand: `items` holds a pointer, `properties`
pointers by name, `anyOf` a list of pointers, `$ref` the pointer of its target."""
DEFINITIONS = frozenset({"$defs", "definitions"})
_REF_ALONE = frozenset({"3", "4", "6", "7"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})


@dataclass(frozen=True, slots=True)
class Reading:
    """Subschemas by position, and what was found on the way."""

    schemas: dict[str, Keywords | bool]
    findings: tuple[Finding, ...]
    warnings: tuple[Finding, ...]


def read(document: Document, *, strict: bool) -> Reading:
    """Read all that the root reaches; see the module."""
    reader = _Reader(document, References(document), strict)
    reader.check_dialect()
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
    references: References
    strict: bool
    schemas: dict[str, Keywords | bool] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    definitions: list[tuple[str, Json]] = field(default_factory=list)
    unknown_words: set[str] = field(default_factory=set)
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

    def check_dialect(self) -> None:
        """Refuse what is older than draft-04; take today's meaning for what is unknown."""
        if self.document.draft == "3":
            hint = "name a newer draft in $schema, and list required names beside properties"
            self.findings.append(Finding("#", "$schema", "draft-03 cannot be enforced", hint))
        if self.document.unknown_dialect:
            reason = f'"{self.document.unknown_dialect}" is none of the drafts; read as {NEWEST_DRAFT}'
            self._warn(Finding("#", "$schema", reason, is_note=True))

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
        if "$schema" in schema and pointer != "#":
            reason = f"an embedded resource in another draft than {self.document.draft}, which the document is in"
            self.findings.append(Finding(pointer, "$schema", reason, "write both in one draft"))
        keywords: Keywords = {}
        for word, value in self._in_todays_words(pointer, schema):
            if self._is_enforced(pointer, word, value):
                self._keep(pointer, word, value, keywords, children)
        if self.document.draft == "4" and _is_integer(keywords.get("type")):
            keywords["^digits"] = True
        return keywords

    def _in_todays_words(self, pointer: str, schema: Json) -> Iterator[tuple[str, Json]]:
        ref_alone = "$ref" in schema and self.document.draft in _REF_ALONE
        for word, value in schema.items():
            if ref_alone and word not in DEFINITIONS | ANNOTATIONS | {"$ref"}:
                reason = f"draft-0{self.document.draft} ignores what stands beside $ref"
                self._warn(Finding(pointer, word, reason, "name a newer draft in $schema", is_note=True))
            elif is_newer(word, self.document.draft):
                reason = f'{draft_name(self.document.draft)} does not know "{word}", and ignores it'
                self._warn(Finding(pointer, word, reason, "name a newer draft in $schema", is_note=True))
            elif word == "additionalItems" and not isinstance(schema.get("items"), list):
                continue  # it is about what stands behind a list
            elif word == "unevaluatedItems" and self._is_beside_old_contains():
                reason = 'in this draft it does not know what "contains" matches, and that cannot be enforced'
                self._refuse(Finding(pointer, word, reason, "name draft 2020-12 in $schema"))
            elif self.document.draft in ("3", "4") and word in _BOUNDS:
                yield from _bound_of_draft_4(word, schema)
            else:
                yield word, value

    def _is_beside_old_contains(self) -> bool:
        """Whether a `contains` is somewhere in a document of the one draft where it leaves elements unevaluated."""
        return self.document.draft == "2019-09" and '"contains":' in json.dumps(self.document.root)

    def _is_enforced(self, pointer: str, word: str, value: Json) -> bool:
        if word in SUPPORTED:
            faults = list(SUPPORTED[word](value))
            self.findings += [Finding(pointer, word, reason, hint) for reason, hint in faults]
            return not faults and not (word == "format" and self._is_annotation(pointer, value))
        if word in ANNOTATIONS | IDENTIFIERS | ANCHORS or word.startswith("x-"):
            return False
        if is_meant(word, value):
            self._refuse(Finding(pointer, word, *refusal(word)))
        else:
            self._warn_of_word(pointer, word)
        return False

    def _is_annotation(self, pointer: str, name: str) -> bool:
        """Whether a format constrains nothing, as it is none that we know; then there is a warning."""
        if name in FORMATS:
            return False
        near = difflib.get_close_matches(name, FORMATS, n=1, cutoff=0.7)
        hint = f'did you mean "{near[0]}"?' if near else "write a pattern if it is meant as a constraint"
        reason = f'"{name}" is no format that is known here; it constrains nothing'
        self._warn(Finding(pointer, "format", reason, hint, is_note=True))
        return True

    def _keep(self, pointer: str, word: str, value: Json, keywords: Keywords, children: list[tuple[str, Json]]) -> None:
        """Add a well-formed keyword to `keywords`, the subschemas in it to `children`."""
        at = child(pointer, word)
        if word in DEFINITIONS:
            self.definitions += [(child(at, name), schema) for name, schema in value.items()]
        elif word in REFERENCES:
            self._keep_reference(pointer, word, value, keywords, children)
        elif word == "dependencies":
            keywords[word] = {name: v if isinstance(v, list) else child(at, name) for name, v in value.items()}
            children += [(child(at, name), v) for name, v in value.items() if not isinstance(v, list)]
        elif word in SCHEMAS_BY_NAME:
            self.properties += len(value)
            keywords[word] = {name: child(at, name) for name in value}
            children += zip(keywords[word].values(), value.values(), strict=True)
        elif word == "additionalItems":
            keywords["items"] = at
            children.append((at, value))
        elif word in LIST_OF_SCHEMAS and isinstance(value, list):
            word = "prefixItems" if word == "items" else word
            targets = [child(at, str(i)) for i in range(len(value))]
            keywords[word] = [*keywords.get(word, ()), *targets]
            children += zip(targets, value, strict=True)
        elif word in ONE_SCHEMA:
            keywords[word] = at
            children.append((at, value))
        else:
            self.enum_values += len(value) if word == "enum" else 0
            keywords[word] = value

    def _keep_reference(
        self, pointer: str, word: str, reference: str, keywords: Keywords, children: list[tuple[str, Json]]
    ) -> None:
        try:
            target, schema = self.references.resolve(word, reference, pointer)
        except DanglingRefError as error:
            self.findings.append(Finding(pointer, word, error.reason, error.hint))
            return
        children.append((target, schema))
        if "$ref" in keywords:  # a second one, of another kind
            keywords["allOf"] = [*keywords.get("allOf", ()), target]
        else:
            keywords["$ref"] = target

    def _warn_of_word(self, pointer: str, word: str) -> None:
        """Each unknown word is named once, where it is met first."""
        if word not in self.unknown_words and not self.quiet:
            self.unknown_words.add(word)
            reason = f'"{word}" is no JSON Schema keyword and constrains nothing'
            self._warn(Finding(pointer, word, reason, is_note=True))

    def _refuse(self, finding: Finding) -> None:
        if self.strict and not self.quiet:
            self.findings.append(finding)
        else:
            self._warn(finding)

    def _warn(self, finding: Finding) -> None:
        if not self.quiet:
            self.warnings.append(finding)


def _is_integer(names: Any) -> bool:
    """Whether numbers have to be integers: in draft-04 those are written without a fraction, so 1.0 is none."""
    named = {names} if isinstance(names, str) else set(names or ())
    return "integer" in named and "number" not in named


def _bound_of_draft_4(word: str, schema: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    """In draft-04 `exclusiveMinimum: true` says how `minimum` is meant."""
    exclusive = f"exclusive{word.capitalize()}"
    if not isinstance(schema[word], bool):
        yield (exclusive if schema.get(exclusive) is True else word), schema[word]
