"""`POST /v1/completions`."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from app.body import parse_json, read_body
from app.gate import Gate
from app.protocol.answers import completion_body, completion_headers
from app.protocol.completions import Completion, Defaults, parse_completion
from app.settings import Settings

router = APIRouter()


@router.post("/v1/completions")
async def create_completion(request: Request) -> JSONResponse:
    """Complete each prompt n times, under the format that the request gives."""
    gate: Gate = request.app.state.gate
    settings: Settings = request.app.state.settings
    gate.check_open()
    body = await read_body(request, settings.body_limit_bytes)
    asked = await run_in_threadpool(_parse, body, gate, settings)
    gate.check_open()
    result = await gate.run(request, gate.engine.generate(asked.model.name, asked.request))
    content = await run_in_threadpool(partial(completion_body, asked, result))
    return JSONResponse(content, headers=completion_headers(asked, result))


def _parse(body: bytes, gate: Gate, settings: Settings) -> Completion:
    defaults = Defaults(settings.default_max_tokens, settings.compile_timeout_s)
    return parse_completion(parse_json(body), gate.engine.models, defaults)
