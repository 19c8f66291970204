"""`GET /health`, `/ready` and `/version`: for load balancers and people."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from app.gate import Gate
from app.routes import READING
from app.version import VERSION

router = APIRouter()


@router.api_route("/health", methods=READING)
async def health() -> JSONResponse:
    """200 while the process lives."""
    return JSONResponse({"status": "ok"})


@router.api_route("/ready", methods=READING)
async def ready(request: Request) -> JSONResponse:
    """200 while work is taken, else 503 and why."""
    gate: Gate = request.app.state.gate
    gate.check_open()
    return JSONResponse({"status": "ready"})


@router.api_route("/version", methods=READING)
async def show_version() -> JSONResponse:
    """The version of this server."""
    return JSONResponse({"version": VERSION})
