"""Models by name, and the bodies of `/v1/models`: one object that satisfies the OpenAI and the Anthropic SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from engine import LoadedModel, UnknownModelError


def model_named(name: str | None, models: Mapping[str, LoadedModel]) -> LoadedModel:
    """The model of this name, or the first one; raises `UnknownModelError`."""
    model = models.get(name) if name is not None else next(iter(models.values()), None)
    if model is None:
        raise UnknownModelError(name or "", tuple(models))
    return model


def model_body(model: LoadedModel, loaded_at: int) -> dict[str, Any]:
    """One model, loaded at this Unix time."""
    context_length = model.model.context_length
    return {
        "id": model.name,
        "object": "model",
        "type": "model",
        "created": loaded_at,
        "created_at": datetime.fromtimestamp(loaded_at, UTC).isoformat().replace("+00:00", "Z"),
        "owned_by": "katagami",
        "display_name": model.name,
        "lifecycle": "active",
        "max_input_tokens": context_length,
        "max_tokens": context_length,
        "capabilities": {"structured_outputs": {"supported": True}},
    }


def model_list_body(models: Sequence[LoadedModel], loaded_at: int) -> dict[str, Any]:
    """All models, in the order in which the server was told of them."""
    return {
        "object": "list",
        "data": [model_body(model, loaded_at) for model in models],
        "has_more": False,
        "first_id": models[0].name if models else None,
        "last_id": models[-1].name if models else None,
    }
