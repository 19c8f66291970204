"""The chat route: messages become a prompt, fields reach the engine, and the answer is a message."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from engine import BudgetBelowMinimumError, TokenLogprobs

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["b"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
USER = {"role": "user", "content": "hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": '{"x": 1}'}}


@pytest.fixture
def chat(client: TestClient) -> Callable[..., Any]:
    """Post a chat with one message, or the test's, and the test's fields."""

    def send(*messages: Any, **fields: Any) -> Any:
        body = {"model": "tiny", "messages": list(messages) or [USER]} | fields
        return client.post("/v1/chat/completions", json=body)

    return send


def prompt_of(engine: Any) -> str:
    """The latest prompt, as text."""
    _, request = engine.requests[-1]
    return str(engine.models["tiny"].tokenizer.decode(request.prompts[0]))


def test_answer(chat: Any, engine: Any, make_choice: Any) -> None:
    """All members of the contract are there."""
    engine.answer = lambda index: make_choice(index, "hello")
    body = chat().json()
    message = {"role": "assistant", "content": "hello", "refusal": None}
    end = {"finish_reason": "stop", "stop_reason": "end_turn", "stop_sequence": None, "structured": None}
    assert [{"index": 0, "message": message, "logprobs": None} | end] == body["choices"]
    assert ("chat.completion", "tiny", None) == (body["object"], body["model"], body["structured"])
    assert body["id"].startswith("chatcmpl-")
    assert {"prompt_tokens", "completion_tokens", "total_tokens"} < set(body["usage"])


def test_plain_prompt(chat: Any, engine: Any) -> None:
    """Without a template each message is a line; parts are joined by line feeds, `developer` is `system`."""
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    chat({"role": "developer", "content": "be kind"}, {"role": "user", "content": parts})
    assert "system: be kind\nuser: one\ntwo\n" == prompt_of(engine)


def test_schema_in_the_prompt(chat: Any, engine: Any) -> None:
    """The system turn names the format, one is made where there is none, and a request may have it otherwise."""
    told = 'nswer with a  document that satisfies this  chema, and with nothing else:\n{"type": "object"'
    chat({"role": "system", "content": "be kind"}, USER, response_format=FORMAT)
    assert prompt_of(engine).startswith(f"system: be kind\n\n{told}")
    chat(response_format=FORMAT)
    assert prompt_of(engine).startswith(f"system: {told}")
    assert prompt_of(engine).endswith("}\nuser: hi\n")
    chat(response_format=FORMAT, structured_options={"schema_in_prompt": False})
    assert "user: hi\n" == prompt_of(engine)


def test_template_without_system_turns(chat: Any, engine: Any) -> None:
    """The format's words go into the first turn; a system turn of the request's own is its fault."""
    engine.models["tiny"].chat_template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}"
    )
    assert 200 == chat(response_format={"type": "json_object"}).status_code
    assert "user: nswer with a  object, and with nothing else.\n\nhi\n" == prompt_of(engine)
    refused = chat({"role": "system", "content": "x"}, USER, response_format={"type": "json_object"})
    assert "no system" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("response_format", "told"),
    [
        ({"type": "json_object"}, "nswer with a  object, and with nothing else."),
        ({"type": "regex", "regex": "a+"}, "nswer with a text that this regular expression matches"),
        ({"type": "choice", "choice": ["x", "y"]}, 'nswer with one of these texts, and with nothing else:\n["x", "y"]'),
    ],
)
def test_other_formats_in_the_prompt(chat: Any, engine: Any, response_format: Any, told: str) -> None:
    """Each format has its own words."""
    chat(response_format=response_format)
    assert prompt_of(engine).startswith(f"system: {told}")


def test_earlier_calls(chat: Any, engine: Any) -> None:
    """Calls of earlier answers and their results are part of the prompt."""
    assistant = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    assert 200 == chat(USER, assistant, {"role": "tool", "tool_call_id": "call_1", "content": "42"}).status_code
    assert '"name": "find", "arguments": {"x": 1}' in prompt_of(engine)
    assert prompt_of(engine).endswith("tool: 42\n")


def test_refused_answers_may_come_back(chat: Any, engine: Any) -> None:
    """An earlier answer that declined is text, and what SDK objects carry beside it is of no matter."""
    declined = {"role": "assistant", "content": None, "refusal": "no", "parsed": None, "annotations": []}
    assert 200 == chat(declined, USER).status_code
    part = {"role": "assistant", "content": [{"type": "refusal", "refusal": "never"}]}
    assert 200 == chat(part, USER).status_code
    assert "assistant: never\nuser: hi\n" == prompt_of(engine)


def test_fields_reach_the_engine(chat: Any, engine: Any) -> None:
    """What completions take under the same name means the same here."""
    sampling = {"temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "seed": 5, "stop": "x"}
    chat(**sampling, n=3, presence_penalty=1, frequency_penalty=-1, logit_bias={"2": 3}, max_tokens=9)
    request = engine.requests[0][1]
    got = request.sampling
    assert (0.0, 0.5, 3, 0.1, 5, ("x",)) == (got.temperature, got.top_p, got.top_k, got.min_p, got.seed, got.stop)
    assert (3, 9, 1.0, -1.0, ((2, 3.0),)) == (
        request.n,
        request.max_tokens,
        got.presence_penalty,
        got.frequency_penalty,
        got.logit_bias,
    )


@pytest.mark.parametrize(
    ("fields", "max_tokens"),
    [
        ({}, 512),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6}, 6),
        ({"max_tokens": 7, "max_completion_tokens": 7}, 7),
        ({"max_completion_tokens": 0}, 0),
    ],
)
def test_budget(chat: Any, engine: Any, fields: dict[str, Any], max_tokens: int) -> None:
    """Both names mean the budget."""
    chat(**fields)
    assert max_tokens == engine.requests[0][1].max_tokens


def test_log_probabilities(chat: Any, engine: Any, make_choice: Any) -> None:
    """One entry for each token, with its bytes and the alternatives; special tokens have names and no bytes."""
    size = len(engine.models["tiny"].tokenizer.vocabulary)
    logprobs = (TokenLogprobs(0, -0.5, ((0, -0.5), (size - 1, -1.5))), TokenLogprobs(size - 4, -9999.0, ()))
    engine.answer = lambda index: make_choice(index, "a", logprobs=logprobs)
    choice = chat(logprobs=True, top_logprobs=2).json()["choices"][0]
    a, end = {"token": "a", "logprob": -0.5, "bytes": [97]}, {"token": "<|end|>", "logprob": -1.5, "bytes": None}
    half = {"token": "bytes:\\xc3", "logprob": -9999.0, "bytes": [195], "top_logprobs": []}
    assert {"content": [a | {"top_logprobs": [a, end]}, half], "refusal": None} == choice["logprobs"]
    assert 2 == engine.requests[0][1].logprobs


def test_log_probabilities_without_alternatives(chat: Any, engine: Any) -> None:
    """They may be asked for alone; not asking for them is not asking for none."""
    chat(logprobs=True)
    chat(logprobs=False)
    assert [0, None] == [request.logprobs for _, request in engine.requests]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"messages": None}, "missing_required_parameter", "messages"),
        ({"messages": []}, "invalid_value", "messages"),
        ({"messages": "hi"}, "invalid_type", "messages"),
        ({"messages": ["hi"]}, "invalid_type", "messages[0]"),
        ({"messages": [{"content": "hi"}]}, "missing_required_parameter", "messages[0].role"),
        ({"messages": [USER, {"role": "owner", "content": "hi"}]}, "invalid_value", "messages[1].role"),
        ({"messages": [{"role": 5, "content": "hi"}]}, "invalid_value", "messages[0].role"),
        ({"messages": [{"role": "function", "content": "hi"}]}, "unsupported_parameter", "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "missing_required_parameter", "messages[0].content"),
        ({"messages": [USER | {"content": 5}]}, "invalid_type", "messages[0].content"),
        ({"messages": [USER | {"content": []}]}, "invalid_type", "messages[0].content"),
        ({"messages": [USER | {"content": ["hi"]}]}, "invalid_type", "messages[0].content[0]"),
        (
            {"messages": [USER | {"content": [{"text": "hi"}]}]},
            "missing_required_parameter",
            "messages[0].content[0].type",
        ),
        (
            {"messages": [USER | {"content": [{"type": "text"}]}]},
            "missing_required_parameter",
            "messages[0].content[0].text",
        ),
        (
            {"messages": [USER | {"content": [{"type": "refusal", "refusal": "x"}]}]},
            "invalid_value",
            "messages[0].content[0].type",
        ),
        (
            {
                "messages": [
                    USER | {"content": [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {}}]}
                ]
            },
            "unsupported_parameter",
            "messages[0].content[1]",
        ),
        (
            {"messages": [USER | {"content": [{"type": "input_audio"}]}]},
            "unsupported_parameter",
            "messages[0].content[0]",
        ),
        ({"messages": [USER | {"content": [{"type": "file"}]}]}, "unsupported_parameter", "messages[0].content[0]"),
        ({"messages": [USER | {"banana": 1}]}, "unknown_parameter", "messages[0].banana"),
        ({"messages": [USER | {"tool_calls": [CALL]}]}, "invalid_value", "messages[0].tool_calls"),
        ({"messages": [USER | {"tool_call_id": "x"}]}, "invalid_value", "messages[0].tool_call_id"),
        ({"messages": [USER | {"refusal": "x"}]}, "invalid_value", "messages[0].refusal"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "missing_required_parameter", "messages[0].tool_call_id"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [CALL | {"type": "custom"}]}]},
            "invalid_value",
            "messages[0].tool_calls[0].type",
        ),
        (
            {"messages": [{"role": "assistant", "content": "x", "audio": {}}]},
            "unsupported_parameter",
            "messages[0].audio",
        ),
        (
            {"messages": [{"role": "assistant", "function_call": {}}]},
            "unsupported_parameter",
            "messages[0].function_call",
        ),
        ({"prompt": "a"}, "unknown_parameter", "prompt"),
        ({"echo": True}, "unknown_parameter", "echo"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "invalid_value", "max_completion_tokens"),
        ({"max_completion_tokens": -1}, "invalid_value", "max_completion_tokens"),
        ({"logprobs": 2}, "invalid_type", "logprobs"),
        ({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 2}, "invalid_value", "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "invalid_value", "top_logprobs"),
        ({"tools": []}, "unsupported_parameter", "tools"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "unsupported_parameter", "tools"),
        ({"tool_choice": "auto"}, "unsupported_parameter", "tool_choice"),
        ({"parallel_tool_calls": True}, "unsupported_parameter", "parallel_tool_calls"),
        ({"functions": []}, "unsupported_parameter", "functions"),
        ({"function_call": "auto"}, "unsupported_parameter", "function_call"),
        ({"modalities": ["text", "audio"]}, "unsupported_parameter", "modalities"),
        ({"audio": {}}, "unsupported_parameter", "audio"),
        ({"web_search_options": {}}, "unsupported_parameter", "web_search_options"),
        ({"moderation": {}}, "unsupported_parameter", "moderation"),
        ({"stream_options": {}}, "invalid_value", "stream_options"),
        ({"structured_options": {"schema_in_prompt": True}}, "invalid_value", "structured_options.schema_in_prompt"),
        ({"messages": [USER | {"content": "a" * 2000}]}, "context_length_exceeded", "messages"),
    ],
)
def test_field_rules(chat: Any, engine: Any, fields: dict[str, Any], code: str, param: str) -> None:
    """Each broken rule is told with its code and the path of the field, and nothing is run."""
    response = chat(**fields)
    error = response.json()["error"]
    assert (400, code, param) == (response.status_code, error["code"], error["param"])
    assert error["message"].startswith(f"{param}: ")
    assert [] == engine.requests


def test_text_is_the_one_modality(chat: Any) -> None:
    """What is asked for by name and is there anyway is fine; so are hints and nulls."""
    fields = dict.fromkeys(("tools", "tool_choice", "logprobs", "top_logprobs", "max_tokens", "functions"))
    assert 200 == chat(modalities=["text"], reasoning_effort="low", verbosity="low", **fields).status_code


def test_foreign_names_have_hints(chat: Any) -> None:
    """A field of the other route is told with its place."""
    assert "POST /v1/completions" in chat(prompt="a").json()["error"]["message"]


def test_messages_are_told_without_hints_of_other_fields(chat: Any) -> None:
    """What is wrong with a field of this route has no word of the other route's."""
    assert "/v1/" not in chat(messages=[]).json()["error"]["message"]


def test_budget_below_the_minimum(chat: Any, engine: Any) -> None:
    """Refused where the request wants it so, with the field's name."""
    engine.error = BudgetBelowMinimumError(3, 9)
    response = chat(response_format=FORMAT, structured_options={"on_limit": "error"}, max_completion_tokens=3)
    error = response.json()["error"]
    assert (400, "max_tokens_below_minimum", "max_tokens") == (response.status_code, error["code"], error["param"])
    assert "9" in error["message"]


def test_property_order_reaches_the_prompt(client: TestClient, engine: Any) -> None:
    """The model reads the schema as it was written."""
    text = '{"properties": {"z": {"const": 1.0}, "a": {"const": 1}}}'
    form = f'{{"type": "json_schema", "json_schema": {{"schema": {text}, "name": "x"}}}}'
    body = f'{{"response_format": {form}, "messages": [{json.dumps(USER)}], "model": "tiny"}}'
    client.post("/v1/chat/completions", content=body.encode(), headers={"content-type": "application/json"})
    assert text in prompt_of(engine)
