"""How `POST /v1/completions` writes a choice, whole and in pieces.

In: the engine's choices and deltas. Out: plain JSON values. Cost: linear in the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.protocol.generation import Asked
from app.protocol.logprobs import TextOffsets, completion_logprobs
from engine import Choice, Delta, TokenLogprobs

FINISH_REASONS: Mapping[str, str] = {"end_turn": "stop", "stop_sequence": "stop", "refusal": "content_filter"}


class CompletionWriter:
    """One for each request."""

    id_prefix = "cmpl"
    kind = chunk_kind = "text_completion"
    finish_reasons = FINISH_REASONS

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._offsets: dict[int, TextOffsets] = {}  # by choice

    def whole(self, choice: Choice) -> dict[str, Any]:
        """Text and log-probabilities, the prompt's first where it is repeated."""
        positions = [*self._of_prompt(choice.index, choice.prompt_logprobs), *_with_ids(choice.logprobs)]
        logprobs = self._logprobs(choice.index, positions)
        return {"text": self._prompt(choice.index) + choice.text, "logprobs": logprobs}

    def opening(self, index: int) -> dict[str, Any] | None:
        """The prompt, where it is to be repeated and its log-probabilities are not asked for."""
        if not self._asked.echo or self._asked.request.prompt_logprobs:
            return None
        return {"text": self._prompt(index), "logprobs": None}

    def piece(self, delta: Delta) -> dict[str, Any] | None:
        """Text and log-probabilities of a step, or of the prompt."""
        text, positions = delta.text, _with_ids(delta.logprobs)
        if delta.prompt_logprobs is not None:
            text = self._prompt(delta.index) + text
            positions = [*self._of_prompt(delta.index, delta.prompt_logprobs), *positions]
        if not text and not positions:
            return None
        return {"text": text, "logprobs": self._logprobs(delta.index, positions)}

    def ending(self) -> dict[str, Any]:
        """No text."""
        return {"text": "", "logprobs": None}

    def _prompt(self, index: int) -> str:
        return self._asked.echo[index // self._asked.request.n] if self._asked.echo else ""

    def _of_prompt(
        self, index: int, known: Sequence[TokenLogprobs | None] | None
    ) -> list[tuple[int, TokenLogprobs | None]]:
        if known is None:
            return []
        return list(zip(self._asked.request.prompts[index // self._asked.request.n], known, strict=True))

    def _logprobs(self, index: int, positions: Sequence[tuple[int, TokenLogprobs | None]]) -> dict[str, Any] | None:
        if index not in self._offsets:
            shown = "" if self._asked.request.prompt_logprobs else self._prompt(index)
            self._offsets[index] = TextOffsets(self._asked.model, len(shown))
        return completion_logprobs(positions, self._offsets[index], self._asked.model)


def _with_ids(known: Sequence[TokenLogprobs] | None) -> list[tuple[int, TokenLogprobs | None]]:
    return [(position.token_id, position) for position in known or ()]
