"""`POST /v1/chat/completions`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from app.generating import answer
from app.protocol.chat import parse_chat
from app.protocol.chat_answers import ChatWriter

router = APIRouter()


@router.post("/v1/chat/completions")
async def create_chat_completion(request: Request) -> Response:
    """Answer the messages n times, under the format that the request gives."""
    return await answer(request, parse_chat, ChatWriter)
