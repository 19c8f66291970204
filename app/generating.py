"""What all generating routes do: read the body, check it, run it, and answer whole or in pieces.

In: the HTTP request, the route's parser and its writer. Out: a response. Cost: the parts' own; parsing and judging run
in worker threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from app.body import parse_json, read_body
from app.gate import Gate
from app.protocol.answers import Writer, answer_body, answer_headers
from app.protocol.generation import Asked, Defaults
from app.settings import Settings
from app.streams import EventStream
from engine import LoadedModel

Parse = Callable[[dict[str, Any], Mapping[str, LoadedModel], Defaults], Asked]


async def answer(request: Request, parse: Parse, writer_of: Callable[[Asked], Writer]) -> Response:
    """The response to one generating request."""
    gate: Gate = request.app.state.gate
    settings: Settings = request.app.state.settings
    gate.check_open()
    body = await read_body(request, settings.body_limit_bytes)
    asked = await run_in_threadpool(_parse, body, parse, gate, settings)
    gate.check_open()
    writer = writer_of(asked)
    if asked.stream:
        return EventStream(gate, asked, writer)
    result = await gate.generate(request, asked.model.name, asked.request)
    content = await run_in_threadpool(partial(answer_body, asked, writer, result))
    return JSONResponse(content, headers=answer_headers(asked, result))


def _parse(body: bytes, parse: Parse, gate: Gate, settings: Settings) -> Asked:
    defaults = Defaults(
        settings.default_max_tokens,
        settings.compile_timeout_s,
        deadline_s=settings.request_timeout_s,
        structured_output=settings.structured_output,
    )
    return parse(parse_json(body), gate.engine.models, defaults)
