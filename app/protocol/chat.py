"""The body of `POST /v1/chat/completions`, and the engine's `Request` made of it.

In: a JSON object. Out: `Asked`, as for completions: messages become one prompt, in the form that the model was trained
on. Cost: linear in the body; runs in a worker thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, StrictBool, ValidationInfo, field_validator

from app.chat_template import prompt_ids
from app.errors import RequestError
from app.protocol.fields import only, parse, refused, value_error, without_hints
from app.protocol.generation import (
    Asked,
    Defaults,
    GenerationBody,
    TokenCount,
    TopLogprobs,
    Wanted,
    model_of,
    source_of,
    to_asked,
)
from app.protocol.messages import Turn, read_messages
from app.protocol.schema_prompt import before_first_turn, with_source
from engine import LoadedModel
from schemas_cache import Source

_NO_TOOLS = refused("tools are not available yet")
_NO_FUNCTIONS = refused("functions are not supported")


class ChatBody(GenerationBody):
    """The fields of the route, with their types and bounds."""

    messages: Annotated[list[Any], Field(min_length=1)]
    max_tokens: TokenCount | None = None
    max_completion_tokens: TokenCount | None = None
    logprobs: StrictBool = False
    top_logprobs: TopLogprobs | None = None
    tools: Annotated[Any, _NO_TOOLS] = None
    tool_choice: Annotated[Any, _NO_TOOLS] = None
    parallel_tool_calls: Annotated[Any, _NO_TOOLS] = None
    functions: Annotated[Any, _NO_FUNCTIONS] = None
    function_call: Annotated[Any, _NO_FUNCTIONS] = None
    modalities: Annotated[Any, only(["text"], why="is not supported")] = None
    audio: Annotated[Any, refused("sound is not supported")] = None
    web_search_options: Annotated[Any, refused("there is no web search here")] = None
    moderation: Annotated[Any, refused("there is no moderation here")] = None

    @field_validator("max_completion_tokens")
    @classmethod
    def _one_budget(cls, value: int | None, info: ValidationInfo) -> int | None:
        other = info.data.get("max_tokens")
        if None not in (value, other) and value != other:
            raise value_error(f"is {value} and max_tokens is {other}; give one of them")
        return value

    @field_validator("top_logprobs")
    @classmethod
    def _only_with_logprobs(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and not info.data.get("logprobs"):
            raise value_error("needs logprobs: true")
        return value


def parse_chat(data: dict[str, Any], models: Mapping[str, LoadedModel], defaults: Defaults) -> Asked:
    """Check a body and build the engine's request; raises `RequestError`, `SchemaError` or `UnknownModelError`."""
    body = parse(ChatBody, without_hints(data))
    turns = read_messages(body.messages)
    model = model_of(body, models)
    source = source_of(body, defaults)
    ids = _prompt(turns, source if _shows_schema(body) else None, model)
    budget = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return to_asked(body, model, source, Wanted((ids,), budget, logprobs), defaults)


def _shows_schema(body: ChatBody) -> bool:
    return body.structured_options.schema_in_prompt is not False


def _prompt(turns: tuple[Turn, ...], source: Source | None, model: LoadedModel) -> tuple[int, ...]:
    ids = _ids(turns, source, model)
    limit = model.model.context_length
    if len(ids) > limit:
        told = f"messages: they take {len(ids)} tokens; the model's context has {limit}"
        told += "; the schema is among them unless schema_in_prompt is false" if source else ""
        raise RequestError("context_length_exceeded", told, "messages")
    return ids


def _ids(turns: tuple[Turn, ...], source: Source | None, model: LoadedModel) -> tuple[int, ...]:
    try:
        return prompt_ids(with_source(turns, source), model)
    except RequestError:
        if source is None or any(turn.role == "system" for turn in turns):
            raise
        return prompt_ids(before_first_turn(turns, source), model)  # some templates take no system turn
