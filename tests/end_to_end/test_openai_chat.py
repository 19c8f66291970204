"""The official SDK's chat calls against a real server, by the rows of the contract's list of client calls."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Annotated, Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field, HttpUrl, TypeAdapter, WithJsonSchema

USER = {"role": "user", "content": "hi"}
MODEL: dict[str, Any] = {"model": "katagami-char", "messages": [USER]}


class Entry(BaseModel):
    """A record like those that the shipped models were trained on."""

    id: Annotated[int, Field(ge=0, le=9999)]
    level: Literal["初級", "上級"]
    draft: bool


FORMAT = {"type": "json_schema", "json_schema": {"name": "entry", "schema": Entry.model_json_schema()}}


def test_formats(caller: Any) -> None:
    """Row 10: JSON in the message's content."""
    answer = caller.call("chat.completions.create", **MODEL, response_format=FORMAT)
    Entry.model_validate_json(answer.choices[0].message.content)
    assert ("stop", "end_turn") == (answer.choices[0].finish_reason, answer.choices[0].stop_reason)
    assert answer.choices[0].structured["valid"]
    assert answer._request_id.startswith("req_")
    any_object = caller.call("chat.completions.create", **MODEL, response_format={"type": "json_object"}, max_tokens=60)
    assert isinstance(json.loads(any_object.choices[0].message.content), dict)


def test_free_text(caller: Any) -> None:
    """Without a format there is content and no claim."""
    answer = caller.call("chat.completions.create", **MODEL, max_tokens=8)
    assert answer.choices[0].message.content
    assert answer.structured is None


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the SDK's, of its own message object
def test_parse(caller: Any) -> None:
    """Row 11: the parsed message is the model, and may be sent back as it is."""
    answer = caller.call("chat.completions.parse", **MODEL, response_format=Entry)
    message = answer.choices[0].message
    assert isinstance(message.parsed, Entry)
    messages = [USER, message, USER]
    again = caller.call("chat.completions.parse", model="katagami-char", messages=messages, response_format=Entry)
    assert isinstance(again.choices[0].message.parsed, Entry)
    assert again.usage.prompt_tokens > answer.usage.prompt_tokens


def test_parse_of_a_cut_text(caller: Any) -> None:
    """Row 12: the SDK's own error, with the text in it."""
    with pytest.raises(openai.LengthFinishReasonError) as caught:
        caller.call("chat.completions.parse", **MODEL, response_format=Entry, max_completion_tokens=3)
    choice = caught.value.completion.choices[0]
    assert (True, "length") == (bool(choice.message.content), choice.finish_reason)


def test_parse_of_a_closed_text(caller: Any) -> None:
    """A document that was closed to fit is parsed where the request has it reported as a stop."""
    natural = caller.call("chat.completions.parse", **MODEL, response_format=Entry, temperature=0)
    answer = caller.call(
        "chat.completions.parse",
        **MODEL,
        response_format=Entry,
        temperature=0,
        max_completion_tokens=natural.usage.completion_tokens - 1,
        extra_body={"structured_options": {"report_closed_as": "stop"}},
    )
    assert isinstance(answer.choices[0].message.parsed, Entry)
    assert answer.choices[0].structured["closed_early"]


def test_stream_helper(caller: Any) -> None:
    """Row 13: chunks, growing content, its end; the final completion has the usage."""
    events, final = caller.events(**MODEL, response_format=Entry, stream_options={"include_usage": True})
    assert {"chunk", "content.delta", "content.done"} == {event.type for event in events}
    partial = [event.parsed for event in events if event.type == "content.delta"]
    assert len(partial) > 1
    assert isinstance(final.choices[0].message.parsed, Entry)
    assert final.usage.total_tokens == final.usage.prompt_tokens + final.usage.completion_tokens
    last_with_choices = [event.chunk for event in events if event.type == "chunk" and event.chunk.choices][-1]
    assert last_with_choices.structured["schema_hash"]
    assert last_with_choices.choices[0].structured["valid"]


def test_stream_helper_with_choices(caller: Any) -> None:
    """Row 14: two parsed choices, each with its log-probabilities."""
    _, final = caller.events(**MODEL, response_format=Entry, n=2, logprobs=True)
    assert [0, 1] == [choice.index for choice in final.choices]
    for choice in final.choices:
        assert isinstance(choice.message.parsed, Entry)
        assert choice.message.content == "".join(known.token for known in choice.logprobs.content)


def test_stream_equals_plain(caller: Any) -> None:
    """At temperature 0 the joined content is the content, and the role comes once."""
    for form in (FORMAT, {"type": "text"}):
        asked = {**MODEL, "response_format": form, "temperature": 0, "max_tokens": 40}
        plain = caller.call("chat.completions.create", **asked)
        first, *chunks = caller.call("chat.completions.create", **asked, stream=True)
        assert ("assistant", "") == (first.choices[0].delta.role, first.choices[0].delta.content)
        deltas = [chunk.choices[0].delta for chunk in chunks]
        assert {None} == {delta.role for delta in deltas}
        assert plain.choices[0].message.content == "".join(delta.content or "" for delta in deltas)
        assert plain.choices[0].finish_reason == chunks[-1].choices[0].finish_reason


def test_log_probabilities(caller: Any) -> None:
    """Row 15: alternatives, best first, with their bytes."""
    answer = caller.call("chat.completions.create", **MODEL, max_tokens=9, logprobs=True, top_logprobs=3)
    for known in answer.choices[0].logprobs.content:
        values = [other.logprob for other in known.top_logprobs]
        assert (3, sorted(values, reverse=True)) == (len(values), values)
        assert known.bytes is None or known.token.startswith("bytes:") or bytes(known.bytes).decode() == known.token


@pytest.mark.parametrize("field", ["tools", "tool_choice", "parallel_tool_calls", "functions"])
def test_tools_are_refused_by_name(caller: Any, field: str) -> None:
    """Row 16, so far: a tool is never ignored."""
    tool = openai.pydantic_function_tool(Entry)
    given = {"tools": [tool], "tool_choice": "auto", "parallel_tool_calls": True, "functions": [tool["function"]]}
    with pytest.raises(openai.BadRequestError) as caught:
        caller.call("chat.completions.create", **MODEL, extra_body={field: given[field]})
    assert ("unsupported_parameter", field) == (caught.value.code, caught.value.param)


def test_unsupported_keyword(caller: Any) -> None:
    """Row 19: refused by name and place, streamed or not."""
    schema = {"type": "object", "properties": {"a": {"$dynamicRef": "#node"}}}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            caller.call("chat.completions.create", **MODEL, response_format=form, stream=stream)
        error = caught.value
        assert ("invalid_json_schema", "response_format") == (error.code, error.param)
        assert "#/properties/a" == error.body["errors"][0]["pointer"]  # type: ignore[index]


class Circle(BaseModel):
    """One of a union, told apart by its tag."""

    kind: Literal["circle"]
    radius: Annotated[int, Field(ge=0, le=9)]


class Square(BaseModel):
    """The other."""

    kind: Literal["square"]
    side: Annotated[int, Field(ge=0, le=9)]


class Shape(BaseModel):
    """A tagged union."""

    shape: Annotated[Circle | Square, Field(discriminator="kind")]


class Tree(BaseModel):
    """Recursion."""

    left: Tree | None
    leaf: bool


class Link(BaseModel):
    """A string with a format, and a pattern beside it, since the format alone takes schemes that the class does not."""

    url: Annotated[HttpUrl, Field(json_schema_extra={"pattern": "^https://[a-z]{1,20}[.][a-z]{2,8}/[a-z]*$"})]


class Bag(BaseModel):
    """A set of what there is not much of."""

    values: set[Literal["a", "b", "c"]]


class Open(BaseModel):
    """A set of what there is no end of: distinct items cannot be enforced then."""

    values: set[int]


class Pair(BaseModel):
    """A tuple."""

    pair: tuple[Annotated[int, Field(ge=0, le=9)], Literal["x"]]


class Price(BaseModel):
    """A decimal number, of which pydantic's own schema takes any string."""

    price: Annotated[Decimal, WithJsonSchema({"type": "number", "minimum": 0, "maximum": 9, "multipleOf": 0.01})]


class Counts(BaseModel):
    """An open map."""

    counts: Annotated[dict[str, Annotated[int, Field(ge=0, le=9)]], Field(max_length=2)]


@pytest.mark.parametrize("model", [Shape, Tree, Link, Bag, Pair, Price, Counts])
@pytest.mark.parametrize("method", ["create", "parse"])
def test_pydantic_models(client: openai.OpenAI, model: type[BaseModel], method: str) -> None:
    """Row 20: the text is an instance, whether the SDK or pydantic wrote the schema."""
    choice = ask_for(client, model, method).choices[0]
    model.model_validate_json(choice.message.content)
    assert choice.structured["valid"]


@pytest.mark.parametrize("kind", [HttpUrl, Decimal])
def test_pydantic_class_that_wants_more_than_its_schema(client: openai.OpenAI, kind: type) -> None:
    """Row 20: of a bare URL or decimal the schema says less than the class; what it says is satisfied."""
    form: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": TypeAdapter(kind).json_schema()}}
    answer: Any = client.chat.completions.create(**MODEL, response_format=form, max_tokens=100)
    assert answer.choices[0].structured["valid"]


@pytest.mark.parametrize("method", ["create", "parse"])
def test_pydantic_model_that_cannot_be_enforced(client: openai.OpenAI, method: str) -> None:
    """Row 20: or the error names the keywords that stand in the way."""
    with pytest.raises(openai.BadRequestError) as caught:
        ask_for(client, Open, method)
    found = [finding["keyword"] for finding in caught.value.body["errors"]]  # type: ignore[index]
    assert ("invalid_json_schema", ["uniqueItems"]) == (caught.value.code, found)


def ask_for(client: openai.OpenAI, model: type[BaseModel], method: str) -> Any:
    """A completion under the schema of this class."""
    asked = {**MODEL, "max_tokens": 200, "seed": 1, "extra_body": {"structured_options": {"report_closed_as": "stop"}}}
    if method == "parse":
        return client.chat.completions.parse(**asked, response_format=model)
    schema = {"name": "answer", "schema": model.model_json_schema()}
    return client.chat.completions.create(**asked, response_format={"type": "json_schema", "json_schema": schema})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"temperature": 9}, "invalid_value", "temperature"),
        ({"extra_body": {"guided_json": {}}}, "unknown_parameter", "guided_json"),
        ({"extra_body": {"prompt": "x"}}, "unknown_parameter", "prompt"),
        ({"messages": []}, "invalid_value", "messages"),
        ({"modalities": ["text", "audio"]}, "unsupported_parameter", "modalities"),
        ({"top_logprobs": 3}, "invalid_value", "top_logprobs"),
        ({"stream": True, "temperature": 9}, "invalid_value", "temperature"),
    ],
)
def test_bad_requests(caller: Any, fields: dict[str, Any], code: str, param: str) -> None:
    """Row 21: a bad request is `BadRequestError` with its code and field, streamed or not."""
    with pytest.raises(openai.BadRequestError) as caught:
        caller.call("chat.completions.create", **MODEL | fields)
    assert (code, param) == (caught.value.code, caught.value.param)
