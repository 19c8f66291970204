"""`POST /v1/completions`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.generating import answer
from app.protocol.completion_answers import CompletionWriter
from app.protocol.completions import parse_completion

router = APIRouter()


@router.post("/v1/completions")
async def create_completion(request: Request) -> Response:
    """Complete each prompt n times, under the format that the request gives."""
    return await answer(request, parse_completion, CompletionWriter)
