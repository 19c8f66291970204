"""How `POST /v1/chat/completions` writes a choice, whole and in pieces.

In: the engine's choices and deltas. Out: plain JSON values. Cost: linear in the text. The role stands in the first
piece only, since the SDK joins strings that are repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.protocol.generation import Asked
from app.protocol.logprobs import chat_logprobs
from engine import Choice, Delta

FINISH_REASONS: Mapping[str, str] = {"end_turn": "stop", "stop_sequence": "stop", "refusal": "stop"}


class ChatWriter:
    """One for each request."""

    id_prefix = "chatcmpl"
    kind, chunk_kind = "chat.completion", "chat.completion.chunk"
    finish_reasons = FINISH_REASONS

    def __init__(self, asked: Asked) -> None:
        self._model = asked.model

    def whole(self, choice: Choice) -> dict[str, Any]:
        """The message and its log-probabilities."""
        message = {"role": "assistant", "content": choice.text, "refusal": None}
        return {"message": message, "logprobs": chat_logprobs(choice.logprobs or (), self._model)}

    def opening(self, index: int) -> dict[str, Any] | None:  # noqa: ARG002  # all choices begin alike
        """The role."""
        return {"delta": {"role": "assistant", "content": "", "refusal": None}, "logprobs": None}

    def piece(self, delta: Delta) -> dict[str, Any] | None:
        """Content and log-probabilities of a step."""
        if not delta.text and not delta.logprobs:
            return None
        return {"delta": {"content": delta.text}, "logprobs": chat_logprobs(delta.logprobs or (), self._model)}

    def ending(self) -> dict[str, Any]:
        """No content."""
        return {"delta": {}, "logprobs": None}
