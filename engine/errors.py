"""What can go wrong between a request and its result, one class per cause; each ends its own request and no other.

Every class carries its facts as fields, so that a server maps them to answers without reading text. Errors of the
schema itself are those of `schemas_cache`.
"""

from __future__ import annotations

from schemas_cache import DeadStateError, KatagamiError


class UnknownModelError(KatagamiError):
    """No model of that name is loaded."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        self.name, self.known = name, known
        super().__init__(f'no model "{name}" is loaded; there is {", ".join(known) or "none"}')


class QueueFullError(KatagamiError):
    """As many requests wait as may; `retry_after_s` (seconds) is an estimate of when one will have left."""

    def __init__(self, retry_after_s: float) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(f"the queue is full; try again in about {max(1, round(retry_after_s))} s")


class ContextLengthError(KatagamiError):
    """The prompt alone has more tokens than the model's context."""

    def __init__(self, prompt_tokens: int, context_length: int) -> None:
        self.prompt_tokens, self.context_length = prompt_tokens, context_length
        super().__init__(f"the prompt has {prompt_tokens} tokens; the model's context has {context_length}")


class CacheTooSmallError(KatagamiError):
    """The prompt would fill the model's KV cache, of `capacity_bytes`, all by itself."""

    def __init__(self, prompt_tokens: int, needed_bytes: int, capacity_bytes: int) -> None:
        self.prompt_tokens, self.needed_bytes, self.capacity_bytes = prompt_tokens, needed_bytes, capacity_bytes
        need = f"the prompt has {prompt_tokens} tokens and needs {needed_bytes:,} bytes of KV cache with an answer"
        super().__init__(f"{need}; the model's cache has {capacity_bytes:,}")


class BudgetBelowMinimumError(KatagamiError):
    """The request's limit has no room for any document of its schema, and it asked to be told so."""

    def __init__(self, max_tokens: int, minimum_tokens: int) -> None:
        self.max_tokens, self.minimum_tokens = max_tokens, minimum_tokens
        told = f"there is room for {max_tokens} tokens; the shortest document takes {minimum_tokens}"
        super().__init__(f"{told}: ask for as many, or have the text cut with on_limit close or truncate")


class DeadlineExceededError(KatagamiError):
    """The request was not done in the time it had, `deadline_s` seconds from its submission."""

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        super().__init__(f"the request was not done within {deadline_s:g} s, the longest that one may take here")


class RowDeadError(DeadStateError):
    """A sequence of the request reached a place where no token is allowed; `index` says which choice it was."""

    def __init__(self, index: int, pointer: str) -> None:
        super().__init__(pointer)
        self.index = index


class EngineFailedError(KatagamiError):
    """A fault of the engine or of the model (a bug, logits that are not numbers); not the request's."""


class ShuttingDownError(KatagamiError):
    """The engine takes no more requests, or stopped before this one was done."""

    def __init__(self) -> None:
        super().__init__("the engine is shutting down")


def unexpected(error: BaseException, doing: str = "") -> EngineFailedError:
    """What is told of an exception that nobody foresaw, after the words for what was being done."""
    return EngineFailedError(f"{doing}{type(error).__name__}: {error}")
