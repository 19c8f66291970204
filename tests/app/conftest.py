"""An engine that answers at once with what the test told it, and a client on the app around it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient

from app.main import create_app
from app.settings import Settings
from engine import Choice, Engine, Request, Result, SchemaUse, Timings

ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789{}[]":, .'


class CharacterTokenizer:
    """One token for each character."""

    vocabulary = ALPHABET

    def encode(self, text: str) -> list[int]:
        """The ids, unknown characters left out."""
        return [ALPHABET.index(character) for character in text if character in ALPHABET]


class FakeWeights:
    """What the app reads of a model itself."""

    context_length = 1000


@dataclass
class FakeModel:
    """What the app reads of a loaded model."""

    name: str
    tokenizer: CharacterTokenizer = field(default_factory=CharacterTokenizer)
    model: FakeWeights = field(default_factory=FakeWeights)


def one_choice(index: int, text: str = "", **changes: Any) -> Choice:
    """A choice that came to its end, or what the test makes of it."""
    facts: dict[str, Any] = {
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "complete": True,
        "model_calls": 1,
        "forced_tokens": 0,
    }
    return Choice(index=index, text=text, token_ids=(), **(facts | changes))


class FakeEngine:
    """Has the engine's surface; `requests` is what it was asked."""

    def __init__(self) -> None:
        self.models = {name: FakeModel(name) for name in ("tiny", "org/tiny")}
        self.ready = False
        self.requests: list[tuple[str, Request]] = []
        self.cancelled = 0
        self.answer: Callable[[int], Choice] = one_choice
        self.use = SchemaUse("ab" * 32, "miss", 12.5, 9, (), "full")
        self.error: Exception | None = None
        self.hangs = False

    def start(self) -> None:
        """Load nothing."""
        self.ready = True

    def stop(self) -> None:
        """Stop nothing."""
        self.ready = False

    async def generate(self, model_name: str, request: Request) -> Result:
        """The scripted answer."""
        self.requests.append((model_name, request))
        if self.error:
            raise self.error
        if self.hangs:
            await self._hang()
        choices = tuple(self.answer(index) for index in range(len(request.prompts) * request.n))
        use = self.use if request.source else None
        prompt_tokens = sum(len(prompt) for prompt in request.prompts)
        return Result(choices, prompt_tokens, 7 * len(choices), use, Timings(1.0, 2.0, 3.0))

    async def _hang(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled += 1


@pytest.fixture
def engine() -> FakeEngine:
    """A fresh fake."""
    return FakeEngine()


@pytest.fixture
def client(engine: FakeEngine, tmp_path: Any) -> Iterator[TestClient]:
    """A client on a ready server; a bug in the app shows as status 500, as on a real server."""
    settings = Settings(home=tmp_path, body_limit_bytes=100_000)
    app = create_app(settings, cast("Engine", engine))
    with TestClient(app, raise_server_exceptions=False) as client:
        while not app.state.gate.loaded_at:
            time.sleep(0.001)
        yield client


Post = Callable[..., Any]


@pytest.fixture
def post(client: TestClient) -> Post:
    """Post a completion for model `tiny` and prompt `a`, with the test's fields."""

    def send(**fields: Any) -> Any:
        return client.post("/v1/completions", json={"model": "tiny", "prompt": "a"} | fields)

    return send


@pytest.fixture
def refusal(post: Post) -> Post:
    """Post a completion that must be refused; its error object."""

    def send(**fields: Any) -> Any:
        response = post(**fields)
        assert (400, "invalid_request_error") == (response.status_code, response.json()["error"]["type"])
        return response.json()["error"]

    return send


@pytest.fixture
def make_choice() -> Callable[..., Choice]:
    """`one_choice`, for tests."""
    return one_choice
