"""`/tokenize` and `/detokenize`: the ids that the generating routes would read, and back."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient


@pytest.fixture
def begun(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose texts begin with a token of their own."""
    monkeypatch.setattr(engine.models["tiny"].tokenizer, "begin_ids", (7,))


@pytest.mark.usefixtures("begun")
@pytest.mark.parametrize(("fields", "ids"), [({}, [7, 0]), ({"add_special_tokens": False}, [0])])
def test_what_texts_begin_with(client: TestClient, fields: dict[str, Any], ids: list[int]) -> None:
    """It is there unless it is not wanted."""
    answer = client.post("/tokenize", json={"prompt": "a"} | fields).json()
    assert {"tokens": ids, "count": len(ids), "max_model_len": 1000} == answer


@pytest.mark.usefixtures("begun")
@pytest.mark.parametrize("prompt", ["abc", "", "é\U0001f600b"])
def test_as_the_completions_route_reads_it(client: TestClient, engine: Any, prompt: str) -> None:
    """The same ids."""
    client.post("/v1/completions", json={"model": "tiny", "prompt": prompt})
    assert engine.requests[0][1].prompts == (tuple(client.post("/tokenize", json={"prompt": prompt}).json()["tokens"]),)


def test_as_the_chat_route_reads_it(client: TestClient, engine: Any) -> None:
    """The same ids for messages."""
    messages = [{"role": "user", "content": "abc"}]
    client.post("/v1/chat/completions", json={"model": "tiny", "messages": messages})
    answer = client.post("/tokenize", json={"messages": messages}).json()
    assert engine.requests[0][1].prompts == (tuple(answer["tokens"]),)


def test_back_again(client: TestClient) -> None:
    """Ids are text again, 1.0 being one."""
    assert {"prompt": "abc"} == client.post("/detokenize", json={"tokens": [0, 1.0, 2]}).json()


@pytest.mark.parametrize("token_id", [-1, 50, 10**30])
def test_outside_the_vocabulary(client: TestClient, token_id: int) -> None:
    """An id that there is not is named."""
    response = client.post("/detokenize", json={"tokens": [0, token_id]})
    assert (400, "tokens") == (response.status_code, response.json()["error"]["param"])
    assert f"token id {token_id} is outside" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": "a"}),
        ("/detokenize", {"tokens": [1]}),
        ("/v1/schemas", {"schema": True}),
        ("/v1/completions", {"model": "tiny", "prompt": ""}),
        ("/v1/chat/completions", {"model": "tiny", "messages": [{"role": "user", "content": "a"}]}),
    ],
)
def test_hints_are_taken_on_every_route(client: TestClient, path: str, body: dict[str, Any]) -> None:
    """Vendors' fields have no effect; others are refused."""
    assert 200 == client.post(path, json=body | {"user": "a", "metadata": {"b": 1}, "store": False}).status_code
    assert "nosuch" == client.post(path, json=body | {"nosuch": 1}).json()["error"]["param"]
