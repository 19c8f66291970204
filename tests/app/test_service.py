"""Models, health, readiness; and what happens at the start, at the end, and when a client goes away."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any, cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app.errors import ModelLoadingError
from app.main import create_app
from app.server import listen
from app.settings import Settings
from engine import Engine

BODY = {"model": "tiny", "prompt": "a"}


def test_model_object_satisfies_both_sdks(client: TestClient) -> None:
    """One object has the fields of OpenAI's and of Anthropic's model."""
    cast("FastAPI", client.app).state.gate.loaded_at = 1_700_000_000
    model = client.get("/v1/models/tiny").json()
    expected = {
        "id": "tiny",
        "object": "model",
        "type": "model",
        "created": 1_700_000_000,
        "created_at": "2023-11-14T22:13:20Z",
        "owned_by": "katagami",
        "display_name": "tiny",
        "lifecycle": "active",
        "max_input_tokens": 1000,
        "max_tokens": 1000,
        "capabilities": {"structured_outputs": {"supported": True}},
    }
    assert expected == model


def test_model_list(client: TestClient) -> None:
    """All models, with the ends of the page."""
    body = client.get("/v1/models").json()
    assert ["tiny", "org/tiny"] == [model["id"] for model in body["data"]]
    assert ("list", False, "tiny", "org/tiny") == tuple(
        body[key] for key in ("object", "has_more", "first_id", "last_id")
    )


def test_model_id_with_a_slash(client: TestClient) -> None:
    """A slash in an id may be written plainly or percent-encoded."""
    for path in ("/v1/models/org/tiny", "/v1/models/org%2Ftiny"):
        assert "org/tiny" == client.get(path).json()["id"]


def test_health_and_version(client: TestClient) -> None:
    """Plain answers without any key."""
    assert (200, 200, 200) == tuple(client.get(path).status_code for path in ("/health", "/ready", "/version"))


def test_loading(client: TestClient, engine: Any) -> None:
    """Until the models are loaded the server lives, is not ready, and asks work to come again."""
    engine.ready = False
    assert 200 == client.get("/health").status_code
    for response in (
        client.get("/ready"),
        client.get("/v1/models"),
        client.post("/v1/completions", json=BODY),
    ):
        assert (503, "model_loading") == (response.status_code, response.json()["error"]["code"])
        assert "1" == response.headers["retry-after"]


def test_announced_before_any_work_is_taken(engine: Any, tmp_path: Any) -> None:
    """Until what follows the loading is done, requests are asked to come again."""
    app = create_app(Settings(home=tmp_path), cast("Engine", engine))
    gate = app.state.gate
    loaded: list[bool] = []

    def announce() -> None:
        with pytest.raises(ModelLoadingError):
            gate.check_open()
        loaded.append(engine.ready)

    gate.on_loaded = announce
    asyncio.run(gate.load())
    gate.check_open()
    assert [True] == loaded


def test_end_while_the_models_are_loaded(engine: Any, tmp_path: Any) -> None:
    """The server's end does not wait for models that take long to load."""
    begun, go = threading.Event(), threading.Event()

    def load() -> None:
        begun.set()
        assert go.wait(20)

    engine.start = load
    with TestClient(create_app(Settings(home=tmp_path), cast("Engine", engine))) as client:
        assert begun.wait(20)
        assert "model_loading" == client.get("/ready").json()["error"]["code"]
    assert not go.is_set()
    go.set()


def test_draining(client: TestClient) -> None:
    """After the signal to stop, nothing new is taken."""
    cast("FastAPI", client.app).state.gate.draining = True
    for response in (client.get("/ready"), client.post("/v1/completions", json=BODY)):
        assert (503, "shutting_down") == (response.status_code, response.json()["error"]["code"])
    assert 200 == client.get("/health").status_code


def exchange(app: FastAPI, receive: Any) -> list[dict[str, Any]]:
    """Run one completion by hand, with this source of client events; the messages that came back."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def main() -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/completions",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }
        await asyncio.wait_for(app(scope, receive, send), timeout=10)

    asyncio.run(main())
    return sent


def hanging_app(engine: Any, tmp_path: Any) -> FastAPI:
    """A ready app whose engine never answers."""
    engine.ready = engine.hangs = True
    app = create_app(Settings(home=tmp_path), cast("Engine", engine))
    app.state.gate.loaded_at = 1
    return app


def test_client_gone_cancels_the_work(engine: Any, tmp_path: Any) -> None:
    """When the connection closes, the engine's work is cancelled and nothing is left running."""
    app = hanging_app(engine, tmp_path)
    events: list[dict[str, Any]] = [
        {"type": "http.request", "body": b'{"model": "tiny", "prompt": "a"}', "more_body": False},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return events.pop(0)

    exchange(app, receive)
    assert (1, 0) == (engine.cancelled, app.state.gate.running)


def test_end_of_grace_answers_what_still_runs(engine: Any, tmp_path: Any) -> None:
    """A request that outlives the grace is cancelled and told 503."""
    app = hanging_app(engine, tmp_path)
    events: list[dict[str, Any]] = [
        {"type": "http.request", "body": b'{"model": "tiny", "prompt": "a"}', "more_body": False}
    ]

    async def receive() -> dict[str, Any]:
        if events:
            return events.pop(0)
        app.state.gate.expire()
        await asyncio.Event().wait()
        raise AssertionError

    sent = exchange(app, receive)
    assert (503, 1) == (sent[0]["status"], engine.cancelled)


def test_client_gone_while_sending(engine: Any, tmp_path: Any) -> None:
    """A client that goes away before its body is whole leaves no trace in the engine."""
    app = hanging_app(engine, tmp_path)
    events: list[dict[str, Any]] = [
        {"type": "http.request", "body": b'{"model"', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return events.pop(0)

    exchange(app, receive)
    assert [] == engine.requests


def test_answers_are_not_held_back() -> None:
    """Accepted connections send small packets at once: without it each answer takes 40 ms more."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
