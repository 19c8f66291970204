"""Who is let in, and what is told to those who are not."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr
from starlette.datastructures import Headers

from app.keys import KeyFormError, presented_keys, read_keys
from app.main import create_app
from app.settings import Settings
from engine import Engine

BODY = {"model": "tiny", "prompt": "a"}


@contextmanager
def serving(engine: Any, home: Path, **settings: Any) -> Iterator[TestClient]:
    """A client on a ready server with these settings."""
    app = create_app(Settings(home=home, **settings), cast("Engine", engine))
    with TestClient(app, raise_server_exceptions=False) as client:
        while not app.state.gate.loaded_at:
            time.sleep(0.001)
        yield client


@pytest.fixture
def keyed(engine: Any, tmp_path: Path) -> Iterator[TestClient]:
    """A server with two keys, one of them named."""
    with serving(engine, tmp_path, api_key=("alice:secret-1", "secret-2")) as client:
        yield client


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer secret-1"},
        {"authorization": "bearer  secret-2"},
        {"x-api-key": "secret-2"},
        {"authorization": "Bearer wrong", "x-api-key": "secret-1"},
    ],
)
def test_known_key(keyed: TestClient, headers: dict[str, str]) -> None:
    """Either header lets in, also beside a wrong one in the other."""
    assert 200 == keyed.post("/v1/completions", json=BODY, headers=headers).status_code


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "secret-1"},
        {"authorization": "Basic secret-1"},
        {"authorization": "Bearer alice:secret-1"},
        {"authorization": "Bearer "},
        {"x-api-key": ""},
        {"x-api-key": "secret-1, secret-2"},
        {"x-api-key": "secret-1x"},
    ],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/models", "/v1/nosuch", "/tokenize", "/nosuch", "/docs"])
def test_unknown_key(keyed: TestClient, path: str, headers: dict[str, str]) -> None:
    """Nothing is told of what is behind, not even whether the path is there; the answer says not to try again."""
    response = keyed.post(path, json=BODY, headers=headers)
    assert (401, "invalid_api_key") == (response.status_code, response.json()["error"]["code"])
    assert ("false", "Bearer") == (response.headers["x-should-retry"], response.headers["www-authenticate"])
    assert response.headers["x-request-id"].startswith("req_")


def test_anthropic_shape(keyed: TestClient) -> None:
    """A client that says it is Anthropic's gets that SDK's error."""
    body = keyed.get("/v1/models", headers={"anthropic-version": "2023-06-01"}).json()
    assert ("error", "authentication_error", {"error_code": "invalid_api_key"}) == (
        body["type"],
        body["error"]["type"],
        body["error"]["details"],
    )


def test_refused_before_the_body(keyed: TestClient, engine: Any) -> None:
    """Neither a body over the limit nor one that is not JSON is looked at."""
    assert 401 == keyed.post("/v1/completions", content=b"x" * 9_000_000).status_code
    assert [] == engine.requests


def test_open_paths(keyed: TestClient) -> None:
    """Service routes need no key."""
    paths = ("/health", "/ready", "/version", "/metrics")
    assert [200] * 4 == [keyed.get(path).status_code for path in paths]


def test_metrics_may_need_a_key(engine: Any, tmp_path: Path) -> None:
    """Where the server was told so."""
    with serving(engine, tmp_path, api_key=("secret",), metrics_need_key=True) as client:
        assert 401 == client.get("/metrics").status_code
        assert 200 == client.get("/metrics", headers={"x-api-key": "secret"}).status_code


def test_without_keys_anything_goes(client: TestClient) -> None:
    """A server without keys takes whatever a client sends for one, or nothing."""
    for headers in ({}, {"authorization": "Bearer local"}, {"x-api-key": "local"}, {"authorization": "nonsense"}):
        assert 200 == client.get("/v1/models", headers=headers).status_code


def test_log_has_names_only(keyed: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    """The name of a key is told, the key never."""
    with caplog.at_level(logging.INFO):
        keyed.get("/v1/models", headers={"x-api-key": "secret-1"})
        keyed.get("/v1/models", headers={"x-api-key": "secret-2"})
        keyed.get("/v1/models", headers={"x-api-key": "secret-wrong"})
    told = [vars(record)["katagami_fields"]["key"] for record in caplog.records if "katagami_fields" in vars(record)]
    assert ["alice", "key2", None] == told
    assert "secret" not in str([vars(record) for record in caplog.records])


def test_all_keys_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """No comparison is left out, wherever the match is: the time taken tells nothing."""
    compared: list[tuple[bytes, bytes]] = []
    keys = read_keys(["a:1", "b:2", "c:3"])
    original: Callable[[bytes, bytes], bool] = hmac.compare_digest

    def counting(first: bytes, second: bytes) -> bool:
        compared.append((first, second))
        return original(first, second)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    assert ["a", "c", None] == [keys.name_of([key]) for key in ("1", "3", "4")]
    assert 9 == len(compared)


def test_file(tmp_path: Path) -> None:
    """Lines are keys with or without a name; comments and empty lines are left out."""
    file = tmp_path / "keys"
    file.write_text("# ours\n\nalice:one\n  two  \nbob:with:colons\n", "utf-8")
    keys = read_keys(["three"], file)
    assert ("key1", "alice", "line4", "bob") == keys.names
    assert ["alice", "line4", "bob", "key1"] == [keys.name_of([k]) for k in ("one", "two", "with:colons", "three")]


@pytest.mark.parametrize(
    ("entries", "text", "told"),
    [
        ([""], None, "API key 1"),
        (["a b"], None, "API key 1"),
        (["good", "naïve"], None, "API key 2"),
        (["name:"], None, "API key 1"),
        (["bad name:key"], None, "API key 1"),
        (["a:1", "a:2"], None, "'a'"),
        ([], "", "holds no API key"),
        ([], "# only a comment\n", "holds no API key"),
        ([], "one\ntwo three\n", "line 2"),
    ],
)
def test_keys_that_cannot_be(tmp_path: Path, entries: list[str], text: str | None, told: str) -> None:
    """A server that was meant to have keys never starts without, and the message shows no key."""
    file = tmp_path / "keys"
    if text is not None:
        file.write_text(text, "utf-8")
    with pytest.raises(KeyFormError, match=told) as caught:
        read_keys(entries, None if text is None else file)
    assert not any(key in str(caught.value) for key in ("naïve", "two three", "a b"))


@pytest.mark.parametrize("name", ["KATAGAMI_API_KEY", "KATAGAMI_API_KEYS"])
def test_environment(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Either variable sets keys, several with commas; what is printed of the settings shows none."""
    monkeypatch.setenv(name, "one, alice:two")
    settings = Settings()
    assert (SecretStr("one"), SecretStr("alice:two")) == settings.api_key
    assert "alice" not in repr(settings)


def test_empty_variable_is_no_open_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is set to nothing is an error, since somebody meant to set a key."""
    monkeypatch.setenv("KATAGAMI_API_KEY", "")
    with pytest.raises(KeyFormError):
        create_app(Settings())


def test_several_headers() -> None:
    """Each value of each header counts."""
    raw = [(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b"), (b"x-api-key", b"c")]
    assert ["a", "b", "c"] == presented_keys(Headers(raw=raw))


ORIGIN = {"origin": "http://page.example"}
QUESTION = ORIGIN | {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-lang",
}


def test_cross_origin(engine: Any, tmp_path: Path) -> None:
    """The browser's question needs no key, the call does; a page may read the headers, of errors too."""
    settings: dict[str, Any] = {"api_key": ("secret",), "cors_origin": ("http://page.example",)}
    with serving(engine, tmp_path, **settings) as client:
        question = client.options("/v1/completions", headers=QUESTION)
        assert (200, "http://page.example") == (question.status_code, question.headers["access-control-allow-origin"])
        assert "x-stainless-lang" in question.headers["access-control-allow-headers"]
        assert "x-request-id" in question.headers
        refused = client.post("/v1/completions", json=BODY, headers=ORIGIN)
        taken = client.post("/v1/completions", json=BODY, headers=ORIGIN | {"x-api-key": "secret"})
        for response, status in ((refused, 401), (taken, 200)):
            assert (status, "http://page.example") == (
                response.status_code,
                response.headers["access-control-allow-origin"],
            )
            assert "x-schema-hash" in response.headers["access-control-expose-headers"]


def test_other_origins(engine: Any, tmp_path: Path) -> None:
    """A page that may not call is told so in the form of all errors, and can read no answer."""
    with serving(engine, tmp_path, cors_origin=("http://other.example",)) as client:
        question = client.options("/v1/completions", headers=QUESTION)
        assert (400, "invalid_value") == (question.status_code, question.json()["error"]["code"])
        assert "access-control-allow-origin" not in client.get("/v1/models", headers=ORIGIN).headers


def test_cross_origin_is_off(client: TestClient) -> None:
    """Without the setting there are no such headers, and the question is a method that is not allowed."""
    question = client.options("/v1/completions", headers=QUESTION)
    assert (405, "method_not_allowed") == (question.status_code, question.json()["error"]["code"])
    assert "access-control-allow-origin" not in question.headers
