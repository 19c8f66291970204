"""JSON Schemas in few words: for answers, all of whose members are always there."""

from __future__ import annotations

from typing import Any

Shape = dict[str, Any]

STRING: Shape = {"type": "string"}
INTEGER: Shape = {"type": "integer"}
COUNT: Shape = {"type": "integer", "minimum": 0}
NUMBER: Shape = {"type": "number"}
BOOLEAN: Shape = {"type": "boolean"}
NULL: Shape = {"type": "null"}


def members(optional: dict[str, Shape] | None = None, /, **required: Shape) -> Shape:
    """An object with these members and no other."""
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


def array(items: Shape) -> Shape:
    """An array of these."""
    return {"type": "array", "items": items}


def mapping(values: Shape) -> Shape:
    """An object with any names."""
    return {"type": "object", "additionalProperties": values}


def nullable(shape: Shape) -> Shape:
    """A value of the shape, or null."""
    return {"anyOf": [shape, NULL]}


def one_of(*values: str) -> Shape:
    """One of these strings."""
    return {"type": "string", "enum": list(values)}


def ref(name: str) -> Shape:
    """The component of this name."""
    return {"$ref": f"#/components/schemas/{name}"}
