"""Whether a model can answer a request at all, whoever else is served.

In: a request and a model. Out: nothing, or the reason why not. Cost: linear in the prompts.
"""

from __future__ import annotations

from engine.errors import CacheTooSmallError, ContextLengthError
from engine.models import Model, caching
from engine.models.registry import LoadedModel
from engine.request import Request


def check_request(request: Request, loaded: LoadedModel) -> None:
    """Refuse what no waiting would help.

    Raises
    ------
    ContextLengthError, CacheTooSmallError
        For a prompt that the model has no room for.
    ValueError
        For a token that is not in the vocabulary.
    """
    longest = max(map(len, request.prompts), default=0)
    if longest > loaded.model.context_length:
        raise _too_long(longest, loaded.model)
    size, biased = len(loaded.tokenizer.vocabulary), {token_id for token_id, _ in request.sampling.logit_bias}
    for what, ids in (("the prompt", set().union(*request.prompts)), ("logit_bias", biased)):
        if ids and not 0 <= min(ids) <= max(ids) < size:
            raise ValueError(f"{what} has a token outside the vocabulary of {size}")


def _too_long(prompt_tokens: int, model: Model) -> Exception:
    """The reason why a prompt is too long for a model."""
    cached = caching(model)
    if cached is not None and prompt_tokens >= cached.cache.capacity_tokens:
        size = cached.cache.token_bytes
        return CacheTooSmallError(prompt_tokens, (prompt_tokens + 1) * size, cached.cache.capacity_tokens * size)
    return ContextLengthError(prompt_tokens, model.context_length)
