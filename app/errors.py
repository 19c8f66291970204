"""Every error as the client sees it: one table from exception class to status, type and code.

In: an exception, raised anywhere below. Out: a JSON response in OpenAI's shape, or in Anthropic's on the paths that
both SDKs share. Rejected: the framework's own bodies (`{"detail": …}`), since no SDK reads them; a handler per class,
since the table is shorter and can be read at a glance.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from app.exchange import exchange_of
from app.findings import errors_json
from app.words import clip
from engine import (
    BudgetBelowMinimumError,
    CacheTooSmallError,
    ContextLengthError,
    DeadlineExceededError,
    EngineFailedError,
    QueueFullError,
    ShuttingDownError,
    UnknownModelError,
)
from schemas_cache import DeadStateError, KatagamiError, SchemaError

MAX_RETRY_AFTER_S = 120.0  # above this the OpenAI SDK does not retry at all
MAX_MESSAGE = 2000  # characters; a message quotes what the client sent
MAX_POINTER = 200  # characters of a schema's pointer inside a message; `errors` has it whole
CLIENT_GONE_STATUS = 499  # nobody reads it; it only ends the exchange

log = logging.getLogger("katagami")


class RequestError(KatagamiError):
    """A request that breaks a field rule.

    Attributes
    ----------
    code : str
        `invalid_json`, `missing_required_parameter`, `invalid_type`, `invalid_value`, `unknown_parameter` or
        `unsupported_parameter`.
    param : str or None
        Dotted path of the field, such as `response_format.json_schema.name`.
    """

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        self.code, self.param = code, param
        super().__init__(message)


class UnknownUrlError(KatagamiError):
    """No such path."""


class MethodNotAllowedError(KatagamiError):
    """The path exists, but not for this method."""


class BodyTooLargeError(KatagamiError):
    """The body is over the limit."""


class MediaTypeError(KatagamiError):
    """The body is not JSON in UTF-8."""


class InvalidKeyError(KatagamiError):
    """No API key, or none that is known here."""


class NotFoundError(KatagamiError):
    """No stored object of this name."""


class BodyTimeoutError(KatagamiError):
    """The body did not come in time."""


class TooManyConnectionsError(KatagamiError):
    """More connections are open than may be."""


class ModelLoadingError(KatagamiError):
    """The server has started and its models are still being read."""


class ClientGoneError(KatagamiError):
    """The client closed the connection before the answer was ready."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How one class of errors is told."""

    status: int
    type: str
    code: str | None = None  # None: the exception's own `code`
    retry_after_s: float | None = None  # None: the same request would fail again; the exception's own value comes first


INVALID = "invalid_request_error"

TABLE: dict[type[BaseException], Answer] = {
    RequestError: Answer(400, INVALID),
    SchemaError: Answer(400, INVALID),
    DeadStateError: Answer(400, INVALID, "unsatisfiable_schema"),
    ContextLengthError: Answer(400, INVALID, "context_length_exceeded"),
    CacheTooSmallError: Answer(400, INVALID, "context_length_exceeded"),
    BudgetBelowMinimumError: Answer(400, INVALID, "max_tokens_below_minimum"),
    InvalidKeyError: Answer(401, INVALID, "invalid_api_key"),
    UnknownModelError: Answer(404, INVALID, "model_not_found"),
    NotFoundError: Answer(404, INVALID, "not_found"),
    UnknownUrlError: Answer(404, INVALID, "unknown_url"),
    MethodNotAllowedError: Answer(405, INVALID, "method_not_allowed"),
    BodyTimeoutError: Answer(408, INVALID, "request_timeout"),
    BodyTooLargeError: Answer(413, INVALID, "request_too_large"),
    MediaTypeError: Answer(415, INVALID, "unsupported_media_type"),
    QueueFullError: Answer(429, "rate_limit_error", "queue_full", retry_after_s=1.0),
    ClientGoneError: Answer(CLIENT_GONE_STATUS, INVALID, "client_gone"),
    ModelLoadingError: Answer(503, "server_error", "model_loading", retry_after_s=1.0),
    ShuttingDownError: Answer(503, "server_error", "shutting_down", retry_after_s=5.0),
    TooManyConnectionsError: Answer(503, "server_error", "too_many_connections", retry_after_s=1.0),
    DeadlineExceededError: Answer(504, "server_error", "deadline_exceeded"),
    EngineFailedError: Answer(500, "server_error", "engine_error"),
    BaseException: Answer(500, "server_error", "engine_error"),
}

PARAMS: dict[type[BaseException], str] = {
    ContextLengthError: "prompt",
    CacheTooSmallError: "prompt",
    BudgetBelowMinimumError: "max_tokens",
    UnknownModelError: "model",
}

ANTHROPIC_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
CLOSING = (BodyTimeoutError, TooManyConnectionsError)  # the connection ends with such an answer


def shorten_middle(text: str, length: int = MAX_POINTER) -> str:
    """The text with its middle left out where it is longer: of a pointer both ends tell the place."""
    half = (length - 1) // 2
    return text if len(text) <= length else f"{text[:half]}…{text[-half:]}"


def answer_to(error: BaseException) -> Answer:
    """The row of the table for this error: its own class, or the nearest base."""
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)


def code_of(error: BaseException) -> str | None:
    """The machine-readable cause."""
    return answer_to(error).code or getattr(error, "code", None)


def param_of(error: BaseException, schema_field: str) -> str | None:
    """The field at fault, where there is one."""
    own: str | None = getattr(error, "param", None)
    if own is None and isinstance(error, SchemaError | DeadStateError):
        return schema_field
    return own or next((param for kind, param in PARAMS.items() if isinstance(error, kind)), None)


def message_of(error: BaseException, request_id: str) -> str:
    """What went wrong, in words; a bug's own text stays in the log."""
    if answer_to(error).status == 500:
        return f"the engine failed on this request; the server's log has the cause under {request_id}"
    if isinstance(error, SchemaError):
        first = error.findings[0]
        told = str(replace(first, pointer=shorten_middle(first.pointer)))
        several = f"{len(error.findings)} problems in the schema; the first is " if len(error.findings) > 1 else ""
        return clip(several + told, MAX_MESSAGE)
    if isinstance(error, DeadStateError):
        return clip(str(error).replace(error.pointer, shorten_middle(error.pointer)), MAX_MESSAGE)
    return clip(error, MAX_MESSAGE)


def findings_of(error: BaseException) -> list[dict[str, str]] | None:
    """Every finding of a schema error, in the order of the schema; None for other errors."""
    if not isinstance(error, SchemaError):
        return None
    return errors_json(error.findings)


def retry_headers(error: BaseException) -> dict[str, str]:
    """When to come back, or that it is of no use."""
    usual_s = answer_to(error).retry_after_s
    if usual_s is None:
        return {"x-should-retry": "false"}
    after_s = min(max(float(getattr(error, "retry_after_s", usual_s)), 0.001), MAX_RETRY_AFTER_S)
    return {"retry-after": str(math.ceil(after_s)), "retry-after-ms": str(math.ceil(after_s * 1000))}


def openai_body(error: BaseException, request_id: str, schema_field: str = "response_format") -> dict[str, Any]:
    """`{"error": {message, type, param, code, errors?}}`; the field is the one that the route has its schema in."""
    answer, findings = answer_to(error), findings_of(error)
    body: dict[str, Any] = {
        "message": message_of(error, request_id),
        "type": answer.type,
        "param": param_of(error, schema_field),
        "code": code_of(error),
    }
    return {"error": body | ({"errors": findings} if findings else {})}


def anthropic_body(error: BaseException, request_id: str) -> dict[str, Any]:
    """`{"type": "error", "error": {type, message, details}, "request_id"}`."""
    answer = answer_to(error)
    kind = ANTHROPIC_TYPES.get(answer.status, "invalid_request_error")
    details = {"error_code": code_of(error)}
    inner = {"type": kind, "message": message_of(error, request_id), "details": details}
    return {"type": "error", "error": inner, "request_id": request_id}


def wants_anthropic_shape(request: Request, error: BaseException) -> bool:
    """Whether an Anthropic client asks on a path that both SDKs share."""
    before_routing = isinstance(error, UnknownUrlError | MethodNotAllowedError | InvalidKeyError)
    shared = request.url.path.startswith("/v1/models") or before_routing
    return shared and "anthropic-version" in request.headers


def error_response(request: Request, error: BaseException, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The response for this error."""
    exchange = exchange_of(request.scope)
    exchange.error, request_id = error, exchange.request_id
    if wants_anthropic_shape(request, error):
        body = anthropic_body(error, request_id)
    else:
        body = openai_body(error, request_id, exchange.schema_field)
    all_headers = retry_headers(error) | dict(headers or {})
    if isinstance(error, CLOSING):
        all_headers["connection"] = "close"
    return JSONResponse(body, status_code=answer_to(error).status, headers=all_headers)


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """Exception handler for all errors that the project raises on purpose."""
    if answer_to(error).status == 500:  # the answer has no more than the id; this is what it points to
        log.error("%s failed: %s: %s", exchange_of(request.scope).name, type(error).__name__, error)
    # Who waits for leave to send the body will not send it now: what comes next would be taken for it.
    closing = isinstance(error, BodyTooLargeError) and "expect" in request.headers
    return error_response(request, error, {"connection": "close"} if closing else None)


async def answer_http_exception(request: Request, error: Exception) -> JSONResponse:
    """Exception handler for what the router raises: no such path, or not with this method."""
    path = clip(request.url.path)
    if isinstance(error, HTTPException) and error.status_code == 405:
        listed = (error.headers or {}).get("allow") or (error.headers or {}).get("Allow", "")
        allowed = ", ".join(sorted(listed.split(", ")))
        fault = MethodNotAllowedError(f"{path} does not take {request.method}; it takes {allowed}")
        return error_response(request, fault, {"allow": allowed})
    if isinstance(error, HTTPException) and error.status_code == 404:
        return error_response(request, UnknownUrlError(f"there is no {request.method} {path} here"))
    return error_response(request, error)
