"""The words of a schema: what each must look like, which can be enforced, and what to say of the others.

In: a keyword and its value. Out: the faults of the value, as reasons with hints. Sources: JSON Schema Core and
Validation 2020-12, and the older drafts for `definitions`, `dependencies` and the rest of `KNOWN`.

The standard lets unknown words pass as annotations. Here only `x-` words do: anything else that no draft knows is more
often a slip (`requird`) than an annotation, and would be a constraint that silently does nothing.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator

from schemas_cache.schema.document import ANNOTATIONS, LIST_OF_SCHEMAS, ONE_SCHEMA, SCHEMAS_BY_NAME, Json

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
Fault = tuple[str, str]
Check = Callable[[Json], Iterator[Fault]]


def check_type(value: Json) -> Iterator[Fault]:
    """One type name, or a list of different ones."""
    names = value if isinstance(value, list) else [value]
    if not names:
        yield "expected at least one type, found an empty list", ""
    for i, name in enumerate(names):
        if name not in TYPES:
            yield f"expected a type name, found {show(name)}", _nearest(name, TYPES, f"one of {', '.join(TYPES)}")
        elif name in names[:i]:
            yield f'the type "{name}" is listed twice', ""


def check_count(value: Json) -> Iterator[Fault]:
    """An integer from 0; `2.0` is one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != int(value):
        yield f"expected an integer from 0, found {show(value)}", ""


def check_number(value: Json) -> Iterator[Fault]:
    """Any number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        older = 'draft-04\'s true and false need "$schema": "http://json-schema.org/draft-04/schema#"'
        yield f"expected a number, found {show(value)}", older if isinstance(value, bool) else ""


def check_string(value: Json) -> Iterator[Fault]:
    """Any string."""
    if not isinstance(value, str):
        yield f"expected a string, found {show(value)}", ""


def check_required(value: Json) -> Iterator[Fault]:
    """A list of different strings."""
    if not isinstance(value, list):
        older = "list the required names beside properties" if isinstance(value, bool) else ""
        yield f"expected a list of names, found {show(value)}", older
        return
    seen: set[str] = set()
    for name in value:
        if not isinstance(name, str):
            yield f"expected a name, found {show(name)}", ""
        elif name in seen:
            yield f"the name {show(name)} is listed twice", ""
        else:
            seen.add(name)


def check_schemas_by_name(value: Json) -> Iterator[Fault]:
    """An object; its members are checked where they are read."""
    if not isinstance(value, dict):
        yield f"expected an object of schemas, found {show(value)}", ""


def check_schema_list(value: Json) -> Iterator[Fault]:
    """A list with a member at least; its members are checked where they are read."""
    if not isinstance(value, list) or not value:
        yield f"expected a list of schemas, found {show(value)}", ""


def check_enum(value: Json) -> Iterator[Fault]:
    """A list with a value at least."""
    if not isinstance(value, list) or not value:
        yield f"expected a list of values, found {show(value)}", ""


def check_any(value: Json) -> Iterator[Fault]:
    """Whatever stands there, or a schema, which is checked where it is read."""
    del value
    yield from ()


SUPPORTED: dict[str, Check] = {
    "$ref": check_string,
    "type": check_type,
    "enum": check_enum,
    "const": check_any,
    "minLength": check_count,
    "maxLength": check_count,
    "pattern": check_string,
    "minimum": check_number,
    "maximum": check_number,
    "exclusiveMinimum": check_number,
    "exclusiveMaximum": check_number,
    "properties": check_schemas_by_name,
    "required": check_required,
    "additionalProperties": check_any,
    "items": check_any,
    "minItems": check_count,
    "maxItems": check_count,
    "anyOf": check_schema_list,
    "$defs": check_schemas_by_name,
    "definitions": check_schemas_by_name,
}
"""Keywords that are enforced, with the check of their value."""

KNOWN = (
    ANNOTATIONS
    | ONE_SCHEMA
    | LIST_OF_SCHEMAS
    | SCHEMAS_BY_NAME
    | SUPPORTED.keys()
    | {
        *("$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef", "$vocabulary"),
        *("minContains", "maxContains", "uniqueItems", "minProperties", "maxProperties", "dependentRequired"),
        *("format", "multipleOf", "$id"),
    }
)
"""Every word that some draft of the standard defines."""

_HINTS = {
    "$anchor": 'refer by position instead: "#/$defs/name"',
    "$id": 'refer by position instead: "#/$defs/name"',
    "allOf": "merge the branches into one schema",
    "oneOf": "write anyOf if at most one branch can match",
    "not": "list what is allowed",
    "format": "write a pattern",
    "multipleOf": "list the values with enum",
    "items": "give one schema for all elements",
    "prefixItems": "name the positions as properties of an object",
    "patternProperties": "declare the names as properties",
    "nullable": 'write "type": ["string", "null"] or add {"type": "null"} to anyOf',
    "optional": "leave the name out of required",
    "example": "write examples, which is ignored",
}
_GENERIC_HINT = "remove it, or ask for strict: false, which lists it as not enforced"


def is_supported(word: str, value: Json) -> bool:
    """Whether a keyword is enforced in this form; `items` as a list, one schema per position, is not."""
    return word in SUPPORTED and not (word == "items" and isinstance(value, list))


def unsupported(word: str) -> Fault:
    """Why a keyword that is not supported is refused, and the way out."""
    if word == "items":
        return "a list of schemas, one per position, cannot be enforced yet", _HINTS[word]
    if word in KNOWN:
        return f'"{word}" cannot be enforced yet', _HINTS.get(word, _GENERIC_HINT)
    known = _HINTS.get(word) or _nearest(word, sorted(KNOWN), "remove it, or prefix it with x- to have it ignored")
    return f'"{word}" is no JSON Schema keyword', known


def show(value: Json) -> str:
    """A value as JSON, shortened for a message."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else _brief(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _brief(value: Json) -> str:
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case dict():
            return "an object"
        case list():
            return "a list" if value else "an empty list"
        case _:
            return str(value)


def _nearest(word: Json, words: tuple[str, ...] | list[str], otherwise: str) -> str:
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.7) if isinstance(word, str) else []
    return f'did you mean "{near[0]}"?' if near else otherwise
