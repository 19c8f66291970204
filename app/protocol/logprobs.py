r"""Log-probabilities in the two shapes of the OpenAI API, and tokens as text.

In: the engine's `TokenLogprobs`. Out: plain JSON values. Cost: linear in the alternatives. A token that is not valid
UTF-8 by itself is written `bytes:\x..`; one without bytes (the end token) by its name.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from app.protocol.tokens import token_bytes, token_text
from engine import LoadedModel, TokenLogprobs


class TextOffsets:
    """Where tokens begin in a text, in characters, while it grows token by token.

    A token that begins inside a character has the offset of that character.
    """

    def __init__(self, model: LoadedModel, start: int = 0) -> None:
        self._model, self._offset = model, start
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def next(self, token_id: int) -> int:
        """The offset of this token, which is appended."""
        offset = self._offset
        self._offset += len(self._decoder.decode(token_bytes(self._model, token_id)))
        return offset


def completion_logprobs(
    positions: Sequence[tuple[int, TokenLogprobs | None]], offsets: TextOffsets, model: LoadedModel
) -> dict[str, Any] | None:
    """Parallel lists, one entry for each (token id, what is known of it); None for no positions at all."""
    if not positions:
        return None
    return {
        "tokens": [token_text(model, token_id) for token_id, _ in positions],
        "token_logprobs": [known and known.logprob for _, known in positions],
        "top_logprobs": [known and _by_text(known, model) for _, known in positions],
        "text_offset": [offsets.next(token_id) for token_id, _ in positions],
    }


def chat_logprobs(positions: Sequence[TokenLogprobs], model: LoadedModel) -> dict[str, Any] | None:
    """`{content: […], refusal: null}`; None for no positions at all."""
    if not positions:
        return None
    content = [
        _entry(known.token_id, known.logprob, model)
        | {"top_logprobs": [_entry(token_id, logprob, model) for token_id, logprob in known.alternatives]}
        for known in positions
    ]
    return {"content": content, "refusal": None}


def _entry(token_id: int, logprob: float, model: LoadedModel) -> dict[str, Any]:
    data = token_bytes(model, token_id)
    return {"token": token_text(model, token_id), "logprob": logprob, "bytes": list(data) if data else None}


def _by_text(known: TokenLogprobs, model: LoadedModel) -> dict[str, float]:
    """The alternatives and the token itself; of several tokens with one text the likeliest."""
    found: dict[str, float] = {}
    for token_id, logprob in (*known.alternatives, (known.token_id, known.logprob)):
        text = token_text(model, token_id)
        found[text] = max(logprob, found.get(text, logprob))
    return found
