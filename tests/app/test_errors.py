"""Whatever a client sends, the contract's error comes back, and the server goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from engine import ContextLengthError, EngineFailedError, QueueFullError, ShuttingDownError
from schemas_cache import CompileTimeoutError, Finding, SchemaError, UnsatisfiableSchemaError

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}


def send(client: TestClient, body: bytes, **headers: str) -> Any:
    """Post raw bytes."""
    return client.post("/v1/completions", content=body, headers={"content-type": "application/json"} | headers)


BAD_BODIES = {
    "empty": b"",
    "text": b"hello",
    "cut": b'{"model": "tiny", "prompt": "a"',
    "trailing comma": b'{"model": "tiny",}',
    "NaN": b'{"model": "tiny", "prompt": "a", "temperature": NaN}',
    "infinity": b'{"model": "tiny", "prompt": "a", "temperature": -Infinity}',
    "beyond a double": b'{"model": "tiny", "prompt": "a", "temperature": 1e999}',
    "too many digits": b'{"model": "tiny", "prompt": "a", "seed": ' + b"9" * 5000 + b"}",
    "duplicate key": b'{"model": "tiny", "prompt": "a", "prompt": "b"}',
    "duplicate key below": b'{"model": "tiny", "prompt": "a", "structured_options": {"x": 1, "x": 1}}',
    "not UTF-8": b'{"model": "tiny", "prompt": "\xff"}',
    "UTF-16": '{"model": "tiny", "prompt": "a"}'.encode("utf-16"),
    "half a surrogate pair": b'{"model": "tiny", "prompt": "\\ud800"}',
    "half a surrogate pair as key": b'{"model": "tiny", "prompt": "a", "\\ud800": 1}',
    "nested beyond the stack": b'{"prompt": ' + b"[" * 40_000 + b"]" * 40_000 + b"}",
    "nested beyond the limit": b'{"prompt": ' + b"[" * 300 + b"]" * 300 + b"}",
    "objects nested beyond the stack": b'{"a": ' * 9_000 + b"1" + b"}" * 9_000,
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_malformed_body(client: TestClient, name: str) -> None:
    """A body that is not JSON, or not usable JSON, is 400 `invalid_json`."""
    response = send(client, BAD_BODIES[name])
    assert (400, "invalid_json") == (response.status_code, response.json()["error"]["code"])


@pytest.mark.parametrize("body", [b"[]", b"1", b'"a"', b"null", b"true"])
def test_body_that_is_no_object(client: TestClient, body: bytes) -> None:
    """JSON that is no object is 400 `invalid_type`."""
    assert (400, "invalid_type") == (send(client, body).status_code, send(client, body).json()["error"]["code"])


def test_body_over_the_limit(client: TestClient) -> None:
    """A body over the limit is 413, and all four keys of the error are there."""
    response = send(client, b" " * 100_001)
    error = response.json()["error"]
    assert (413, "request_too_large") == (response.status_code, error["code"])
    assert {"message", "type", "param", "code"} == set(error)


def test_body_at_the_limit(client: TestClient) -> None:
    """A body of exactly the limit is read."""
    start = b'{"model": "tiny", "prompt": "a"}'
    assert 200 == send(client, start + b" " * (100_000 - len(start))).status_code


@pytest.mark.parametrize(
    ("media_type", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=UTF-8", 200),
        ("application/vnd.api+json", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/json; charset=latin-1", 415),
    ],
)
def test_media_type(client: TestClient, media_type: str, status: int) -> None:
    """JSON in UTF-8 is taken; anything else is 415."""
    response = send(client, b'{"model": "tiny", "prompt": "a"}', **{"content-type": media_type})
    assert status == response.status_code
    assert status == 200 or response.json()["error"]["code"] == "unsupported_media_type"


def test_compressed_body(client: TestClient) -> None:
    """A compressed body is 415, never read as if it were plain."""
    assert 415 == send(client, b"{}", **{"content-encoding": "gzip"}).status_code


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"model": None}, "missing_required_parameter", "model"),
        ({"model": 5}, "invalid_type", "model"),
        ({"prompt": {}}, "invalid_type", "prompt"),
        ({"prompt": 5}, "invalid_type", "prompt"),
        ({"prompt": []}, "invalid_value", "prompt"),
        ({"prompt": [[]]}, "invalid_value", "prompt"),
        ({"prompt": ["a", 1]}, "invalid_type", "prompt"),
        ({"prompt": [1, True]}, "invalid_type", "prompt"),
        ({"prompt": [1.5]}, "invalid_type", "prompt"),
        ({"prompt": [None]}, "invalid_type", "prompt"),
        ({"prompt": [10_000]}, "invalid_value", "prompt"),
        ({"prompt": [-1]}, "invalid_value", "prompt"),
        ({"max_tokens": "5"}, "invalid_type", "max_tokens"),
        ({"max_tokens": 1.5}, "invalid_type", "max_tokens"),
        ({"max_tokens": True}, "invalid_type", "max_tokens"),
        ({"max_tokens": -1}, "invalid_value", "max_tokens"),
        ({"temperature": 9}, "invalid_value", "temperature"),
        ({"temperature": -0.1}, "invalid_value", "temperature"),
        ({"temperature": "hot"}, "invalid_type", "temperature"),
        ({"temperature": False}, "invalid_type", "temperature"),
        ({"temperature": 10**400}, "invalid_value", "temperature"),
        ({"top_p": 0}, "invalid_value", "top_p"),
        ({"top_p": 1.1}, "invalid_value", "top_p"),
        ({"top_k": -1}, "invalid_value", "top_k"),
        ({"min_p": 2}, "invalid_value", "min_p"),
        ({"n": 0}, "invalid_value", "n"),
        ({"n": 129}, "invalid_value", "n"),
        ({"n": 65, "prompt": ["a", "b"]}, "invalid_value", "n"),
        ({"n": 2, "best_of": 3}, "unsupported_parameter", "best_of"),
        ({"best_of": 2}, "unsupported_parameter", "best_of"),
        ({"seed": 2**63}, "invalid_value", "seed"),
        ({"seed": "x"}, "invalid_type", "seed"),
        ({"stop": ""}, "invalid_value", "stop"),
        ({"stop": ["a", ""]}, "invalid_value", "stop"),
        ({"stop": ["a"] * 17}, "invalid_value", "stop"),
        ({"stop": 5}, "invalid_type", "stop"),
        ({"stop": [None]}, "invalid_type", "stop"),
        ({"stream": "yes"}, "invalid_type", "stream"),
        ({"stream": 1}, "invalid_type", "stream"),
        ({"stream": True}, "unsupported_parameter", "stream"),
        ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
        ({"stream_options": {"x": 1}}, "unknown_parameter", "stream_options.x"),
        ({"logprobs": 2}, "unsupported_parameter", "logprobs"),
        ({"logprobs": 0}, "unsupported_parameter", "logprobs"),
        ({"logprobs": True}, "invalid_type", "logprobs"),
        ({"echo": True}, "unsupported_parameter", "echo"),
        ({"logit_bias": {"1": 5}}, "unsupported_parameter", "logit_bias"),
        ({"logit_bias": {"1": "x"}}, "invalid_type", "logit_bias.1"),
        ({"presence_penalty": 0.5}, "unsupported_parameter", "presence_penalty"),
        ({"presence_penalty": 3}, "invalid_value", "presence_penalty"),
        ({"frequency_penalty": -1}, "unsupported_parameter", "frequency_penalty"),
        ({"suffix": "x"}, "unsupported_parameter", "suffix"),
        ({"banana": 1}, "unknown_parameter", "banana"),
        ({"": 1}, "unknown_parameter", ""),
        ({"structured_options": []}, "invalid_type", "structured_options"),
        ({"structured_options": {"x": 1}}, "unknown_parameter", "structured_options.x"),
    ],
)
def test_field_rules(refusal: Any, fields: dict[str, Any], code: str, param: str) -> None:
    """Each broken rule is told with its code and the path of the field."""
    error = refusal(**fields)
    assert (code, param or None) == (error["code"], error["param"])
    assert param in error["message"]


@pytest.mark.parametrize(
    ("options", "code", "param"),
    [
        ({"whitespace": "none"}, "invalid_value", "whitespace"),
        ({"whitespace": 5}, "invalid_value", "whitespace"),
        ({"on_limit": "close"}, "unsupported_parameter", "on_limit"),
        ({"on_limit": "error"}, "unsupported_parameter", "on_limit"),
        ({"additional_properties": "ajar"}, "invalid_value", "additional_properties"),
        ({"key_order": "any"}, "unsupported_parameter", "key_order"),
        ({"method": "retry"}, "unsupported_parameter", "method"),
        ({"method": "asap"}, "unsupported_parameter", "method"),
        ({"method": "smc"}, "unsupported_parameter", "method"),
        ({"method": "magic"}, "invalid_value", "method"),
        ({"diagnostics": True}, "unsupported_parameter", "diagnostics"),
        ({"logprobs": "masked"}, "unsupported_parameter", "logprobs"),
        ({"schema_in_prompt": True}, "unsupported_parameter", "schema_in_prompt"),
        ({"report_closed_as": "stop"}, "unsupported_parameter", "report_closed_as"),
        ({"allow_refusal": True}, "unsupported_parameter", "allow_refusal"),
        ({"compile_timeout": 0}, "invalid_value", "compile_timeout"),
        ({"compile_timeout": 61}, "invalid_value", "compile_timeout"),
        ({"compile_timeout": "1"}, "invalid_type", "compile_timeout"),
        ({"max_attempts": 3}, "unknown_parameter", "max_attempts"),
    ],
)
def test_structured_options(refusal: Any, options: dict[str, Any], code: str, param: str) -> None:
    """Options that are wrong, unknown or not available are refused by name."""
    error = refusal(response_format=FORMAT, structured_options=options)
    assert (code, f"structured_options.{param}") == (error["code"], error["param"])


def test_options_without_anything_to_enforce(refusal: Any) -> None:
    """Options for a schema are refused where there is none, free text asked for by name included."""
    for fields in ({}, {"response_format": {"type": "text"}}):
        error = refusal(structured_options={"whitespace": "compact"}, **fields)
        assert ("invalid_value", "structured_options.whitespace") == (error["code"], error["param"])


@pytest.mark.parametrize(
    ("response_format", "code", "param"),
    [
        ("json", "invalid_type", "response_format"),
        (7, "invalid_type", "response_format"),
        ([], "invalid_type", "response_format"),
        ({}, "missing_required_parameter", "response_format.type"),
        ({"type": None}, "missing_required_parameter", "response_format.type"),
        ({"type": "grammar"}, "invalid_value", "response_format.type"),
        ({"type": "structural_tag"}, "invalid_value", "response_format.type"),
        ({"type": 5}, "invalid_value", "response_format.type"),
        ({"type": ["text"]}, "invalid_value", "response_format.type"),
        ({"type": "text", "x": 1}, "unknown_parameter", "response_format.x"),
        ({"type": "text", "json_schema": {}}, "unknown_parameter", "response_format.json_schema"),
        ({"type": "json_schema"}, "missing_required_parameter", "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": None}, "missing_required_parameter", "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": []}, "invalid_type", "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": "{}"}, "invalid_type", "response_format.json_schema"),
        (
            {"type": "json_schema", "json_schema": {"schema": {}}},
            "missing_required_parameter",
            "response_format.json_schema.name",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a"}},
            "missing_required_parameter",
            "response_format.json_schema.schema",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": None}},
            "missing_required_parameter",
            "response_format.json_schema.schema",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}},
            "invalid_value",
            "response_format.json_schema.name",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a" * 65, "schema": {}}},
            "invalid_value",
            "response_format.json_schema.name",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a\n", "schema": {}}},
            "invalid_value",
            "response_format.json_schema.name",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": 3, "schema": {}}},
            "invalid_type",
            "response_format.json_schema.name",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": 5}},
            "invalid_type",
            "response_format.json_schema.schema",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": ["object"]}},
            "invalid_type",
            "response_format.json_schema.schema",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": "yes"}},
            "invalid_type",
            "response_format.json_schema.strict",
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "x": 1}},
            "unknown_parameter",
            "response_format.json_schema.x",
        ),
        ({"type": "regex"}, "missing_required_parameter", "response_format.regex"),
        ({"type": "regex", "regex": 5}, "invalid_type", "response_format.regex"),
        ({"type": "regex", "pattern": "a"}, "missing_required_parameter", "response_format.regex"),
        ({"type": "choice", "choice": []}, "invalid_value", "response_format.choice"),
        ({"type": "choice", "choice": "a"}, "invalid_type", "response_format.choice"),
        ({"type": "choice", "choice": ["a", 1]}, "invalid_type", "response_format.choice[1]"),
    ],
)
def test_response_format(refusal: Any, response_format: object, code: str, param: str) -> None:
    """A format that is not understood is refused, with the path to the member."""
    error = refusal(response_format=response_format)
    assert (code, param) == (error["code"], error["param"])


@pytest.mark.parametrize("named", [{"name": "a"}, {"schema": {}}, {"name": "a b", "schema": {}}, None])
def test_hint_for_an_incomplete_format(refusal: Any, named: object) -> None:
    """What is missing or misnamed in a schema's wrapping comes with the way to write it."""
    error = refusal(response_format={"type": "json_schema", "json_schema": named})
    assert '"json_schema": {"name": "answer", "schema": {…}}' in error["message"]


@pytest.mark.parametrize(
    ("response_format", "param"),
    [
        ({"type": "json_schema", "schema": SCHEMA}, "response_format.schema"),
        ({"type": "json_schema", "name": "a", "schema": SCHEMA}, "response_format.name"),
        ({"type": "json_object", "schema": SCHEMA}, "response_format.schema"),
        ({"type": "json_schema", "json_schema": SCHEMA}, "response_format.json_schema.type"),
        ({"type": "json_schema", "json_schema": {"name": "a", **SCHEMA}}, "response_format.json_schema.type"),
    ],
)
def test_schema_at_the_wrong_depth(refusal: Any, response_format: object, param: str) -> None:
    """A schema that is not where it belongs is refused with the way to write it."""
    error = refusal(response_format=response_format)
    assert ("unknown_parameter", param) == (error["code"], error["param"])
    assert '"json_schema": {"name"' in error["message"]


@pytest.mark.parametrize(
    ("field", "ours"),
    [
        ("guided_json", "json_schema"),
        ("guided_regex", "regex"),
        ("guided_choice", "choice"),
        ("guided_grammar", "response_format"),
        ("grammar", "response_format"),
        ("ebnf", "response_format"),
        ("json_schema", "response_format"),
        ("format", "response_format"),
        ("structured_outputs", "response_format"),
        ("regex", "response_format"),
        ("extra_body", "top level"),
        ("sampling_params", "top level"),
        ("n_predict", "max_tokens"),
        ("max_new_tokens", "max_tokens"),
        ("messages", "prompt"),
    ],
)
def test_other_servers_fields(refusal: Any, field: str, ours: str) -> None:
    """Another server's field is refused with a hint that names ours, even where more is wrong."""
    error = refusal(**{field: {"type": "object"}, "temperature": 9})
    assert ("unknown_parameter", field) == (error["code"], error["param"])
    assert ours in error["message"]


def test_unknown_model(client: TestClient) -> None:
    """A model that is not served is 404, and the message names those that are."""
    response = client.post("/v1/completions", json={"model": "gpt", "prompt": "a"})
    error = response.json()["error"]
    assert (404, "model_not_found", "model") == (response.status_code, error["code"], error["param"])
    assert "tiny" in error["message"]


def test_unsupported_keywords(post: Any, engine: Any) -> None:
    """A schema that cannot be enforced is 400 with every finding; the message has the first and their count."""
    findings = [
        Finding("#/properties/a", "not", "is not supported", "leave it out"),
        Finding("#/properties/b", "if", "is not supported"),
    ]
    engine.error = SchemaError(findings)
    response = post(response_format=FORMAT)
    error = response.json()["error"]
    assert (400, "invalid_json_schema", "response_format") == (response.status_code, error["code"], error["param"])
    assert ["#/properties/a", "#/properties/b"] == [finding["pointer"] for finding in error["errors"]]
    assert {"pointer", "keyword", "reason", "hint"} == set(error["errors"][0])
    assert "2 problems" in error["message"]
    assert "#/properties/a/not" in error["message"]


@pytest.mark.parametrize(
    ("error", "status", "code", "retried"),
    [
        (UnsatisfiableSchemaError([Finding("#", "type", "no value")]), 400, "unsatisfiable_schema", False),
        (CompileTimeoutError([Finding("#", "", "took 60 s")]), 400, "schema_compile_timeout", False),
        (ContextLengthError(2000, 1000), 400, "context_length_exceeded", False),
        (QueueFullError(2.5), 429, "queue_full", True),
        (QueueFullError(1000.0), 429, "queue_full", True),
        (ShuttingDownError(), 503, "shutting_down", True),
        (EngineFailedError("boom"), 500, "engine_error", False),
        (RuntimeError("secret"), 500, "engine_error", False),
        (RecursionError("secret"), 500, "engine_error", False),
    ],
)
def test_engine_errors(post: Any, engine: Any, error: Exception, status: int, code: str, retried: bool) -> None:
    """Each of the engine's errors has its status, its code, and its word on retrying."""
    engine.error = error
    response = post(response_format=FORMAT)
    assert (status, code) == (response.status_code, response.json()["error"]["code"])
    assert retried == ("retry-after" in response.headers)
    assert retried != (response.headers.get("x-should-retry") == "false")
    assert "secret" not in response.text
    assert not retried or 1 <= int(response.headers["retry-after"]) <= 120


def test_retry_after_in_milliseconds(post: Any, engine: Any) -> None:
    """The engine's estimate goes out in milliseconds, and in whole seconds rounded up."""
    engine.error = QueueFullError(2.5)
    headers = post().headers
    assert ("2500", "3") == (headers["retry-after-ms"], headers["retry-after"])


def test_server_goes_on_after_a_bug(post: Any, engine: Any) -> None:
    """After an unexpected failure the next request is served."""
    engine.error = RuntimeError("boom")
    assert 500 == post().status_code
    engine.error = None
    assert 200 == post().status_code


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "unknown_url"),
        ("POST", "/v1/chat/nowhere", 404, "unknown_url"),
        ("GET", "/v1/completions/", 404, "unknown_url"),
        ("GET", "/docs", 404, "unknown_url"),
        ("GET", "/openapi.json", 404, "unknown_url"),
        ("GET", "/v1/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/health", 405, "method_not_allowed"),
        ("GET", "/v1/models/nosuch", 404, "model_not_found"),
    ],
)
def test_paths_and_methods(client: TestClient, method: str, path: str, status: int, code: str) -> None:
    """Unknown paths and wrong methods are told in the contract's shape, to both SDKs."""
    response = client.request(method, path)
    assert (status, code) == (response.status_code, response.json()["error"]["code"])
    assert status != 405 or response.headers["allow"]
    other = client.request(method, path, headers={"anthropic-version": "2026-10-21"}).json()
    assert ("error", code) == (other["type"], other["error"]["details"]["error_code"])
    assert other["request_id"].startswith("req_")


def test_anthropic_shape_only_on_shared_paths(client: TestClient) -> None:
    """A completion's error keeps its own shape whatever the client."""
    response = client.post("/v1/completions", json={}, headers={"anthropic-version": "2026-10-21"})
    assert "missing_required_parameter" == response.json()["error"]["code"]


def test_request_id_on_every_response(client: TestClient, engine: Any) -> None:
    """Both SDKs find the same request id on successes, refusals and bugs, and a new one each time."""
    engine.error = RuntimeError("boom")
    body = {"model": "tiny", "prompt": "a"}
    responses = [
        client.get("/health"),
        client.get("/nowhere"),
        client.post("/v1/completions", json={}),
        client.post("/v1/completions", json=body),
    ]
    ids = [response.headers["x-request-id"] for response in responses]
    assert 4 == len(set(ids))
    assert ids == [response.headers["request-id"] for response in responses]


def test_message_is_bounded(client: TestClient) -> None:
    """A long field name comes back cut, not whole."""
    body = json.dumps({"model": "tiny", "prompt": "a", "x" * 50_000: 1}).encode()
    assert 1000 > len(send(client, body).content)


def test_schema_nested_beyond_the_limit(post: Any, engine: Any) -> None:
    """A schema nested too deeply is refused before the engine hears of it."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(70):
        schema = {"type": "object", "properties": {"a": schema}}
    response = post(response_format={"type": "json_schema", "json_schema": {"name": "deep", "schema": schema}})
    assert (400, "schema_too_complex") == (response.status_code, response.json()["error"]["code"])
    assert [] == engine.requests
