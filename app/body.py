"""A request's bytes to one JSON object, within limits.

In: the request. Out: a dict. Cost: linear in the body; parsing belongs in a worker thread, since a body may be
megabytes. A body that says it is over the limit is answered before it is sent; of one that does not say, more is read
than may be, so that the client sees the answer and no reset.
"""

from __future__ import annotations

from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from app.errors import BodyTooLargeError, ClientGoneError, MediaTypeError, RequestError
from app.exchange import exchange_of
from app.json_text import JsonTextError, read_json
from app.words import clip, found

DISCARD_FACTOR = 8  # how much of a body over the limit is still read
MAX_LENGTH_DIGITS = 18


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body; raises `BodyTooLargeError`, `MediaTypeError` or `ClientGoneError`."""
    check_media_type(request)
    check_length(request, limit_bytes)
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size <= limit_bytes:
                chunks.append(chunk)
            elif size > DISCARD_FACTOR * limit_bytes:
                break
    except ClientDisconnect:
        raise ClientGoneError("the client closed the connection") from None
    if size > limit_bytes:
        raise BodyTooLargeError(f"the body is larger than the limit of {limit_bytes} bytes")
    body = b"".join(chunks)
    if request.app.state.settings.log_prompts:
        exchange_of(request.scope).body = body
    return body


def check_length(request: Request, limit_bytes: int) -> None:
    """Refuse a body by what its header says, before any of it is read."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > MAX_LENGTH_DIGITS or int(length) > limit_bytes):
        raise BodyTooLargeError(f"the body has {clip(length)} bytes; the limit is {limit_bytes}")


def check_media_type(request: Request) -> None:
    """JSON in UTF-8, not compressed; a missing header is taken as that."""
    media_type, *parameters = request.headers.get("content-type", "application/json").lower().split(";")
    if media_type.strip() != "application/json" and not media_type.strip().endswith("+json"):
        raise MediaTypeError(f"content-type {clip(media_type.strip())!r} is not supported; send application/json")
    for parameter in parameters:
        name, _, value = parameter.strip().partition("=")
        if name == "charset" and value.strip('"') not in ("utf-8", "utf8", "us-ascii"):
            raise MediaTypeError(f"charset {clip(value)!r} is not supported; send UTF-8")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise MediaTypeError("compressed bodies are not supported; send the JSON as it is")


def parse_json(body: bytes) -> dict[str, Any]:
    """The body's object; raises `RequestError` with code `invalid_json` or `invalid_type`."""
    try:
        value = read_json(body, "the body")
    except JsonTextError as error:
        raise RequestError("invalid_json", str(error)) from None
    if not isinstance(value, dict):
        raise RequestError("invalid_type", f"the body must be a JSON object, not {found(value)}")
    return value
