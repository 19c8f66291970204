"""Schemas in the cache, and on their way into it, as JSON.

In: what the engine and the cache say. Out: plain JSON values. Cost: constant for each schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from app.findings import warnings_json
from engine import SchemaUse
from schemas_cache import StoredSchema


def schema_json(stored: StoredSchema) -> dict[str, Any]:
    """A schema in the cache, as it is listed; what only its compiling told is null."""
    return {
        "object": "schema",
        "hash": stored.schema_hash,
        "status": "ready",
        "cache": stored.tier,
        "compile_ms": None,
        "states": stored.states,
        "table_bytes": stored.size_bytes,
        "minimum_tokens": stored.minimum_tokens,
        "warnings": None,
    }


def prewarmed_json(use: SchemaUse, stored: StoredSchema | None) -> dict[str, Any]:
    """A schema that was just asked for; sizes are null where it has left the cache again."""
    return {
        "object": "schema",
        "hash": use.schema_hash,
        "status": "ready",
        "cache": use.cache,
        "compile_ms": round(use.compile_ms, 3),
        "states": stored.states if stored else None,
        "table_bytes": stored.size_bytes if stored else None,
        "minimum_tokens": use.minimum_tokens,
        "warnings": warnings_json(use.warnings),
    }


def compiling_json(schema_hash: str) -> dict[str, Any]:
    """A schema that is being compiled: all that is known is its name."""
    unknown = dict.fromkeys(("cache", "compile_ms", "states", "table_bytes", "minimum_tokens", "warnings"))
    return {"object": "schema", "hash": schema_hash, "status": "compiling"} | unknown


def schema_list_json(items: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """All of them."""
    return {"object": "list", "data": list(items), "has_more": False}
