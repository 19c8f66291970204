"""Keys, queues, drains and everything around the generating routes, with the official SDKs against a real server."""

from __future__ import annotations

import asyncio
import datetime
import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Any

import anthropic
import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

MODELS = ["katagami-char", "katagami-bpe"]
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "integer", "maximum": 9}}}
BODY = {"model": "katagami-char", "prompt": "", "max_tokens": 20, "response_format": FORMAT}
LONG = {"model": "katagami-char", "prompt": "", "response_format": {"type": "regex", "regex": "[a-z]{400}"}}


@pytest.fixture(scope="module")
def keyed(start_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server with keys from all three places, and a log for machines."""
    home = tmp_path_factory.mktemp("keyed")
    (home / "keys").write_text("# of the test\ncarol:from-file\n", "utf-8")
    flags = ("--api-key", "alice:secret", "--api-key-file", str(home / "keys"), "--log-format", "json")
    with start_server(home, "--model", "katagami-char", *flags) as server:
        yield server


def figure(url: str, name: str, **labels: str) -> float:
    """The sum of a figure of /metrics over all other labels; 0 where it is not there."""
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
    samples = (sample for family in families for sample in family.samples)
    return sum(s.value for s in samples if s.name == f"katagami_{name}" and labels.items() <= s.labels.items())


@pytest.mark.parametrize("key", ["secret", "from-file"])
def test_right_key(keyed: Any, key: str) -> None:
    """Row 22: both SDKs are let in with a key, in whichever header they send it."""
    with openai.OpenAI(base_url=f"{keyed.url}/v1", api_key=key) as client:
        assert "katagami-char" == client.models.retrieve("katagami-char").id
        assert client.completions.create(model="katagami-char", prompt="", max_tokens=2).choices
    with anthropic.Anthropic(base_url=keyed.url, api_key=key) as other:
        assert ["katagami-char"] == [model.id for model in other.models.list()]
    with anthropic.Anthropic(base_url=keyed.url, auth_token=key, api_key=None) as third:
        assert ["katagami-char"] == [model.id for model in third.models.list()]


def test_wrong_key(keyed: Any) -> None:
    """Row 22: `AuthenticationError` of each SDK, and no second attempt."""
    with openai.OpenAI(base_url=f"{keyed.url}/v1", api_key="wrong") as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            client.completions.create(model="katagami-char", prompt="")
        assert ("invalid_api_key", None) == (caught.value.code, caught.value.param)
    with anthropic.Anthropic(base_url=keyed.url, api_key="wrong") as other:
        with pytest.raises(anthropic.AuthenticationError) as refused:
            other.models.list()
        assert "authentication_error" == refused.value.type
        assert refused.value.request_id
    assert 2 == figure(keyed.url, "requests_total", status="401")


def test_log_for_machines(keyed: Any) -> None:
    """Each line is an object; that of an exchange names the key, and nothing has the key or the prompt."""
    headers = {"authorization": "Bearer secret"}
    body = BODY | {"prompt": "nobody sees this"}
    response = httpx.post(f"{keyed.url}/v1/completions", json=body, headers=headers, timeout=60)
    request_id = response.headers["x-request-id"]
    time.sleep(0.2)
    text = keyed.log.read_text("utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    (line,) = (line for line in lines if line.get("request_id") == request_id)
    assert ("alice", 200, "/v1/completions") == (line["key"], line["status"], line["route"])
    assert response.headers["x-schema-hash"] == line["schema_hash"]
    assert response.json()["usage"]["completion_tokens"] == line["completion_tokens"]
    assert not any(word in text for word in ("secret", "from-file", "nobody sees"))


def test_models_of_openai(server: Any) -> None:
    """Row 17, asynchronous."""

    async def ask() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="local") as client:
            assert [model.id async for model in client.models.list()] == MODELS
            assert "katagami-bpe" == (await client.models.retrieve("katagami-bpe")).id
            with pytest.raises(openai.NotFoundError) as caught:
                await client.models.retrieve("x/y")
            assert "model_not_found" == caught.value.code

    asyncio.run(ask())


def test_models_of_anthropic(server: Any) -> None:
    """Row 18: dates are dates, and every model has a name to show."""
    with anthropic.Anthropic(base_url=server.url, api_key="local") as client:
        models = list(client.models.list())
        assert MODELS == [model.id for model in models]
        assert all(isinstance(model.created_at, datetime.datetime) for model in models)
        assert MODELS == [model.display_name for model in models]
        assert "katagami-char" == client.models.retrieve("katagami-char").id
        with pytest.raises(anthropic.NotFoundError) as caught:
            client.models.retrieve("nosuch")
        assert "not_found_error" == caught.value.type


def test_queue_that_comes_free(start_server: Any, tmp_path: Path) -> None:
    """Row 23: refused while the queue is full, the SDK comes back by itself and succeeds."""
    flags = ("--model", "katagami-char", "--max-running", "1", "--max-queued", "1")
    with start_server(tmp_path, *flags, faults="slow_step") as server, ExitStack() as occupying:
        stop = occupy(server.url, occupying)
        client = occupying.enter_context(openai.OpenAI(base_url=f"{server.url}/v1", api_key="local", max_retries=5))
        freeing = Thread(target=lambda: (time.sleep(0.5), stop()))
        freeing.start()
        assert client.completions.create(model="katagami-char", prompt="", max_tokens=2).choices
        freeing.join()
        assert 0 < figure(server.url, "requests_total", status="429")


def test_queue_that_stays_full(start_server: Any, tmp_path: Path) -> None:
    """Row 23: `RateLimitError` after exactly three attempts."""
    flags = ("--model", "katagami-char", "--max-running", "1", "--max-queued", "1")
    with start_server(tmp_path, *flags, faults="slow_step") as server, ExitStack() as occupying:
        occupy(server.url, occupying)
        client = occupying.enter_context(openai.OpenAI(base_url=f"{server.url}/v1", api_key="local"))
        with pytest.raises(openai.RateLimitError) as caught:
            client.completions.create(model="katagami-char", prompt="", max_tokens=2)
        assert 3 == figure(server.url, "requests_total", status="429")
    assert "queue_full" == caught.value.code


def occupy(url: str, stack: ExitStack) -> Any:
    """Take the one place and the one place in line with requests that take long; returns what frees them."""
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(LONG | {"n": 8, "max_tokens": 400}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    connections = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(2)]
    for connection in connections:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
    give_up_s = time.monotonic() + 30
    while figure(url, "submitted_total") < 2 or figure(url, "running") < 1:
        assert time.monotonic() < give_up_s
        time.sleep(0.02)
    return lambda: [connection.close() for connection in connections]


def test_drain_with_a_stream(start_server: Any, tmp_path: Path) -> None:
    """At the end of the grace a stream gets an error of its own, without `[DONE]`, and the process ends well."""
    flags = ("--model", "katagami-char", "--grace", "1")
    body = LONG | {"stream": True, "max_tokens": 400}
    with start_server(tmp_path, *flags, faults="slow_step") as server:
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: {")
            server.process.send_signal(signal.SIGTERM)
            events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert 0 == server.process.wait(30)
    assert "[DONE]" not in events
    error = json.loads(events[-1])["error"]
    assert ("server_error", "shutting_down") == (error["type"], error["code"])
    assert 1 < len(events)


def test_drain_lets_a_stream_end(start_server: Any, tmp_path: Path) -> None:
    """Within the grace a stream comes to its own end."""
    body = LONG | {"response_format": {"type": "regex", "regex": "[a-z]{20}"}, "stream": True}
    with start_server(tmp_path, "--model", "katagami-char", faults="slow_step") as server:
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=60) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: {")
            server.process.send_signal(signal.SIGTERM)
            events = [line for line in lines if line.startswith("data: ")]
        assert 0 == server.process.wait(30)
    assert "data: [DONE]" == events[-1]


def curl(*arguments: str) -> str:
    """What curl prints; skips where there is none."""
    program = shutil.which("curl")
    if program is None:
        pytest.skip("no curl here")
    return subprocess.run([program, "-sS", *arguments], capture_output=True, text=True, check=True, timeout=60).stdout


def test_curl(server: Any) -> None:
    """Row 40: plain, health, ready, metrics and reports are readable without any SDK."""
    sent = ("-H", "content-type: application/json", "-d")
    answer = json.loads(curl(f"{server.url}/v1/completions", *sent, json.dumps(BODY)))
    assert json.loads(answer["choices"][0]["text"]) <= 9
    assert {"status": "ok"} == json.loads(curl(f"{server.url}/health"))
    assert {"status": "ready"} == json.loads(curl(f"{server.url}/ready"))
    counted = 'katagami_requests_total{method="POST",route="/v1/completions",status="200"}'
    assert counted in curl(f"{server.url}/metrics")
    report = json.loads(curl(f"{server.url}/v1/schemas/validate", *sent, '{"schema": {"type": "boolean"}}'))
    assert (True, "true") == (report["supported"], report["shortest_example"])


def test_tokens(server: Any) -> None:
    """Text to ids and back, for each model; the count is that of a completion's prompt."""
    for model in MODELS:
        told = httpx.post(f"{server.url}/tokenize", json={"model": model, "prompt": "初級 networks"}).json()
        assert len(told["tokens"]) == told["count"] <= told["max_model_len"]
        back = httpx.post(f"{server.url}/detokenize", json={"model": model, "tokens": told["tokens"]}).json()
        assert {"prompt": "初級 networks"} == back
        body = {"model": model, "prompt": "初級 networks", "max_tokens": 0}
        answer = httpx.post(f"{server.url}/v1/completions", json=body).json()
        assert told["count"] == answer["usage"]["prompt_tokens"]


def test_tokens_of_messages(server: Any) -> None:
    """Messages are counted as the chat route counts them."""
    messages = [{"role": "user", "content": "css"}]
    told = httpx.post(f"{server.url}/tokenize", json={"messages": messages}).json()
    body = {"model": "katagami-char", "messages": messages, "max_tokens": 0}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body).json()
    assert told["count"] == answer["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("path", "body", "code", "param"),
    [
        ("/tokenize", {}, "missing_required_parameter", "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "invalid_value", "prompt"),
        ("/tokenize", {"prompt": 5}, "invalid_type", "prompt"),
        ("/tokenize", {"prompt": "a", "model": "nosuch"}, "model_not_found", "model"),
        ("/detokenize", {"tokens": [10**9]}, "invalid_value", "tokens"),
        ("/detokenize", {"tokens": [-1]}, "invalid_value", "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "invalid_type", "tokens[0]"),
    ],
)
def test_tokens_of_bad_bodies(server: Any, path: str, body: dict[str, Any], code: str, param: str) -> None:
    """Field rules are told as on every route."""
    error = httpx.post(f"{server.url}{path}", json=body).json()["error"]
    assert (code, param) == (error["code"], error["param"])


def test_metrics_of_a_real_engine(server: Any) -> None:
    """What was asked shows: tokens, seconds, tiers, interventions, entries of the cache, reasons of failures."""
    form = {
        "type": "json_schema",
        "json_schema": {"name": "a", "schema": {"type": "integer", "minimum": 3, "maximum": 8}},
    }
    model = "katagami-char"
    names = ("completion_tokens_total", "first_token_seconds_count", "interventions_total")
    before = {name: figure(server.url, name, model=model) for name in names}
    misses = figure(server.url, "schema_lookups_total", tier="miss")
    httpx.post(f"{server.url}/v1/completions", json=BODY | {"response_format": form, "max_tokens": 100}, timeout=60)
    after = {name: figure(server.url, name, model=model) for name in names}
    assert all(before[name] < after[name] for name in names)
    assert misses + 1 == figure(server.url, "schema_lookups_total", tier="miss")
    assert 0 < figure(server.url, "schema_cache_bytes", tier="memory")
    bad = {"type": "json_schema", "json_schema": {"name": "a", "schema": False}}
    httpx.post(f"{server.url}/v1/completions", json=BODY | {"response_format": bad}, timeout=60)
    assert 1 <= figure(server.url, "compile_failures_total", reason="unsatisfiable_schema")


def test_missing_key_file(start_server: Any, tmp_path: Path) -> None:
    """A server that cannot read its keys does not start."""
    from_file = str(tmp_path / "nosuch")
    with pytest.raises(Exception), start_server(tmp_path, "--api-key-file", from_file):  # noqa: B017, PT011
        pass
    assert f"katagami: {from_file}: No such file or directory" in (tmp_path / "log").read_text("utf-8")
