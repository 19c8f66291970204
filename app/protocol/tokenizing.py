"""The bodies of `POST /tokenize` and `POST /detokenize`.

In: a JSON object. Out: token ids, or text, as JSON. Cost: linear in the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictStr

from app.chat_template import prompt_ids
from app.errors import RequestError
from app.protocol.fields import Fields, Integer, parse, without_hints
from app.protocol.messages import read_messages
from app.protocol.models import model_named
from app.protocol.tokens import checked_ids, text_ids
from engine import LoadedModel


class TokenizeBody(Fields):
    """`POST /tokenize`: a prompt, or the messages of a chat."""

    model: StrictStr | None = None  # None: the first one
    prompt: StrictStr | None = None
    messages: Annotated[list[Any], Field(min_length=1)] | None = None
    add_special_tokens: StrictBool = True  # what prompts begin with; chats have it from their template


class DetokenizeBody(Fields):
    """`POST /detokenize`."""

    model: StrictStr | None = None
    tokens: list[Integer]


def tokenize(data: dict[str, Any], models: Mapping[str, LoadedModel]) -> dict[str, Any]:
    """The ids of a text as the generating routes would read it; raises `RequestError` or `UnknownModelError`."""
    body = parse(TokenizeBody, without_hints(data))
    model = model_named(body.model, models)
    if (body.prompt is None) == (body.messages is None):
        code = "missing_required_parameter" if body.prompt is None else "invalid_value"
        raise RequestError(code, "prompt: give either prompt or messages, and not both", "prompt")
    if body.messages is None:
        text = body.prompt or ""
        tokens = text_ids(text, model) if body.add_special_tokens else model.tokenizer.encode(text)
    else:
        tokens = prompt_ids(read_messages(body.messages), model)
    return {"tokens": list(tokens), "count": len(tokens), "max_model_len": model.model.context_length}


def detokenize(data: dict[str, Any], models: Mapping[str, LoadedModel]) -> dict[str, Any]:
    """The text of ids; raises `RequestError` or `UnknownModelError`."""
    body = parse(DetokenizeBody, without_hints(data))
    model = model_named(body.model, models)
    return {"prompt": model.tokenizer.decode(checked_ids(body.tokens, model, "tokens"))}
