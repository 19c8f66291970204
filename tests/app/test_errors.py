"""Whatever a client sends, the contract's error comes back, and the server goes on."""

from __future__ import annotations

import json
import logging
import re
import time
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel

from app.errors import RequestError
from app.main import create_app
from app.protocol.chat import ChatBody
from app.protocol.completions import CompletionBody
from app.protocol.fields import parse
from app.protocol.messages import Function, Message, RefusalPart, TextPart, ToolCall
from app.settings import Settings
from engine import CacheTooSmallError, ContextLengthError, Engine, EngineFailedError, QueueFullError, ShuttingDownError
from schemas_cache import CompileTimeoutError, DeadStateError, Finding, SchemaError, UnsatisfiableSchemaError

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
    "byte order mark": b'\xef\xbb\xbf{"model": "tiny", "prompt": "a"}',
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
        ({"prompt": ["a"] * 129}, "invalid_value", "prompt"),
        ({"n": 2, "prompt": ["a"] * 200}, "invalid_value", "prompt"),
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
        ({"stream_options": {"include_usage": True}}, "invalid_value", "stream_options"),
        ({"stream_options": {"x": 1}}, "unknown_parameter", "stream_options.x"),
        ({"stream": False, "stream_options": {}}, "invalid_value", "stream_options"),
        ({"logprobs": 21}, "invalid_value", "logprobs"),
        ({"logprobs": -1}, "invalid_value", "logprobs"),
        ({"logprobs": True}, "invalid_type", "logprobs"),
        ({"echo": True, "response_format": {"type": "json_object"}}, "unsupported_parameter", "echo"),
        ({"logit_bias": {"1": "x"}}, "invalid_type", "logit_bias.1"),
        ({"logit_bias": {"1": 101}}, "invalid_value", "logit_bias.1"),
        ({"logit_bias": {"x": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"01": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"10000": 1}}, "invalid_value", "logit_bias"),
        ({"logit_bias": {"9" * 5000: 1}}, "invalid_value", "logit_bias"),
        ({"presence_penalty": 3}, "invalid_value", "presence_penalty"),
        ({"frequency_penalty": -2.1}, "invalid_value", "frequency_penalty"),
        ({"messages": []}, "unknown_parameter", "messages"),
        ({"max_completion_tokens": 5}, "unknown_parameter", "max_completion_tokens"),
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
        ({"on_limit": "stop"}, "invalid_value", "on_limit"),
        ({"additional_properties": "ajar"}, "invalid_value", "additional_properties"),
        ({"max_attempts": 3}, "invalid_value", "max_attempts"),
        ({"method": "mask", "max_attempts": 3}, "invalid_value", "max_attempts"),
        ({"method": "retry", "max_attempts": 0}, "invalid_value", "max_attempts"),
        ({"method": "retry", "max_attempts": 65}, "invalid_value", "max_attempts"),
        ({"method": "retry", "diagnostics": True}, "invalid_value", "diagnostics"),
        ({"method": "asap"}, "unsupported_parameter", "method"),
        ({"method": "smc"}, "unsupported_parameter", "method"),
        ({"method": "magic"}, "invalid_value", "method"),
        ({"diagnostics": 1}, "invalid_type", "diagnostics"),
        ({"logprobs": "cooked"}, "invalid_value", "logprobs"),
        ({"schema_in_prompt": True}, "unsupported_parameter", "schema_in_prompt"),
        ({"report_closed_as": "closed"}, "invalid_value", "report_closed_as"),
        ({"allow_refusal": True}, "unsupported_parameter", "allow_refusal"),
        ({"compile_timeout": 0}, "invalid_value", "compile_timeout"),
        ({"compile_timeout": 61}, "invalid_value", "compile_timeout"),
        ({"compile_timeout": "1"}, "invalid_type", "compile_timeout"),
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
        (CacheTooSmallError(2000, 3 << 20, 2 << 20), 400, "context_length_exceeded", False),
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


JARGON = re.compile(
    r"discriminator|tag\b|extract|Input|should|validation|Field required|sys\.|utf-8-sig|codec|expecting property|ctx",
    re.IGNORECASE,
)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": None}, "model: is required"),
        ({"model": 5}, "model: must be a string, not the number 5"),
        ({"max_tokens": "5"}, 'max_tokens: must be an integer, not the string "5"'),
        ({"max_tokens": -1}, "max_tokens: must be at least 0, not -1"),
        ({"temperature": 9}, "temperature: must be at most 2, not 9"),
        ({"temperature": False}, "temperature: must be a number, not false"),
        ({"top_p": 0}, "top_p: must be greater than 0, not 0"),
        ({"stream": 1}, "stream: must be true or false, not the number 1"),
        ({"stop": {}}, "stop: must be a string or a list of strings, not an object"),
        ({"stop": ["a", 1]}, "stop: item 1 must be a string, not the number 1"),
        ({"prompt": ["a", 1]}, "prompt: item 1 must be a string, as the first one is, not the number 1"),
        ({"prompt": [1, True]}, "prompt: item 1 must be a token id, not true"),
        ({"prompt": [[1], [1.5]]}, "prompt: item 0 must be a token id, not the number 1.5"),
        ({"prompt": {}}, "or a list of such lists, not an object"),
        ({"seed": 2**63}, "seed: must be at most 9223372036854775807, not 9223372036854775808"),
        ({"structured_options": []}, "structured_options: must be an object, not an array"),
        ({"structured_options": {"method": "x"}}, '"asap" or "smc", not the string "x"'),
        ({"response_format": "json"}, 'response_format: must be an object, not the string "json"'),
        ({"response_format": {}}, "response_format.type: is required"),
        ({"response_format": {"type": "xml"}}, '"choice", not the string "xml"'),
        ({"response_format": {"type": 5}}, '"choice", not the number 5'),
        ({"response_format": {"type": "regex"}}, "response_format.regex: is required"),
        ({"response_format": {"type": "choice", "choice": []}}, "choice: must hold at least 1 item"),
        ({"response_format": {"type": "choice", "choice": "a"}}, 'must be an array, not the string "a"'),
        ({"response_format": {"type": "json_schema", "json_schema": []}}, "must be an object, not an array"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}},
            'must match ^[a-zA-Z0-9_-]{1,64}$, not the string "a b"; a name is',
        ),
        ({"prompt": ["a"] * 200}, "prompt: 200 prompts are more than 128"),
    ],
)
def test_messages_are_in_our_words(refusal: Any, fields: dict[str, Any], message: str) -> None:
    """What was expected and what was found, without the words of the libraries."""
    told = refusal(**fields)["message"]
    assert message in told
    assert not JARGON.search(told)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"prompt": "a", "prompt": "b"}', "the key 'prompt' occurs twice in one object; leave one of them out"),
        (b"", "the body is not JSON: it is empty"),
        (
            b'{"a": 1; "b": 2}',
            "the body is not JSON: expected a comma or the end of the object or array at line 1, column 8",
        ),
        (
            b'{"a": 1\n',
            "the body is not JSON: expected a comma or the end of the object or array at line 2, column 1, found",
        ),
        (b'{"a": "\\x"}', "the body is not JSON: expected a known escape at line 1, column 8, found '"),
        (b'{"a": 1,}', "the body is not JSON: expected "),
        (b"{} {}", "the body is not JSON: expected nothing more at line 1, column 4, found '{'"),
        (b'{"a": NaN}', "NaN is not a JSON number; send a number, or null"),
        (b'{"a": 1e999}', "the number 1e999 is out of range; a double goes to about 1.8e308"),
        (b'{"a": -' + b"9" * 5000 + b"}", "a number has 5000 digits; at most 4000 are read"),
        (b"\xef\xbb\xbf{}", "the body begins with a byte order mark; leave it out"),
        (b'{"a": "\xff"}', "the body is not UTF-8: byte 0xff at position 7 begins no character"),
        (b'{"a": "\\ud800"}', "a string holds \\ud800, half of a surrogate pair, which is no text"),
        (b"[" * 300 + b"]" * 300, "the body is nested more than 256 levels deep"),
        (b"[]", "the body must be a JSON object, not an array"),
    ],
)
def test_messages_about_the_body(client: TestClient, body: bytes, message: str) -> None:
    """What cannot be read is told with its place or its value, and JSON is called JSON."""
    told = send(client, body).json()["error"]["message"]
    assert told.startswith(message)
    assert not JARGON.search(told)


def fault_of(model: type[BaseModel], body: dict[str, Any]) -> str:
    """What is wrong with it, without the hint; nothing where nothing is."""
    try:
        parse(model, body)
    except RequestError as error:
        return str(error).split("; ")[0]
    return ""


@pytest.mark.parametrize("model", [CompletionBody, ChatBody, Message, TextPart, RefusalPart, ToolCall, Function])
def test_every_pydantic_fault_of_the_bodies_has_words(model: type[BaseModel]) -> None:
    """No field of the bodies, or of what stands in them, can raise a fault whose text would be the library's."""
    values: list[Any] = [None, True, 5, -5, 10**30, 1.5, "x", "", [], [1], {}, {"type": "x"}, {"a": 1}]
    formats = [{"type": kind} for kind in ("text", "json_object", "json_schema", "regex", "choice")]
    whole: dict[str, Any] = {"model": "tiny", "prompt": "a", "messages": [], "role": "user", "type": "text", "text": ""}
    whole = {name: value for name, value in whole.items() if name in model.model_fields}
    for field in model.model_fields:
        for value in [*values, *formats]:
            for nested in (value, {"x": value}, [value]):
                told = fault_of(model, whole | {field: nested})
                assert not JARGON.search(told), (field, nested)


def test_long_pointers_are_shortened_in_the_message(post: Any, engine: Any) -> None:
    """The message keeps both ends of a long pointer; the list of errors has it whole."""
    pointer = "#" + "/properties/a" * 100 + "/items"
    for findings in ([Finding(pointer, "not", "no")], [Finding(pointer, "not", "no"), Finding("#", "if", "no")]):
        engine.error = SchemaError(findings)
        error = post(response_format=FORMAT).json()["error"]
        assert pointer == error["errors"][0]["pointer"]
        assert len(error["message"]) < 300
        assert "#/properties/a/" in error["message"]
        assert "a/items/not: no" in error["message"]


def test_pointer_of_a_dead_end_is_shortened(post: Any, engine: Any) -> None:
    """The same where the text came to a place without a token."""
    engine.error = DeadStateError("/a" * 1000)
    assert 400 > len(post(response_format=FORMAT).json()["error"]["message"])


@pytest.mark.parametrize("error", [EngineFailedError("a bug"), RuntimeError("a bug")])
def test_failures_are_in_the_log_under_their_id(
    post: Any, engine: Any, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """A message that points to the log by the request's id points to a line that has the cause."""
    engine.error = error
    response = post()
    request_id = response.headers["x-request-id"]
    assert request_id in response.json()["error"]["message"]
    (line,) = [entry for entry in caplog.records if entry.levelname == "ERROR"]
    assert request_id in line.getMessage()
    assert "a bug" in logging.Formatter().format(line)


def test_access_lines(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    """Each exchange is a line with its id, path and status, whatever the path holds."""
    caplog.set_level("INFO", "katagami")
    for path, status in (("/health", 200), ("/a%0Ab", 404)):
        request_id = client.get(path).headers["x-request-id"]
        (line,) = [entry.getMessage() for entry in caplog.records if request_id in entry.getMessage()]
        assert f"{request_id} GET {path} {status} in " in line


def test_long_body_is_refused_before_it_is_read(engine: Any, tmp_path: Path) -> None:
    """Where the header tells the length, nothing is awaited; who waits for leave to send is also told to close."""
    app = create_app(Settings(home=tmp_path, body_limit_bytes=1000), cast("Engine", engine))
    with TestClient(app) as client:
        while not app.state.gate.loaded_at:
            time.sleep(0.001)
        for length in (b"1001", b"9" * 5000):
            for headers, connection in (([], None), ([(b"expect", b"100-continue")], b"close")):
                messages = cast("Any", client.portal).call(exchange, app, [*headers, (b"content-length", length)])
                assert 413 == messages[0]["status"]
                assert connection == dict(messages[0]["headers"]).get(b"connection")


async def exchange(app: FastAPI, headers: list[tuple[bytes, bytes]]) -> list[Any]:
    """One completion whose body must not be asked for; the messages that came back."""
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"", "headers": headers}
    await app(scope, receive, send)
    return sent


@pytest.mark.parametrize("path", ["/health", "/ready", "/version", "/v1/models", "/v1/models/tiny", "/v1/models/no"])
def test_head(client: TestClient, path: str) -> None:
    """HEAD is GET without the body."""
    got, head = client.get(path), client.head(path)
    assert (got.status_code, b"") == (head.status_code, head.content)
    for name in ("content-type", "content-length"):
        assert got.headers[name] == head.headers[name]


def test_allowed_methods(client: TestClient) -> None:
    """A wrong method is answered with the right ones."""
    assert "GET, HEAD" == client.post("/health").headers["allow"]
    assert "POST" == client.head("/v1/completions").headers["allow"]
