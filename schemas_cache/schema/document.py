"""The schema as a document: bounds, positions, annotations, the canonical form and its hash.

In: a schema as `json.loads` gives it. Out: `Document`, checked to be JSON within the limits and free of annotations, or
`canonical` bytes and `schema_hash`. Cost: linear in the schema's text, times its depth where named parts nest.

A position is named by its JSON pointer as a URI fragment (RFC 6901 section 6): `#/properties/code`. Characters beyond
ASCII stay readable. References are followed in the document *without* annotations, so that nothing which the hash
leaves out can change the meaning. `$schema` names no constraint and is left out too, unless it names a draft older than
2020-12, since the same keywords then mean something else.

Rejected: resolving references by their contents (a position is needed to name rules and faults); fetching, ever.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from schemas_cache.errors import Finding, SchemaError, SchemaTooComplexError
from schemas_cache.limits import MAX_NUMBER_DIGITS, MAX_SCHEMA_BYTES, MAX_SCHEMA_NESTING

Json: TypeAlias = Any
"""A value as `json.loads` gives it."""
_Path: TypeAlias = tuple[str, ...]

ANNOTATIONS = frozenset(
    {
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("$schema", "$comment", "discriminator"),
        *("contentMediaType", "contentEncoding", "contentSchema"),
    }
)
"""Words that constrain nothing."""
IDENTIFIERS = frozenset({"$id", "id"})
"""Names of resources (`id` up to draft-04): annotations, unless a reference goes by them or is relative to them."""
REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
ONE_SCHEMA = frozenset(
    {
        *("items", "additionalItems", "unevaluatedItems", "contains"),
        *("additionalProperties", "unevaluatedProperties", "propertyNames"),
        *("not", "if", "then", "else"),
    }
)
LIST_OF_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
SCHEMAS_BY_NAME = frozenset(
    {"properties", "patternProperties", "dependencies", "dependentSchemas", "$defs", "definitions"}
)
NEWEST_DRAFT = "2020-12"
_DRAFT = re.compile(r"https?://json-schema\.org/(?:draft-0([3467])|draft/(2019-09|2020-12))/schema#?")
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_IN_FRAGMENT = re.compile(r'[\x00-\x20"#%<>\[\\\]^`{|}\x7f]')


class DanglingRefError(Exception):
    """A reference that leads nowhere; the arguments are the reason and the hint."""

    def __init__(self, reason: str, hint: str = "") -> None:
        self.reason, self.hint = reason, hint
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Document:
    """A schema within the limits, without annotations.

    `draft` is the reading that `$schema` asks for, `unknown_dialect` what stands there instead of a draft.
    """

    root: Json
    draft: str
    unknown_dialect: str = ""

    def follow(self, pointer: str, segments: list[str], reference: str) -> tuple[str, Json]:
        """Position and contents some segments below `pointer`; raises `DanglingRefError`, which names the reference."""
        value = self.root
        for segment in pointer.split("/")[1:]:
            value = _step(value, unquote(segment).replace("~1", "/").replace("~0", "~"), reference, pointer)
        for i, segment in enumerate(segments):
            value = _step(value, segment, reference, child(pointer, *segments[:i]))
        return child(pointer, *segments), value


def child(pointer: str, *segments: str) -> str:
    """The position some segments below `pointer`."""
    return pointer + "".join("/" + _fragment(segment.replace("~", "~0").replace("/", "~1")) for segment in segments)


def read_document(schema: Json) -> Document:
    """Check that a schema is JSON within the limits, and leave its annotations out.

    Raises
    ------
    SchemaTooComplexError
        Beyond `MAX_SCHEMA_NESTING` or `MAX_SCHEMA_BYTES`.
    SchemaError
        For what is no JSON: NaN, infinities, lone surrogates, other types.
    """
    _check_values(schema)
    size_bytes = len(_compact(schema))
    if size_bytes > MAX_SCHEMA_BYTES:
        raise _too_complex("#", f"the schema has {size_bytes} bytes, the limit is {MAX_SCHEMA_BYTES}")
    draft = _draft(schema)
    named = schema.get("$schema") if isinstance(schema, dict) else None
    unknown = named if isinstance(named, str) and not _DRAFT.fullmatch(named) else ""
    uses_names = any(not re.match("#(/|$)", reference) for reference in _references(schema))
    return Document(_without_annotations(schema, draft, is_root=True, uses_names=uses_names), draft, unknown)


def canonical(schema: Json) -> bytes:
    """Compact UTF-8 JSON without annotations, keys in their order; raises as `read_document` does."""
    document = read_document(schema)
    if document.draft == NEWEST_DRAFT:
        return _compact(document.root)
    return _compact({"$schema": document.draft, **document.root})


def schema_hash(schema: Json) -> str:
    """SHA-256 of the canonical form, 64 hexadecimal digits; raises as `read_document` does."""
    return hashlib.sha256(canonical(schema)).hexdigest()


def _fragment(text: str) -> str:
    return _NOT_IN_FRAGMENT.sub(lambda match: quote(match[0], safe=""), text)


def _compact(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _draft(schema: Json) -> str:
    return _named_draft(schema) or NEWEST_DRAFT


def _named_draft(schema: Json) -> str | None:
    named = schema.get("$schema") if isinstance(schema, dict) else None
    match = _DRAFT.fullmatch(named) if isinstance(named, str) else None
    return (match[1] or match[2]) if match else None


def _too_complex(pointer: str, reason: str) -> SchemaTooComplexError:
    return SchemaTooComplexError([Finding(pointer, "", reason, "split the schema into smaller ones")])


def _check_values(schema: Json) -> None:
    """Visit every value without recursion: depth and size are not known to be small yet."""
    findings: list[Finding] = []
    visited = 0
    stack: list[tuple[Json, _Path]] = [(schema, ())]
    while stack:
        value, path = stack.pop()
        visited += 1
        if visited > MAX_SCHEMA_BYTES:  # each value takes a byte at least; a graph of shared objects ends here as well
            raise _too_complex("#", f"the schema has more than {MAX_SCHEMA_BYTES} values")
        if isinstance(value, dict | list) and len(path) >= MAX_SCHEMA_NESTING:
            raise _too_complex(child("#", *path), f"the schema nests more than {MAX_SCHEMA_NESTING} levels deep")
        reason = _fault(value)
        if reason:
            findings.append(Finding(child("#", *path), "", reason))
        elif isinstance(value, dict):
            stack += [(value[key], (*path, key)) for key in reversed(value)]
        elif isinstance(value, list):
            stack += [(value[i], (*path, str(i))) for i in reversed(range(len(value)))]
    if findings:
        raise SchemaError(findings)


def _fault(value: Json) -> str:
    """Why this value, its members aside, is no JSON value; empty when it is one."""
    match value:
        case None | bool() | list():
            return ""
        case str():
            return _surrogate(value)
        case dict() if not all(isinstance(key, str) for key in value):
            return "a member name that is no string"
        case dict():
            return next(filter(None, map(_surrogate, value)), "")
        case int():
            too_long = value.bit_length() > MAX_NUMBER_DIGITS * math.log2(10)
            return f"a number of more than {MAX_NUMBER_DIGITS} digits" if too_long else ""
        case float():
            return "" if math.isfinite(value) else f"{value} is no JSON number"
        case _:
            return f"a {type(value).__name__} is no JSON value"


def _surrogate(text: str) -> str:
    alone = not text.isascii() and _SURROGATE.search(text)
    return "half of a surrogate pair, which no UTF-8 text can hold" if alone else ""


def _without_annotations(schema: Json, draft: str, *, is_root: bool = False, uses_names: bool = False) -> Json:
    """The schema less its annotations; where no schema stands (`enum`, names, unknown keywords) nothing is touched."""
    if not isinstance(schema, dict):
        return schema
    names = IDENTIFIERS if draft in ("3", "4") else frozenset({"$id"})
    is_base = not is_root and not names.isdisjoint(schema) and any(_references(schema))
    dropped = ANNOTATIONS | (frozenset() if uses_names or is_base else names)
    if not is_root and not names.isdisjoint(schema) and _named_draft(schema) not in (None, draft):
        dropped -= {"$schema"}  # a resource in another draft, which is for `reading` to refuse
    return {word: _inside(word, value, draft, uses_names) for word, value in schema.items() if word not in dropped}


def _inside(word: str, value: Json, draft: str, uses_names: bool) -> Json:
    if word in SCHEMAS_BY_NAME and isinstance(value, dict):
        return {name: _without_annotations(v, draft, uses_names=uses_names) for name, v in value.items()}
    if word in LIST_OF_SCHEMAS and isinstance(value, list):
        return [_without_annotations(v, draft, uses_names=uses_names) for v in value]
    return _without_annotations(value, draft, uses_names=uses_names) if word in ONE_SCHEMA else value


def _references(value: Json) -> Iterator[str]:
    """Everything that may be a reference, wherever it stands."""
    if isinstance(value, dict):
        yield from (v for word, v in value.items() if word in REFERENCES and isinstance(v, str))
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _references(inner)


def _step(value: Json, segment: str, reference: str, here: str) -> Json:
    if isinstance(value, dict) and segment in value:
        return value[segment]
    if isinstance(value, list) and re.fullmatch("0|[1-9][0-9]{0,8}", segment) and int(segment) < len(value):
        return value[int(segment)]
    present = ", ".join(list(value)[:8]) if isinstance(value, dict) else ""
    raise DanglingRefError(
        f'"{reference}" points to nothing: there is no "{segment}" at {here}',
        f"present there: {present}" if present else "",
    )
