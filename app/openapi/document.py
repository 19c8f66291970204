"""The document: each route with its body, its answers and its errors.

In: the names of the models that are loaded. Out: the document as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.openapi.answers import ANSWERS
from app.openapi.bodies import body_schemas
from app.openapi.examples import examples
from app.openapi.shapes import STRING, Shape, ref
from app.version import VERSION

SERVICE_PATHS = ("/health", "/ready", "/version", "/metrics", "/openapi.json")
ERRORS = {
    400: "The request breaks a rule, or its schema cannot be enforced.",
    401: "No API key, or none that is known.",
    404: "No such model, schema or path.",
    405: "The path does not take this method.",
    408: "The body did not come in time.",
    413: "The body is over the limit.",
    415: "The body is not JSON in UTF-8.",
    429: "The queue is full; `retry-after` says when to come back.",
    500: "A fault of the server.",
    503: "Starting, stopping, or too many connections; `retry-after` says when to come back.",
    504: "The request was not done in the time that the server gives it.",
}
OF_ALL = (401, 405, 500, 503)
OF_BODIES = (400, 404, 408, 413, 415)
OF_WORK = (429, 504)
RETRIED = (429, 503)

Component = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Route:
    """One operation: what it is, takes and gives."""

    method: str
    path: str
    summary: str
    answer: str  # a component, or a media type for what is no JSON
    body: str | None = None
    chunk: str | None = None  # component of a stream's events
    errors: tuple[int, ...] = ()
    parameter: str | None = None


ROUTES = (
    Route(
        *("post", "/v1/completions", "Complete prompts, under a format", "Completion", "CompletionBody"),
        chunk="CompletionChunk",
        errors=OF_BODIES + OF_WORK,
    ),
    Route(
        *("post", "/v1/chat/completions", "Answer messages, under a format", "ChatCompletion", "ChatBody"),
        chunk="ChatCompletionChunk",
        errors=OF_BODIES + OF_WORK,
    ),
    Route("get", "/v1/models", "List the models", "ModelList"),
    Route("get", "/v1/models/{model_id}", "One model", "Model", errors=(404,), parameter="model_id"),
    Route("post", "/tokenize", "Text to token ids", "Tokens", "TokenizeBody", errors=OF_BODIES),
    Route("post", "/detokenize", "Token ids to text", "Prompt", "DetokenizeBody", errors=OF_BODIES),
    Route("post", "/v1/schemas/validate", "Report on a schema", "SchemaReport", "SchemaBody", errors=OF_BODIES),
    Route("post", "/v1/schemas", "Compile a schema ahead", "Schema", "PrewarmBody", errors=OF_BODIES + OF_WORK),
    Route("get", "/v1/schemas", "List the schemas in the cache", "SchemaList"),
    Route("get", "/v1/schemas/{schema_hash}", "One schema", "Schema", errors=(404,), parameter="schema_hash"),
    Route(
        *("delete", "/v1/schemas/{schema_hash}", "Forget a schema", "DeletedSchema"),
        errors=(404,),
        parameter="schema_hash",
    ),
    Route("get", "/health", "Whether the process lives", "Health"),
    Route("get", "/ready", "Whether work is taken", "Readiness"),
    Route("get", "/version", "The server's version", "Version"),
    Route("get", "/metrics", "Figures for Prometheus", "text/plain"),
    Route("get", "/openapi.json", "This document", "application/json"),
)


def build_document(model_names: Sequence[str]) -> dict[str, Any]:
    """The OpenAPI document of a server with these models."""
    paths: dict[str, dict[str, Any]] = {}
    shown = examples(model_names[0]) if model_names else {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method] = operation(route, shown.get(route.path, {}))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Katagami", "version": VERSION, "description": "Structured output from small models."},
        "paths": paths,
        "components": {
            "schemas": body_schemas(model_names) | ANSWERS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{}, {"bearer": []}, {"header": []}],
    }


def operation(route: Route, shown: dict[str, Any]) -> Component:
    """One operation."""
    errors = sorted({*OF_ALL, *route.errors})
    told: Component = {
        "summary": route.summary,
        "operationId": f"{route.method}{route.path.replace('/', '_').translate({123: None, 125: None})}",
        "responses": {"200": answer(route)} | {str(status): error(status) for status in errors},
    }
    if route.path in SERVICE_PATHS:
        told["security"] = [{}]
    if route.parameter:
        told["parameters"] = [{"name": route.parameter, "in": "path", "required": True, "schema": STRING}]
    if route.body:
        content: Component = {"schema": ref(route.body)}
        if shown:
            content["examples"] = {name: {"value": value} for name, value in shown.items()}
        told["requestBody"] = {"required": True, "content": {"application/json": content}}
    return told


def answer(route: Route) -> Component:
    """What comes with 200."""
    if "/" in route.answer:
        shape: Shape = STRING if route.answer.startswith("text/") else {"type": "object"}
        return {"description": route.summary, "content": {route.answer: {"schema": shape}}}
    content: Component = {"application/json": {"schema": ref(route.answer)}}
    if route.chunk:
        content["text/event-stream"] = {"schema": event(route.chunk)}
    return {"description": route.summary, "content": content, "headers": headers("x-request-id", "request-id")}


def event(chunk: str) -> Shape:
    """One server-sent event: a piece, or an error that ends the stream; after the last piece its data is `[DONE]`."""
    shapes = {"anyOf": [ref(chunk), ref("Error")]}
    json_text = STRING | {"contentMediaType": "application/json", "contentSchema": shapes}
    data = {"anyOf": [{"const": "[DONE]"}, json_text]}
    return {"type": "object", "properties": {"data": data}, "required": ["data"]}


def error(status: int) -> Component:
    """What comes with this status; on the paths that both SDKs know, Anthropic's clients get their own form."""
    shape: Shape = {"anyOf": [ref("Error"), ref("AnthropicError")]}
    names = ("retry-after", "retry-after-ms") if status in RETRIED else ("x-should-retry",)
    if status == 401:
        names = (*names, "www-authenticate")
    if status == 405:
        names = (*names, "allow")
    return {
        "description": ERRORS[status],
        "content": {"application/json": {"schema": shape}},
        "headers": headers("x-request-id", "request-id", *names),
    }


def headers(*names: str) -> Component:
    """Headers that are always there."""
    return {name: {"required": True, "schema": STRING} for name in names}
