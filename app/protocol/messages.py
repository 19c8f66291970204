"""`messages` of the chat route, checked one by one: what was said, by whom.

In: the list of the body. Out: a `Turn` for each. Cost: linear. Parts of one content are joined by line feeds. What a
model cannot read here (images, sound, files) is refused with the place of the part, never left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictStr
from pydantic_core import PydanticCustomError

from app.errors import RequestError
from app.protocol.fields import Fields, parse, refused, value_error
from app.words import found

Role = Literal["system", "user", "assistant", "tool"]
ROLES = ("developer", "system", "user", "assistant", "tool")  # as they may be sent

# What the SDKs' own message objects and parts carry beside what they say; of no effect.
MESSAGE_HINTS = frozenset({"annotations", "cache_control", "parsed"})
PART_HINTS = frozenset({"cache_control", "prompt_cache_breakpoint"})
UNREADABLE_PARTS = frozenset(
    {"audio", "document", "file", "image", "image_url", "input_audio", "input_image", "video_url"}
)


@dataclass(frozen=True, slots=True)
class Turn:
    """One message."""

    role: Role
    content: str
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class Function(Fields):
    """What was called, with its arguments as JSON text."""

    name: Annotated[StrictStr, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    arguments: StrictStr


class ToolCall(Fields):
    """A call in an earlier answer."""

    id: StrictStr
    type: Literal["function"]
    function: Function


def _role(value: object) -> object:
    if value == "function":
        raise PydanticCustomError("unsupported_parameter", "function messages are not supported; use tool messages")
    if isinstance(value, str) and value not in ROLES:
        raise value_error(f"must be one of {', '.join(ROLES)}, not {found(value)}")
    return "system" if value == "developer" else value


class Message(Fields):
    """The members of a message; which of them may stand together depends on the role."""

    role: Annotated[Role, BeforeValidator(_role)]
    content: Any = None
    name: StrictStr | None = None
    refusal: StrictStr | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: StrictStr | None = None
    audio: Annotated[Any, refused("sound is not supported")] = None
    function_call: Annotated[Any, refused("function calls are not supported; use tool_calls")] = None


class TextPart(Fields):
    """A piece of text."""

    type: Literal["text"]
    text: StrictStr


class RefusalPart(Fields):
    """A piece of an earlier answer that declined."""

    type: Literal["refusal"]
    refusal: StrictStr


def read_messages(messages: Sequence[object]) -> tuple[Turn, ...]:
    """The turns; raises `RequestError` with the place of what is wrong."""
    return tuple(_turn(message, f"messages[{number}]") for number, message in enumerate(messages))


def _turn(given: object, place: str) -> Turn:
    message = parse(Message, _without(given, MESSAGE_HINTS), place)
    _check_role(message, place)
    content = _content(message, place)
    return Turn(message.role, content, message.name, message.tool_calls, message.tool_call_id)


def _check_role(message: Message, place: str) -> None:
    """Members that belong to another role are refused: nothing is ignored."""
    only_of: dict[str, Role] = {"tool_calls": "assistant", "refusal": "assistant", "tool_call_id": "tool"}
    for field, role in only_of.items():
        if getattr(message, field) and message.role != role:
            path = f"{place}.{field}"
            raise RequestError("invalid_value", f"{path}: belongs to {role} messages only", path)
    if message.role == "tool" and message.tool_call_id is None:
        path = f"{place}.tool_call_id"
        raise RequestError("missing_required_parameter", f"{path}: is required on tool messages", path)


def _content(message: Message, place: str) -> str:
    """The content as one text."""
    path = f"{place}.content"
    if message.content is None:
        if not message.tool_calls and message.refusal is None:
            raise RequestError("missing_required_parameter", f"{path}: is required", path)
        return message.refusal or ""
    if isinstance(message.content, str):
        return message.content
    if not isinstance(message.content, list) or not message.content:
        reason = f"must be a string or a list of parts, not {found(message.content) if message.content else 'empty'}"
        raise RequestError("invalid_type", f"{path}: {reason}", path)
    return "\n".join(_part(part, message.role, f"{path}[{number}]") for number, part in enumerate(message.content))


def _part(given: object, role: Role, place: str) -> str:
    kind = given.get("type") if isinstance(given, dict) else None
    if isinstance(kind, str) and kind in UNREADABLE_PARTS:
        raise RequestError("unsupported_parameter", f"{place}: {kind} parts are not supported; send text", place)
    if kind == "refusal" and role == "assistant":
        return parse(RefusalPart, given, place).refusal
    return parse(TextPart, _without(given, PART_HINTS), place).text


def _without(value: object, hints: frozenset[str]) -> object:
    return {key: item for key, item in value.items() if key not in hints} if isinstance(value, dict) else value
