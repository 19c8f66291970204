"""Streams byte by byte: the order of events, what they hold, silence, and errors before and after the headers."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app import streams
from engine import ContextLengthError, Delta, EngineFailedError, ShuttingDownError, TokenLogprobs
from schemas_cache import Finding, SchemaError

FORMAT = {"type": "json_object"}
HEADER = '"created":0,"model":"tiny","system_fingerprint":"fp"'
TEXT = f'data: {{"id":"cmpl-0","object":"text_completion",{HEADER},"choices":'
CHAT = f'data: {{"id":"chatcmpl-0","object":"chat.completion.chunk",{HEADER},"choices":'
END = '"finish_reason":"stop","stop_reason":"end_turn","stop_sequence":null'
PROOF = '"structured":{"enforced":"full","complete":true,"valid":true,"closed_early":false}'
USED = f'"structured":{{"schema_hash":"{"ab" * 32}","cache":"miss","compile_ms":12.5,"minimum_tokens":9,"warnings":[]}}'
USAGE = (
    '"usage":{"prompt_tokens":1,"completion_tokens":14,"total_tokens":15,'
    '"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}'
)


def timeless(text: str) -> str:
    """The text without what is new in each answer."""
    text = re.sub(r"cmpl-[0-9a-f]{32}", "cmpl-0", text)
    return re.sub(r'"created":\d+', '"created":0', re.sub(r'"fp_[0-9a-f]+"', '"fp"', text))


@pytest.fixture
def stream(client: TestClient) -> Any:
    """Post a streamed completion with the test's fields, or a chat where they have messages."""

    def send(**fields: Any) -> Any:
        path = "/v1/chat/completions" if "messages" in fields else "/v1/completions"
        prompt = {} if "messages" in fields else {"prompt": "a"}
        return client.post(path, json={"model": "tiny", "stream": True} | prompt | fields)

    return send


def chunks_of(response: Any) -> list[Any]:
    """The JSON of all events but the last, which has to be `[DONE]`."""
    *events, done, rest = response.text.split("\n\n")
    assert ("data: [DONE]", "") == (done, rest)
    return [json.loads(event.removeprefix("data: ")) for event in events]


def test_completion(stream: Any, engine: Any, make_choice: Any) -> None:
    """Pieces, one end for each choice, what is known of the schema on the last of them, usage, the end."""
    engine.answer = lambda index: make_choice(index, '{"b": 1}')
    response = stream(n=2, response_format=FORMAT, stream_options={"include_usage": True})
    assert [
        TEXT + '[{"index":0,"text":"{\\"","logprobs":null,"finish_reason":null}],"usage":null}',
        TEXT + '[{"index":0,"text":"b\\": 1}","logprobs":null,"finish_reason":null}],"usage":null}',
        TEXT + '[{"index":1,"text":"{\\"","logprobs":null,"finish_reason":null}],"usage":null}',
        TEXT + '[{"index":1,"text":"b\\": 1}","logprobs":null,"finish_reason":null}],"usage":null}',
        TEXT + f'[{{"index":0,"text":"","logprobs":null,{END},{PROOF}}}],"usage":null}}',
        TEXT + f'[{{"index":1,"text":"","logprobs":null,{END},{PROOF}}}],"usage":null,{USED}}}',
        TEXT + f"[],{USAGE}}}",
        "data: [DONE]",
        "",
    ] == timeless(response.text).split("\n\n")


def test_chat(stream: Any, engine: Any, make_choice: Any) -> None:
    """The role comes once for each choice and before all content; the end has an empty delta."""
    engine.answer = lambda index: make_choice(index, "héy")
    role = '"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null'
    response = stream(n=2, messages=[{"role": "user", "content": "a"}])
    assert [
        CHAT + f'[{{"index":0,{role}}}]}}',
        CHAT + f'[{{"index":1,{role}}}]}}',
        CHAT + '[{"index":0,"delta":{"content":"hé"},"logprobs":null,"finish_reason":null}]}',
        CHAT + '[{"index":0,"delta":{"content":"y"},"logprobs":null,"finish_reason":null}]}',
        CHAT + '[{"index":1,"delta":{"content":"hé"},"logprobs":null,"finish_reason":null}]}',
        CHAT + '[{"index":1,"delta":{"content":"y"},"logprobs":null,"finish_reason":null}]}',
        CHAT + f'[{{"index":0,"delta":{{}},"logprobs":null,{END},"structured":null}}]}}',
        CHAT + f'[{{"index":1,"delta":{{}},"logprobs":null,{END},"structured":null}}],"structured":null}}',
        "data: [DONE]",
        "",
    ] == timeless(response.text).split("\n\n")


def test_headers(stream: Any) -> None:
    """The type, no buffering on the way, and what is known of the schema and of the time so far."""
    response = stream(response_format=FORMAT)
    assert "text/event-stream" == response.headers["content-type"]
    assert ("no-cache", "no") == (response.headers["cache-control"], response.headers["x-accel-buffering"])
    assert ("ab" * 32, "miss") == (response.headers["x-schema-hash"], response.headers["x-schema-cache"])
    assert "compile;dur=12.500" == response.headers["server-timing"]
    assert response.headers["x-request-id"] == response.headers["request-id"]


def test_echo(stream: Any, engine: Any, make_choice: Any) -> None:
    """The prompt is the first piece of each choice, also where the prompt's log-probabilities come with it."""
    engine.answer = lambda index: make_choice(index, "xyz")
    chunks = chunks_of(stream(prompt=["A-", "c"], echo=True))
    assert [(0, "A-"), (1, "c"), (0, "xy"), (0, "z"), (1, "xy"), (1, "z"), (0, ""), (1, "")] == [
        (chunk["choices"][0]["index"], chunk["choices"][0]["text"]) for chunk in chunks
    ]
    known = TokenLogprobs(1, -1.0, ())
    engine.deltas = [Delta(0, "", (), prompt_logprobs=(None, known)), Delta(0, "b", (1,), (known,))]
    first, second, _ = (chunk["choices"][0] for chunk in chunks_of(stream(prompt="ab", echo=True, logprobs=0)))
    assert ("ab", ["a", "b"], [None, -1.0], [0, 1]) == (
        first["text"],
        first["logprobs"]["tokens"],
        first["logprobs"]["token_logprobs"],
        first["logprobs"]["text_offset"],
    )
    assert ("b", [2]) == (second["text"], second["logprobs"]["text_offset"])


def test_steps_without_anything_to_show(stream: Any, engine: Any) -> None:
    """A step inside a character is no event; with log-probabilities it is one, and its offset is the character's."""
    steps = [(46, ""), (47, "é"), (2, "c")]
    engine.deltas = [Delta(0, text, (token,)) for token, text in steps]
    assert ["é", "c", ""] == [chunk["choices"][0]["text"] for chunk in chunks_of(stream())]
    engine.deltas = [Delta(0, text, (token,), (TokenLogprobs(token, -1.0, ()),)) for token, text in steps]
    pieces = [chunk["choices"][0] for chunk in chunks_of(stream(logprobs=0))[:-1]]
    assert [[0], [0], [1]] == [piece["logprobs"]["text_offset"] for piece in pieces]
    chat = chunks_of(stream(messages=[{"role": "user", "content": "a"}], logprobs=True))[1:-1]
    assert [[195], [169], [99]] == [chunk["choices"][0]["logprobs"]["content"][0]["bytes"] for chunk in chat]


def test_truncated_text(stream: Any, engine: Any, make_choice: Any) -> None:
    """The last chunk that ends a choice warns of a budget below the minimum."""
    engine.answer = lambda index: make_choice(index, "{", stop_reason="max_tokens", complete=False)
    last = chunks_of(stream(response_format=FORMAT, max_tokens=3))[-1]
    assert "max_tokens 3 is below 9" in last["structured"]["warnings"][0]["reason"]
    assert (False, None) == tuple(last["choices"][0]["structured"][key] for key in ("complete", "valid"))


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (SchemaError([Finding("#/a", "not", "no")]), 400, "invalid_json_schema"),
        (ContextLengthError(5, 3), 400, "context_length_exceeded"),
        (ShuttingDownError(), 503, "shutting_down"),
        (RuntimeError("a bug"), 500, "engine_error"),
    ],
)
def test_errors_before_the_headers(stream: Any, engine: Any, error: Exception, status: int, code: str) -> None:
    """What goes wrong before anything was sent has a status of its own."""
    engine.error = error
    response = stream(response_format=FORMAT)
    assert (status, code) == (response.status_code, response.json()["error"]["code"])


@pytest.mark.parametrize(
    ("error", "code"), [(EngineFailedError("a bug"), "engine_error"), (RuntimeError("a bug"), "engine_error")]
)
def test_errors_after_the_headers(
    stream: Any, engine: Any, make_choice: Any, caplog: pytest.LogCaptureFixture, error: Exception, code: str
) -> None:
    """Later errors are the last event, with the request's id in the message and without `[DONE]`; the log has more."""
    engine.answer = lambda index: make_choice(index, "abcd")
    engine.error, engine.error_after, engine.pauses = error, 2, {2: 0.01}
    response = stream()
    *_, last, rest = response.text.split("\n\n")
    told = json.loads(last.removeprefix("data: "))["error"]
    assert (200, "", code) == (response.status_code, rest, told["code"])
    assert response.headers["x-request-id"] in told["message"]
    assert "DONE" not in response.text
    assert "a bug" in caplog.text


def test_every_error_names_its_request(stream: Any, engine: Any) -> None:
    """Also one whose own words do not."""
    engine.error, engine.error_after, engine.pauses = SchemaError([Finding("#/a", "not", "no")]), 1, {1: 0.01}
    response = stream(response_format=FORMAT)
    (told,) = (json.loads(event[6:]) for event in response.text.split("\n\n") if event)
    assert told["error"]["message"].endswith(f"(request {response.headers['x-request-id']})")
    assert [{"pointer": "#/a", "keyword": "not", "reason": "no", "hint": ""}] == told["error"]["errors"]


def test_slow_schema(stream: Any, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers do not wait for ever: comments come while the schema is compiled, and its error in the stream."""
    monkeypatch.setattr(streams, "HEADERS_WAIT_S", 0.02)
    monkeypatch.setattr(streams, "SILENCE_S", 0.02)
    engine.pauses, engine.error = {0: 0.1}, SchemaError([Finding("#/a", "not", "no")])
    response = stream(response_format=FORMAT)
    first, second, *_, last, _ = response.text.split("\n\n")
    assert (": keep-alive", ": keep-alive") == (first, second)
    assert "invalid_json_schema" == json.loads(last.removeprefix("data: "))["error"]["code"]
    assert 200 == response.status_code
    assert "x-schema-hash" not in response.headers


def test_silence(stream: Any, engine: Any, make_choice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a request waits, comments come between its events, and change nothing about them."""
    monkeypatch.setattr(streams, "SILENCE_S", 0.02)
    engine.pauses, engine.answer = {1: 0.1}, lambda index: make_choice(index, "abcd")
    events = stream().text.split("\n\n")
    kept = [event for event in events if event != ": keep-alive"]
    assert len(kept) < len(events)
    assert ["ab", "cd", ""] == [json.loads(event[6:])["choices"][0]["text"] for event in kept[:3]]


def test_steps_without_anything_to_show_are_silence(stream: Any, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that writes nothing that can be shown is as silent as one that waits."""
    monkeypatch.setattr(streams, "SILENCE_S", 0.05)
    engine.deltas = [Delta(0, "", (0,))] * 20
    engine.pauses = dict.fromkeys(range(1, 21), 0.01)
    assert ": keep-alive" in stream().text.split("\n\n")


class Connection:
    """A client whose end of the connection the test holds."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.body = json.dumps({"model": "tiny", "prompt": "a", "stream": True} | fields).encode()
        self.sent: list[bytes] = []
        self.gone, self.may_send = asyncio.Event(), asyncio.Event()
        self.may_send.set()
        self._asked = False

    async def receive(self) -> Any:
        """The body, and then the end of the connection once the test says so."""
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        """As a server does: waits while the client does not read."""
        await self.may_send.wait()
        self.sent.append(message.get("body", b""))

    async def run(self, app: FastAPI) -> None:
        """One exchange."""
        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"", "headers": headers}
        await app(scope, self.receive, self.send)


def test_client_gone(client: TestClient, engine: Any) -> None:
    """A client that goes away ends the request, in the middle of the stream."""

    async def leave() -> None:
        connection = Connection({})
        running = asyncio.ensure_future(connection.run(cast("FastAPI", client.app)))
        while not engine.requests:
            await asyncio.sleep(0.001)
        connection.gone.set()
        await asyncio.wait_for(running, 5)

    engine.hangs = True
    cast("Any", client.portal).call(leave)
    assert 1 == engine.cancelled


def test_end_of_the_grace(client: TestClient, engine: Any) -> None:
    """A stream that runs when the grace is over ends with an error that says why."""

    async def run_on() -> bytes:
        connection = Connection({})
        app = cast("FastAPI", client.app)
        running = asyncio.ensure_future(connection.run(app))
        while not connection.sent:
            await asyncio.sleep(0.001)
        app.state.gate.expire()
        await asyncio.wait_for(running, 5)
        return b"".join(connection.sent)

    engine.hangs = True
    assert b'"code":"shutting_down"' in cast("Any", client.portal).call(run_on)
    assert 1 == engine.cancelled


def test_reader_who_stalls(client: TestClient, engine: Any) -> None:
    """The engine's events are taken off its hands, however slowly the client reads; none of the text is lost."""

    async def stall() -> bytes:
        connection = Connection({})
        connection.may_send.clear()
        running = asyncio.ensure_future(connection.run(cast("FastAPI", client.app)))
        while not engine.streamed:
            await asyncio.sleep(0.001)
        connection.may_send.set()
        await asyncio.wait_for(running, 5)
        return b"".join(connection.sent)

    engine.deltas = [Delta(0, f"{number} ", (number,)) for number in range(5000)]
    text = cast("Any", client.portal).call(stall).decode()
    chunks = [json.loads(event[6:]) for event in text.split("\n\n")[:-2]]
    assert "".join(f"{number} " for number in range(5000)) == "".join(c["choices"][0]["text"] for c in chunks)
    assert len(chunks) < 100
