"""Chats with one server, several at once.

In: a server's address and bodies. Out: texts, token counts and the time that all of them took. Cost: a connection for
each client. Every request is `POST /v1/chat/completions` as OpenAI has it; what only one server knows is in its
`extra`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

TIMEOUT_S = 600.0
SHOWN = 300  # characters of an answer that is an error

Body = dict[str, Any]


class ServerError(ValueError):
    """A server that is not there, or that refuses what it is asked."""


@dataclass(frozen=True, slots=True)
class Server:
    """Whom to ask."""

    name: str
    url: str  # ends in /v1
    model: str
    extra: Mapping[str, Any] = field(default_factory=dict)  # fields for requests with a schema


@dataclass(frozen=True, slots=True)
class Answer:
    """One chat's outcome."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Turn:
    """What several clients of one server got."""

    elapsed_s: float
    answers: tuple[Answer, ...]  # in the order of what was asked

    @property
    def ms_per_record(self) -> float:
        """The time of all, by the number of answers."""
        return 1000 * self.elapsed_s / len(self.answers)


async def find_server(name: str, url: str, model: str | None = None) -> Server:
    """A server that listens; its first model where none is named.

    Raises
    ------
    ServerError
        When nobody answers, or not as OpenAI's API has it.
    """
    url = url.rstrip("/") if url.rstrip("/").endswith("/v1") else f"{url.rstrip('/')}/v1"
    async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
        try:
            response = await client.get(f"{url}/models")
            models = [entry["id"] for entry in response.raise_for_status().json()["data"]]
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
            raise ServerError(f"{url}/models does not list models: {error or type(error).__name__}") from error
    if model is None and not models:
        raise ServerError(f"{url}/models lists no model")
    return Server(name, url, model or models[0])


async def take_turn(server: Server, bodies: Sequence[Body], clients: int) -> Turn:
    """Have so many clients send these bodies, each the next one as soon as it has an answer.

    Raises
    ------
    ServerError
        When one of them gets no answer.
    """
    waiting, answers = iter(enumerate(bodies)), dict[int, Answer]()

    async def work() -> None:
        for number, body in waiting:
            answers[number] = await _ask(client, server, body)

    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, limits=limits) as client:
        started_s = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(clients, len(bodies))):
                    group.create_task(work())
        except* ServerError as errors:
            raise errors.exceptions[0] from None
        elapsed_s = time.perf_counter() - started_s
    return Turn(elapsed_s, tuple(answers[number] for number in range(len(bodies))))


async def _ask(client: httpx.AsyncClient, server: Server, body: Body) -> Answer:
    try:
        response = await client.post(f"{server.url}/chat/completions", json={"model": server.model, **body})
    except httpx.HTTPError as error:
        raise ServerError(f"{server.url} gives no answer: {error or type(error).__name__}") from error
    if response.status_code != httpx.codes.OK:
        raise ServerError(f"{server.url} answers {response.status_code}: {response.text[:SHOWN]}")
    answer = response.json()
    choice, usage = answer["choices"][0], answer["usage"]
    text = choice["message"]["content"] or ""
    return Answer(text, usage["prompt_tokens"], usage["completion_tokens"], choice["finish_reason"])
