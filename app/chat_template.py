"""Messages to a prompt, in the form that the model was trained on.

In: turns. Out: token ids. Cost: one rendering and one encoding, linear in the text; templates are compiled once.

A model that comes with a chat template (jinja, as in tokenizer_config.json and in GGUF files) has it rendered in a
sandbox: a template is code from whoever made the model. The form of all others, which are no chat models, is plain: a
line `role: content` for each message, and the answer begins on the next line.

Whoever writes a special token into a message does not end the turn by it: such text is fenced off while the template
is rendered, and encoded as plain text. Rejected: to replace each content by a placeholder, since templates trim, split
and compare contents; to forbid such text, since people ask models about their own formats.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from app.errors import RequestError
from app.protocol.messages import ToolCall, Turn
from app.protocol.tokens import text_ids
from app.words import clip
from engine import LoadedModel

KEPT_TEMPLATES = 16  # compiled; one a model


def prompt_ids(turns: Sequence[Turn], model: LoadedModel) -> tuple[int, ...]:
    """The prompt that ends where the assistant's answer begins; raises `RequestError` where the template objects."""
    if model.chat_template is None:
        return text_ids(plain_prompt(turns), model)
    fence = Fence(model.tokenizer.special_tokens)
    rendered = _render(model, [_message(turn, fence) for turn in turns])
    return tuple(
        token_id
        for text, is_fenced in fence.pieces(rendered)
        for token_id in model.tokenizer.encode(text, special=not is_fenced)
    )


def plain_prompt(turns: Sequence[Turn]) -> str:
    """A line `role: content` for each turn; calls are written as JSON."""
    return "".join(f"{turn.role}: {turn.content}{_calls_as_text(turn.tool_calls)}\n" for turn in turns)


class Fence:
    """Marks what would be read as special tokens, so that it can be told from a template's own."""

    def __init__(self, special_tokens: Sequence[str]) -> None:
        longest_first = sorted(filter(None, special_tokens), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        secret = secrets.token_hex(8)  # no message can hold it, since it is made after the message
        self._open, self._close = f"\ufdd0{secret}\ufdd1", f"\ufdd1{secret}\ufdd0"

    def around(self, text: str) -> str:
        """The text with a mark before and after each special token."""
        return self._special.sub(lambda found: f"{self._open}{found[0]}{self._close}", text)

    def pieces(self, rendered: str) -> Iterator[tuple[str, bool]]:
        """The rendered text in pieces without marks, each with whether it was fenced."""
        for number, piece in enumerate(rendered.split(self._open)):
            fenced, _, rest = piece.partition(self._close) if number else ("", "", piece)
            yield from ((text, is_fenced) for text, is_fenced in ((fenced, True), (rest, False)) if text)


def _message(turn: Turn, fence: Fence) -> dict[str, Any]:
    """A turn as templates expect it."""
    message: dict[str, Any] = {"role": turn.role, "content": fence.around(turn.content)}
    if turn.name is not None:
        message["name"] = fence.around(turn.name)
    if turn.tool_call_id is not None:
        message["tool_call_id"] = fence.around(turn.tool_call_id)
    if turn.tool_calls:
        message["tool_calls"] = [_call(call, fence.around) for call in turn.tool_calls]
    return message


def _call(call: ToolCall, around: Callable[[str], str] = str) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": _fenced(_arguments(call), around)}
    return {"id": around(call.id), "type": "function", "function": function}


def _arguments(call: ToolCall) -> Any:
    """As a value, which templates write in their own way; as text where it is no JSON."""
    try:
        return json.loads(call.function.arguments)
    except ValueError:
        return call.function.arguments


def _fenced(value: Any, around: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return around(value)
    if isinstance(value, dict):
        return {around(key): _fenced(item, around) for key, item in value.items()}
    return [_fenced(item, around) for item in value] if isinstance(value, list) else value


def _calls_as_text(calls: Sequence[ToolCall]) -> str:
    return json.dumps([_call(call) for call in calls], ensure_ascii=False) if calls else ""


def _render(model: LoadedModel, messages: Sequence[dict[str, Any]]) -> str:
    try:
        return _compiled(model.chat_template or "").render(
            messages=messages,
            add_generation_prompt=True,
            bos_token=model.bos_token,
            eos_token=model.eos_token,
            tools=None,
        )
    except (TemplateError, TypeError, ValueError, KeyError) as error:
        reason = f"the chat template of {model.name} does not take them: {clip(error, 200)}"
        raise RequestError("invalid_value", f"messages: {reason}", "messages") from None


@lru_cache(KEPT_TEMPLATES)
def _compiled(source: str) -> Template:
    """The template, in the environment that chat templates are written for."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _object
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)


def _to_json(value: Any, indent: int | None = None) -> str:
    """JSON as chat templates expect it: nothing escaped for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _object(reason: str) -> NoReturn:
    raise TemplateError(reason)
