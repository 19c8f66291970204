"""`GET /health`, `/ready`, `/version`, `/metrics`, `/openapi.json`: for machines around the server, and for people."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.concurrency import run_in_threadpool

from app.gate import Gate
from app.metrics import Metrics
from app.openapi import build_document
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


@router.api_route("/metrics", methods=READING)
async def show_metrics(request: Request) -> Response:
    """Figures in Prometheus's text format."""
    metrics: Metrics = request.app.state.metrics
    return Response(await run_in_threadpool(metrics.render), media_type=CONTENT_TYPE_LATEST)


@router.api_route("/openapi.json", methods=READING)
async def show_document(request: Request) -> JSONResponse:
    """The API as an OpenAPI document, with the names of the models that are loaded by now."""
    gate: Gate = request.app.state.gate
    return JSONResponse(await run_in_threadpool(build_document, list(gate.engine.models)))
