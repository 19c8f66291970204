"""An engine that answers at once with what the test told it, a client on the app around it, and the command line."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient

from app.cli import main
from app.main import create_app
from app.settings import Settings
from engine import (
    Choice,
    Delta,
    Engine,
    EngineStats,
    Ready,
    Request,
    Result,
    SchemaUse,
    StepCounters,
    StreamEvent,
    Timings,
)
from schemas_cache import StoredSchema

Run = Callable[..., tuple[int, str, str]]
ALPHABET = 'abcdefghijklmnopqrstuvwxyz0123456789{}[]":, .\n'
SPECIAL_TOKENS = ("<|turn|>", "<|end|>")


class CharacterVocabulary:
    """One token for each character, one for the first byte of `é` and one for the second, two special ones."""

    token_bytes = (*(character.encode() for character in ALPHABET), b"\xc3", b"\xa9", b"", b"")

    def __len__(self) -> int:
        return len(self.token_bytes)


class CharacterTokenizer:
    """Encodes with that vocabulary."""

    vocabulary = CharacterVocabulary()
    special_tokens = SPECIAL_TOKENS
    begin_ids: tuple[int, ...] = ()

    def encode(self, text: str, special: bool = False) -> list[int]:
        """The ids, unknown characters left out; special tokens only where they are meant."""
        ids = []
        while text:
            found = next((name for name in SPECIAL_TOKENS if special and text.startswith(name)), None)
            if found:
                ids.append(len(self.vocabulary) - 2 + SPECIAL_TOKENS.index(found))
            elif text[0] in ALPHABET:
                ids.append(ALPHABET.index(text[0]))
            text = text[len(found or "x") :]
        return ids

    def decode(self, ids: list[int]) -> str:
        """The text."""
        return b"".join(self.vocabulary.token_bytes[token_id] for token_id in ids).decode("utf-8", "replace")

    def token_name(self, token_id: int) -> str:
        """The name of a special token."""
        return SPECIAL_TOKENS[token_id - len(self.vocabulary) + 2]


class FakeWeights:
    """What the app reads of a model itself."""

    context_length = 1000


@dataclass
class FakeModel:
    """What the app reads of a loaded model."""

    name: str
    tokenizer: CharacterTokenizer = field(default_factory=CharacterTokenizer)
    model: FakeWeights = field(default_factory=FakeWeights)
    chat_template: str | None = None
    bos_token: str = ""
    eos_token: str = "<|end|>"  # noqa: S105


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


class FakeCache:
    """Schemas in the cache."""

    def __init__(self) -> None:
        self.stored: list[StoredSchema] = []

    def entries(self) -> list[StoredSchema]:
        """All of them."""
        return self.stored

    def entry(self, schema_hash: str) -> StoredSchema | None:
        """The first of this hash."""
        return next((entry for entry in self.stored if entry.schema_hash == schema_hash), None)

    def delete(self, schema_hash: str) -> int:
        """Remove all of this hash."""
        before = len(self.stored)
        self.stored = [entry for entry in self.stored if entry.schema_hash != schema_hash]
        return before - len(self.stored)


class FakeEngine:
    """Has the engine's surface; `requests` is what it was asked."""

    def __init__(self) -> None:
        self.cache = FakeCache()
        self.models = {name: FakeModel(name) for name in ("tiny", "org/tiny")}
        self.ready = False
        self.requests: list[tuple[str, Request]] = []
        self.cancelled = 0
        self.answer: Callable[[int], Choice] = one_choice
        self.use = SchemaUse("ab" * 32, "miss", 12.5, 9, (), "full")
        self.error: Exception | None = None
        self.hangs = False
        self.deltas: list[Delta] | None = None  # of a stream; None: the text of each choice in two pieces
        self.pauses: dict[int, float] = {}  # seconds before the nth event of a stream
        self.streamed = 0  # streams of which all was taken
        self.error_after: int | None = None  # events of a stream before the error; None: before any

    @property
    def stats(self) -> EngineStats:
        """Figures that tell themselves apart."""
        counts = {"submitted": 5, "completed": 3, "failed": 1, "cancelled": 2, "refused": 4}
        seconds = {"forward_s": 1.5, "mask_s": 0.25, "sample_s": 0.125, "advance_s": 0.0625}
        counters = StepCounters(steps=8, forced_tokens=9, interventions=10, **seconds)
        return EngineStats(queued=6, running=7, steps={"tiny": counters}, **counts)

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
        return self._result(request)

    async def stream(self, model_name: str, request: Request) -> AsyncIterator[StreamEvent]:
        """The scripted events."""
        self.requests.append((model_name, request))
        for number, event in enumerate(self._events(request)):
            await asyncio.sleep(self.pauses.get(number, 0))
            if self.error and number == (self.error_after or 0):
                raise self.error
            if self.hangs and number:
                await self._hang()
            yield event
        self.streamed += 1

    def _events(self, request: Request) -> Iterator[StreamEvent]:
        result = self._result(request)
        yield Ready(result.schema)
        halves = [
            Delta(choice.index, text, ()) for choice in result.choices for text in (choice.text[:2], choice.text[2:])
        ]
        yield from halves if self.deltas is None else self.deltas
        yield from result.choices
        yield result

    def _result(self, request: Request) -> Result:
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


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client on an app with a real engine and the character model."""
    settings = Settings(home=tmp_path_factory.mktemp("home"), model=("katagami-char",), compile_workers=1)
    app = create_app(settings)
    with TestClient(app) as client:
        while not app.state.gate.loaded_at:
            time.sleep(0.01)
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


@pytest.fixture
def katagami(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run `katagami` with these arguments, at home in `tmp_path`: exit code, standard output, standard error."""
    monkeypatch.setenv("KATAGAMI_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["katagami", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return call
