"""`POST /tokenize` and `POST /detokenize`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from app.body import parse_json, read_body
from app.gate import Gate
from app.protocol.tokenizing import detokenize, tokenize
from app.settings import Settings
from engine import LoadedModel

router = APIRouter()


@router.post("/tokenize")
async def tokenize_text(request: Request) -> JSONResponse:
    """Text to token ids."""
    return await _answer(request, tokenize)


@router.post("/detokenize")
async def detokenize_ids(request: Request) -> JSONResponse:
    """Token ids to text."""
    return await _answer(request, detokenize)


async def _answer(
    request: Request, work: Callable[[dict[str, Any], Mapping[str, LoadedModel]], dict[str, Any]]
) -> JSONResponse:
    gate: Gate = request.app.state.gate
    settings: Settings = request.app.state.settings
    gate.check_loaded()
    body = await read_body(request, settings.body_limit_bytes)
    return JSONResponse(await run_in_threadpool(lambda: work(parse_json(body), gate.engine.models)))
