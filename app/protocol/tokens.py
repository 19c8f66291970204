"""Token ids of a request, checked; and tokens as people read them.

In: token ids. Out: the same, or their bytes, or texts that name them. Cost: constant for each.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import RequestError
from engine import LoadedModel


def text_ids(text: str, model: LoadedModel) -> tuple[int, ...]:
    """The ids of a text as a prompt, after what all texts for the model begin with."""
    return (*model.tokenizer.begin_ids, *model.tokenizer.encode(text))


def checked_ids(ids: Sequence[int], model: LoadedModel, field: str) -> tuple[int, ...]:
    """The ids, all of them in the vocabulary; raises `RequestError` that names the field."""
    size = len(model.tokenizer.vocabulary)
    outside = next((token_id for token_id in ids if not 0 <= token_id < size), None)
    if outside is not None:
        reason = f"token id {outside} is outside the vocabulary of {size}"
        raise RequestError("invalid_value", f"{field}: {reason}", field)
    return tuple(ids)


def token_bytes(model: LoadedModel, token_id: int) -> bytes:
    """What the token adds to a text; empty for special tokens."""
    return model.tokenizer.vocabulary.token_bytes[token_id]


def token_text(model: LoadedModel, token_id: int) -> str:
    r"""The token's text, `bytes:\x..` for one that is not UTF-8 by itself, the name of one without bytes."""
    data = token_bytes(model, token_id)
    if not data:
        return model.tokenizer.token_name(token_id)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
