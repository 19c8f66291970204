"""The OpenAPI document is exact: its examples run, and real answers and real checks agree with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from fastapi.testclient import TestClient

from app.openapi import build_document
from app.openapi.bodies import BODIES
from app.openapi.document import ROUTES, Route
from app.openapi.examples import examples
from app.protocol.fields import parse

MODEL = "katagami-char"
DOCUMENT = build_document([MODEL])
EXAMPLES = [(path, name, body) for path, shown in examples(MODEL).items() for name, body in shown.items()]


def validator(component: str) -> jsonschema.Draft202012Validator:
    """Of the component of this name."""
    reference = {"$ref": f"#/components/schemas/{component}"}
    return jsonschema.Draft202012Validator(reference | {"components": DOCUMENT["components"]})


def check(component: str, value: Any) -> None:
    """The value fits the component of this name."""
    validator(component).validate(value)


def route_of(path: str, method: str = "post") -> Route:
    """The documented route."""
    return next(route for route in ROUTES if (route.path, route.method) == (path, method))


def events_of(text: str) -> Iterator[dict[str, Any]]:
    """The JSON of a stream's events."""
    for line in text.splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def test_served(real: TestClient) -> None:
    """The server shows the document of its own models."""
    assert build_document([MODEL]) == real.get("/openapi.json").json()


def test_every_component_is_a_schema() -> None:
    """Each is valid JSON Schema, and each reference leads somewhere."""
    for name, schema in DOCUMENT["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        validator(name).is_valid(None)
    text = json.dumps(DOCUMENT)
    referred = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert referred <= set(DOCUMENT["components"]["schemas"])


def test_every_route_is_documented(real: TestClient) -> None:
    """All that the app serves is there, and nothing else."""
    app: Any = real.app
    served = {(method.lower(), path.replace(":path", "")) for path, method in operations(app)}
    assert served == {(route.method, route.path) for route in ROUTES}


def operations(app: Any) -> Iterator[tuple[str, str]]:
    """Path and method of each route, HEAD left out."""
    stack = list(app.routes)
    while stack:
        route = stack.pop()
        stack += getattr(getattr(route, "original_router", None), "routes", [])
        for method in getattr(route, "methods", None) or ():
            if method != "HEAD":
                yield route.path, method


@pytest.mark.parametrize(("path", "name", "body"), EXAMPLES, ids=lambda value: value if isinstance(value, str) else "")
def test_examples_run(real: TestClient, path: str, name: str, body: dict[str, Any]) -> None:
    """Each example fits its own schema, is answered with 200, and the answer fits what is documented."""
    route = route_of(path)
    assert route.body
    check(route.body, body)
    response = real.post(path, json=body)
    assert 200 == response.status_code, response.text
    if not body.get("stream"):
        check(route.answer, response.json())
        return
    events = list(events_of(response.text))
    assert len(events) > 1
    for event in events:
        check(str(route.chunk), event)


@pytest.mark.parametrize(
    "fields",
    [
        {"logprobs": 3},
        {"echo": True, "logprobs": 0},
        {"n": 2, "prompt": ["a", "b"]},
        {"max_tokens": 0},
        {"response_format": {"type": "json_object"}, "max_tokens": 2},
        {
            "response_format": {"type": "regex", "regex": "[a-c]{4}"},
            "structured_options": {"diagnostics": True},
            "max_tokens": 50,
        },
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_completions(real: TestClient, fields: dict[str, Any], stream: bool) -> None:
    """Answers of all sorts fit the document, whole and in pieces."""
    body = {"model": MODEL, "prompt": "ab", "max_tokens": 5, "stream": stream} | fields
    body |= {"stream_options": {"include_usage": True}} if stream else {}
    check("CompletionBody", body)
    response = real.post("/v1/completions", json=body)
    assert 200 == response.status_code, response.text
    for answer in events_of(response.text) if stream else [response.json()]:
        check("CompletionChunk" if stream else "Completion", answer)


@pytest.mark.parametrize("fields", [{}, {"logprobs": True, "top_logprobs": 2}, {"n": 2}, {"max_tokens": 0}])
@pytest.mark.parametrize("stream", [False, True])
def test_chats(real: TestClient, fields: dict[str, Any], stream: bool) -> None:
    """The same for chats."""
    messages = [{"role": "developer", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 5, "stream": stream} | fields
    check("ChatBody", body)
    response = real.post("/v1/chat/completions", json=body)
    assert 200 == response.status_code, response.text
    for answer in events_of(response.text) if stream else [response.json()]:
        check("ChatCompletionChunk" if stream else "ChatCompletion", answer)


@pytest.mark.parametrize("route", [route for route in ROUTES if route.method == "get" and not route.parameter])
def test_answers_without_a_body(real: TestClient, route: Route) -> None:
    """All plain GET routes."""
    response = real.get(route.path)
    assert 200 == response.status_code
    if "/" not in route.answer:
        check(route.answer, response.json())


def test_objects(real: TestClient) -> None:
    """One model, one schema, and its end."""
    check("Model", real.get(f"/v1/models/{MODEL}").json())
    schema_hash = real.post("/v1/schemas", json={"schema": {"const": "for the document"}}).json()["hash"]
    check("Schema", real.get(f"/v1/schemas/{schema_hash}").json())
    check("DeletedSchema", real.delete(f"/v1/schemas/{schema_hash}").json())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {}),
        ("/v1/completions", {"model": "nosuch", "prompt": ""}),
        (
            "/v1/completions",
            {
                "model": MODEL,
                "prompt": "",
                "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": 7}}},
            },
        ),
        ("/nosuch", {}),
    ],
)
def test_errors(real: TestClient, path: str, body: dict[str, Any]) -> None:
    """Errors in both shapes."""
    response = real.post(path, json=body)
    assert 400 <= response.status_code < 500
    check("Error", response.json())
    anthropic = real.get("/nosuch", headers={"anthropic-version": "1"})
    check("AnthropicError", anthropic.json())


BODIES_IN_QUESTION: list[tuple[str, dict[str, Any]]] = [
    ("CompletionBody", {"model": MODEL, "prompt": None}),
    ("CompletionBody", {"model": MODEL, "prompt": [1, 2]}),
    ("CompletionBody", {"model": MODEL, "prompt": [[1], [2]], "stop": "x", "temperature": None, "n": 1.0}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "user": {"any": 1}, "metadata": 5}),
    ("CompletionBody", {"model": MODEL, "prompt": []}),
    ("CompletionBody", {"model": MODEL}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "temperature": 2.5}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "stop": [""]}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "stop": ["a"] * 17}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "suffix": "b"}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "suffix": None}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "nosuch": 1}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "n": 129}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "logprobs": 21}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "stream": 1}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "structured_options": {"method": "smc"}}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "structured_options": {"method": "mask"}}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "structured_options": {"nosuch": 1}}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "response_format": {"type": "json"}}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "response_format": {"type": "choice", "choice": []}}),
    ("CompletionBody", {"model": MODEL, "prompt": "a", "response_format": {"type": "json_schema", "schema": {}}}),
    ("ChatBody", {"model": MODEL, "messages": []}),
    ("ChatBody", {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "modalities": ["text"]}),
    ("ChatBody", {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "modalities": ["audio"]}),
    ("ChatBody", {"model": MODEL, "messages": [{"role": "user", "content": "a"}], "functions": []}),
    ("SchemaBody", {"schema": True}),
    ("SchemaBody", {"schema": None}),
    ("SchemaBody", {"schema": [], "strict": True}),
    ("PrewarmBody", {"schema": {}, "wait": None}),
    ("SchemaBody", {"schema": {}, "wait": True}),
    ("SchemaBody", {"schema": {}, "user": "a"}),
    ("TokenizeBody", {"prompt": "a", "metadata": {"b": 1}}),
    ("DetokenizeBody", {"tokens": [1.0, 2]}),
    ("DetokenizeBody", {"tokens": [True]}),
]


@pytest.mark.parametrize(("component", "body"), BODIES_IN_QUESTION)
def test_document_and_checks_agree(component: str, body: dict[str, Any]) -> None:
    """The document takes a body exactly where the code does, fields of vendors left aside."""
    model = next(model for model in BODIES if model.__name__ == component)
    hints = ("user", "metadata")
    given = {key: value for key, value in body.items() if key not in hints}
    if given.get("prompt", 0) is None:
        given["prompt"] = ""
    try:
        parse(model, given)
        taken = True
    except Exception:
        taken = False
    assert taken is validator(component).is_valid(body)
