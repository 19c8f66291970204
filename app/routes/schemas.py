"""`/v1/schemas`: reports on schemas, compiling ahead, and what is in the cache."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from app.body import parse_json, read_body
from app.errors import NotFoundError
from app.exchange import exchange_of
from app.gate import Gate
from app.prewarm import Prewarming
from app.protocol.schemas import AskedSchema, PrewarmBody, SchemaBody, parse_schema, refusal_report, report_of
from app.protocol.stored_schemas import compiling_json, prewarmed_json, schema_json, schema_list_json
from app.routes import READING
from app.settings import Settings
from app.words import clip
from schemas_cache import SchemaError

router = APIRouter()


@router.post("/v1/schemas/validate")
async def validate_schema(request: Request) -> JSONResponse:
    """Say whether a schema can be enforced, and what it would come to; nothing is kept."""
    gate: Gate = request.app.state.gate
    asked = await _read(request, SchemaBody)
    return JSONResponse(await gate.run(request, _report_in_turn(request, asked)))


@router.post("/v1/schemas")
async def prewarm_schema(request: Request) -> JSONResponse:
    """Compile a schema, so that the first request for it finds it ready."""
    gate: Gate = request.app.state.gate
    prewarming: Prewarming = request.app.state.prewarming
    asked = await _read(request, PrewarmBody)
    schema_hash = await run_in_threadpool(lambda: asked.source.schema_hash)
    if asked.wait:
        use = await prewarming.compile(request, asked.model.name, asked.source)
    else:
        begun = await prewarming.begin(asked.model.name, asked.source)
        if begun is None:
            return JSONResponse(compiling_json(schema_hash))
        use = begun
    stored = await run_in_threadpool(gate.engine.cache.entry, schema_hash)
    return JSONResponse(prewarmed_json(use, stored))


@router.api_route("/v1/schemas", methods=READING)
async def list_schemas(request: Request) -> JSONResponse:
    """All schemas, those that are being compiled first, then the newest."""
    gate: Gate = request.app.state.gate
    prewarming: Prewarming = request.app.state.prewarming
    stored = await run_in_threadpool(gate.engine.cache.entries)
    compiling = [compiling_json(schema_hash) for schema_hash in prewarming.compiling]
    return JSONResponse(schema_list_json([*compiling, *map(schema_json, stored)]))


@router.api_route("/v1/schemas/{schema_hash}", methods=READING)
async def retrieve_schema(request: Request, schema_hash: str) -> JSONResponse:
    """One schema, the newest of its tables."""
    gate: Gate = request.app.state.gate
    prewarming: Prewarming = request.app.state.prewarming
    stored = await run_in_threadpool(gate.engine.cache.entry, schema_hash)
    if stored is not None:
        return JSONResponse(schema_json(stored))
    if schema_hash in prewarming.compiling:
        return JSONResponse(compiling_json(schema_hash))
    raise _unknown(schema_hash)


@router.delete("/v1/schemas/{schema_hash}")
async def delete_schema(request: Request, schema_hash: str) -> JSONResponse:
    """Forget a schema, for all models and options; what runs with it goes on."""
    gate: Gate = request.app.state.gate
    if not await run_in_threadpool(gate.engine.cache.delete, schema_hash):
        raise _unknown(schema_hash)
    return JSONResponse({"hash": schema_hash, "deleted": True})


async def _read(request: Request, body: type[SchemaBody]) -> AskedSchema:
    gate: Gate = request.app.state.gate
    settings: Settings = request.app.state.settings
    exchange_of(request.scope).schema_field = "schema"
    gate.check_open()
    data = await read_body(request, settings.body_limit_bytes)
    return await run_in_threadpool(lambda: parse_schema(body, parse_json(data), gate.engine.models))


async def _report_in_turn(request: Request, asked: AskedSchema) -> dict[str, Any]:
    """As many at a time as there are compile workers, so that reports take no more threads than can be at work."""
    turn: asyncio.Semaphore = request.app.state.reporting
    async with turn:
        return await asyncio.to_thread(_report, request.app.state.gate, asked)


def _report(gate: Gate, asked: AskedSchema) -> dict[str, Any]:
    try:
        return report_of(gate.engine.inspect(asked.model.name, asked.source))
    except SchemaError as error:
        return refusal_report(asked.source, error)


def _unknown(schema_hash: str) -> NotFoundError:
    return NotFoundError(f"no schema with the hash {clip(schema_hash)!r} is stored")
