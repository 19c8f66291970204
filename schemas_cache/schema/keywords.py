"""The words of a schema: what each must look like, and what to say of those that no draft knows.

In: a keyword and its value. Out: the faults of the value, as reasons with hints. Sources: JSON Schema Core and
Validation 2020-12, and the older drafts for `definitions`, `dependencies` and the rest of `KNOWN`.

The standard lets unknown words pass as annotations, and so they do here, with a warning, but for two kinds that would
be constraints which silently do nothing: what is spelled nearly like a keyword and has its form (`requird`), and the
constraints of dialects (`nullable`). Words that are newer than the draft that a schema names are unknown to it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator

from schemas_cache.schema.document import ANNOTATIONS, ONE_SCHEMA, Json

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


def check_multiple_of(value: Json) -> Iterator[Fault]:
    """A number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        yield f"expected a number above 0, found {show(value)}", ""


def check_boolean(value: Json) -> Iterator[Fault]:
    """True or false."""
    if not isinstance(value, bool):
        yield f"expected true or false, found {show(value)}", ""


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


def check_names_by_name(value: Json) -> Iterator[Fault]:
    """An object of lists of different strings."""
    if not isinstance(value, dict):
        yield f"expected an object of lists of names, found {show(value)}", ""
        return
    for names in value.values():
        yield from check_required(names)


def check_dependencies(value: Json) -> Iterator[Fault]:
    """An object of schemas and lists of names; schemas are checked where they are read."""
    if not isinstance(value, dict):
        yield f"expected an object of schemas and lists of names, found {show(value)}", ""
        return
    for names in value.values():
        yield from check_required(names) if isinstance(names, list) else ()


def check_enum(value: Json) -> Iterator[Fault]:
    """A list with a value at least."""
    if not isinstance(value, list) or not value:
        yield f"expected a list of values, found {show(value)}", ""


def check_any(value: Json) -> Iterator[Fault]:
    """Whatever stands there, or a schema, which is checked where it is read."""
    del value
    yield from ()


SUPPORTED: dict[str, Check] = {
    **dict.fromkeys(("$ref", "$dynamicRef", "$recursiveRef"), check_string),
    "type": check_type,
    "enum": check_enum,
    "const": check_any,
    "minLength": check_count,
    "maxLength": check_count,
    "pattern": check_string,
    "format": check_string,
    "minimum": check_number,
    "maximum": check_number,
    "exclusiveMinimum": check_number,
    "exclusiveMaximum": check_number,
    "multipleOf": check_multiple_of,
    "properties": check_schemas_by_name,
    "required": check_required,
    "additionalProperties": check_any,
    "patternProperties": check_schemas_by_name,
    "propertyNames": check_any,
    "minProperties": check_count,
    "maxProperties": check_count,
    "dependentRequired": check_names_by_name,
    "dependentSchemas": check_schemas_by_name,
    "dependencies": check_dependencies,
    "unevaluatedProperties": check_any,
    "items": check_any,
    "prefixItems": check_schema_list,
    "additionalItems": check_any,
    "contains": check_any,
    "minContains": check_count,
    "maxContains": check_count,
    "uniqueItems": check_boolean,
    "unevaluatedItems": check_any,
    "minItems": check_count,
    "maxItems": check_count,
    "anyOf": check_schema_list,
    "allOf": check_schema_list,
    "oneOf": check_schema_list,
    "not": check_any,
    "if": check_any,
    "then": check_any,
    "else": check_any,
    "$defs": check_schemas_by_name,
    "definitions": check_schemas_by_name,
}
"""Keywords that are enforced, with the check of their value."""

ANCHORS = frozenset({"$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary"})
"""Names for references to go by; `references` reads them."""
_DRAFTS = ("4", "6", "7", "2019-09", "2020-12")
_NEW_IN = {
    **dict.fromkeys(("const", "contains", "propertyNames"), "6"),
    **dict.fromkeys(("if", "then", "else"), "7"),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "minContains", "maxContains"), "2019-09"),
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems", "$recursiveRef"), "2019-09"),
    **dict.fromkeys(("prefixItems", "$dynamicRef"), "2020-12"),
}
"""The draft that a keyword came with, where that is newer than draft-04."""

KNOWN = SUPPORTED.keys() | ANNOTATIONS | ANCHORS | {"$id"}
"""Every word that some draft of the standard defines."""

_HINTS = {
    "nullable": 'write "type": ["string", "null"] or add {"type": "null"} to anyOf',
}


def draft_name(draft: str) -> str:
    """As people write it."""
    return draft if "-" in draft else f"draft-0{draft}"


def is_newer(word: str, draft: str) -> bool:
    """Whether a keyword came after this draft (or, for `$recursiveRef`, went before it)."""
    if word == "$recursiveRef" and draft == "2020-12":
        return True
    return word in _NEW_IN and draft in _DRAFTS and _DRAFTS.index(draft) < _DRAFTS.index(_NEW_IN[word])


def is_meant(word: str, value: Json) -> bool:
    """Whether an unknown word is likely to be meant as a constraint: a slip of a keyword, or one of a dialect."""
    if word == "nullable":
        return value is True
    near = _slip_of(word)
    if near is None or near in ANNOTATIONS or near not in SUPPORTED:
        return near is not None and near not in ANNOTATIONS
    is_schema = near not in ONE_SCHEMA or isinstance(value, dict | bool)
    return is_schema and not any(SUPPORTED[near](value))


def _slip_of(word: str) -> str | None:
    """The keyword that a word is spelled nearly like: other capitals, or a letter or two amiss in a long one."""
    plain = {keyword.replace("$", "").lower(): keyword for keyword in sorted(KNOWN)}
    bare = word.strip("$_").replace("_", "").replace("-", "").lower()
    if bare in plain:
        return None if word[0] in "$_" else plain[bare]
    near = difflib.get_close_matches(bare, plain, n=1, cutoff=0.84)
    return plain[near[0]] if near and len(near[0]) > 5 and near[0][0] == bare[0] else None


def refusal(word: str) -> Fault:
    """Why a word that is meant as a constraint is refused, and the way out."""
    return f'"{word}" is no JSON Schema keyword', _HINTS.get(word) or f'did you mean "{_slip_of(word)}"?'


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
