"""`GET /v1/models` and `GET /v1/models/{id}`; an id may hold slashes."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from app.gate import Gate
from app.protocol.models import model_body, model_list_body
from app.routes import READING
from engine import UnknownModelError

router = APIRouter()


@router.api_route("/v1/models", methods=READING)
async def list_models(request: Request) -> JSONResponse:
    """All models."""
    gate: Gate = request.app.state.gate
    gate.check_loaded()
    return JSONResponse(model_list_body(list(gate.engine.models.values()), gate.loaded_at))


@router.api_route("/v1/models/{model_id:path}", methods=READING)
async def retrieve_model(request: Request, model_id: str) -> JSONResponse:
    """One model."""
    gate: Gate = request.app.state.gate
    gate.check_loaded()
    model = gate.engine.models.get(model_id)
    if model is None:
        raise UnknownModelError(model_id, tuple(gate.engine.models))
    return JSONResponse(model_body(model, gate.loaded_at))
