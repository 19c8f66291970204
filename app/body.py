"""A request's bytes to one JSON object, within limits.

In: the request. Out: a dict with its keys in the order they came in, numbers as `json` reads them. Cost: linear in the
body; parsing belongs in a worker thread, since a body may be megabytes. What is refused here, although `json` takes it:
duplicate keys (which of the two is meant?), NaN and numbers beyond a double, halves of surrogate pairs (no text that
could be sent back holds them), and nesting beyond `MAX_DEPTH`, which would exhaust the stack of whatever walks the
value.
"""

from __future__ import annotations

import json
import math
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from app.errors import BodyTooLargeError, ClientGoneError, MediaTypeError, RequestError, clip

MAX_DEPTH = 256  # 64 nested subschemas take at most 3 levels each
DISCARD_FACTOR = 8  # how much of a body over the limit is still read, so that the client sees the answer and no reset


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body; raises `BodyTooLargeError`, `MediaTypeError` or `ClientGoneError`."""
    check_media_type(request)
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
    return b"".join(chunks)


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
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_unique_object,
            parse_float=_finite_float,
            parse_constant=_refuse_constant,
        )
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # not UTF-8, not JSON, or one of the refusals below
        raise RequestError("invalid_json", f"the body is not JSON: {clip(error, 200)}") from None
    if not isinstance(value, dict):
        raise RequestError("invalid_type", "the body must be a JSON object")
    _check_values(value)
    return value


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    seen: set[str] = set()
    twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    raise ValueError(f"the key {clip(twice)!r} occurs twice in one object")


def _finite_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {clip(text)} is out of range")
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _too_deep() -> RequestError:
    return RequestError("invalid_json", f"the body is nested more than {MAX_DEPTH} levels deep")


def _check_values(root: dict[str, Any]) -> None:
    """Walk level by level, without recursion."""
    level: list[Any] = [root]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value)
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif isinstance(value, str) and not value.isascii():
                check_text(value)
        if not below:
            return
        level = below
    raise _too_deep()


def check_text(text: str) -> None:
    """Refuse halves of surrogate pairs."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise RequestError(
            "invalid_json", "the body is not JSON: a string holds half of a surrogate pair, which is no text"
        ) from None
