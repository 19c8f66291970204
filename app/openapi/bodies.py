"""What routes take: JSON Schemas from the pydantic models that check it.

In: the models of bodies, the names of the models that are loaded. Out: components of the document. Pydantic knows the
types, bounds and required fields. Added here is what its checks do beside them: null is the same as absent, also under
unknown names; vendors' fields without effect are taken; some fields are read from more than one type before pydantic
sees them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from app.openapi.shapes import NULL, STRING, Shape, array, nullable
from app.protocol.chat import ChatBody
from app.protocol.completions import CompletionBody
from app.protocol.fields import IGNORED, Fields
from app.protocol.generation import MAX_CHOICES, MAX_STOPS
from app.protocol.messages import MESSAGE_HINTS, PART_HINTS, ROLES, Message, RefusalPart, TextPart
from app.protocol.schemas import PrewarmBody, SchemaBody
from app.protocol.tokenizing import DetokenizeBody, TokenizeBody

WHOLE: tuple[type[Fields], ...] = (  # these take vendors' fields
    *(CompletionBody, ChatBody, SchemaBody, PrewarmBody, TokenizeBody, DetokenizeBody),
)
BODIES: tuple[type[Fields], ...] = (*WHOLE, Message, TextPart, RefusalPart)
BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}
REFERENCE = "#/components/schemas/{model}"

TOKEN_IDS: Shape = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
MANY = {"minItems": 1, "maxItems": MAX_CHOICES}
PROMPT: Shape = {"anyOf": [STRING, TOKEN_IDS, array(STRING) | MANY, array(TOKEN_IDS) | MANY, NULL]}
SOME_TEXT: Shape = {"type": "string", "minLength": 1}
STOP: Shape = {"anyOf": [SOME_TEXT, array(SOME_TEXT) | {"maxItems": MAX_STOPS}, NULL]}
SCHEMA: Shape = {"type": ["object", "boolean"]}
TOKEN_ID_NAMES: Shape = {"propertyNames": {"pattern": "^(0|[1-9][0-9]*)$"}}
CONTENT: Shape = {
    "anyOf": [
        STRING,
        {"type": "array", "minItems": 1, "items": {"anyOf": [{"$ref": REFERENCE.format(model="TextPart")}]}},
        NULL,
    ]
}
ROLE: Shape = {"type": "string", "enum": [*ROLES]}
MESSAGES: Shape = {"type": "array", "minItems": 1, "items": {"$ref": REFERENCE.format(model="Message")}}

# What is read before pydantic sees it.
READ_BEFORE: dict[tuple[str, str], Shape] = {
    ("CompletionBody", "prompt"): PROMPT,
    **{(body, "stop"): STOP for body in ("CompletionBody", "ChatBody")},
    **{(body, "schema"): SCHEMA for body in ("NamedSchema", "SchemaBody", "PrewarmBody")},
    ("ChatBody", "messages"): MESSAGES,
    ("TokenizeBody", "messages"): nullable(MESSAGES),
    ("Message", "role"): ROLE,
    ("Message", "content"): CONTENT,
}


def body_schemas(model_names: Sequence[str]) -> dict[str, Shape]:
    """All bodies and what they refer to, by name."""
    found: dict[str, Shape] = {}
    for body in BODIES:
        schema = body.model_json_schema(by_alias=True, ref_template=REFERENCE)
        found |= schema.pop("$defs", {})
        found[body.__name__] = schema
    exact = {name: _exact(name, schema) for name, schema in found.items()}
    for body in WHOLE:
        _add_hints(exact[body.__name__], IGNORED)
    _add_hints(exact["Message"], MESSAGE_HINTS)
    _add_hints(exact["TextPart"], PART_HINTS)
    _name_models(exact, model_names)
    return exact


def _exact(name: str, schema: Shape) -> Shape:
    """The schema with null where a field may be absent, without pydantic's own titles and defaults of objects."""
    required = schema.get("required", [])
    properties = {}
    for field, given in schema.get("properties", {}).items():
        shape = READ_BEFORE.get((name, field), _plain(given))
        properties[field] = shape if field in required else _or_null(shape)
    return {**_plain(schema), "properties": properties, "additionalProperties": NULL}


def _or_null(shape: Shape) -> Shape:
    default = {"default": shape["default"]} if shape.get("default") is not None else {}
    bare = {key: value for key, value in shape.items() if key != "default"}
    takes_null = bare.get("type") == "null" or NULL in bare.get("anyOf", [])
    return (bare if takes_null or not bare else nullable(bare)) | default


def _plain(schema: Any) -> Any:
    """The schema without titles, and with bounds under JSON Schema's names: pydantic's own come through unread."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        BOUNDS.get(key, key): value if key in ("const", "enum", "default") else _plain(value)
        for key, value in schema.items()
        if key != "title" or not isinstance(value, str)
    }


def _add_hints(schema: Shape, names: Iterable[str]) -> None:
    told = {"description": "accepted, without effect"}
    schema["properties"] |= {name: told for name in sorted(names) if name not in schema["properties"]}


def _name_models(schemas: dict[str, Shape], model_names: Sequence[str]) -> None:
    """Say which models there are, where they are known."""
    if not model_names:
        return
    named: Shape = {"type": "string", "enum": list(model_names)}
    for schema in schemas.values():
        if "model" in schema.get("properties", {}):
            is_required = "model" in schema.get("required", [])
            schema["properties"]["model"] = named if is_required else nullable(named)
