"""`katagami bench serve`: the same records from our server and from another, in turns."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Lock, Thread
from typing import Any

import pytest

from app.bench.serve.client import Answer, Server, ServerError, find_server, take_turn
from app.bench.serve.judging import count_right, count_valid
from app.bench.serve.report import Records
from app.bench.serve.run import Plan, measure
from app.bench.serve.server import own_server, stage_seconds
from app.bench.serve.tasks import Task, Tasks, heading_schema
from app.cli import main

RECORD = {"id": 7, "title": "Sockets", "level": "beginner", "tags": ["web"], "draft": True}
METRICS = """
# TYPE katagami_step_seconds_total counter
katagami_step_seconds_total{model="rival-model",stage="forward"} 3.5
katagami_step_seconds_total{model="rival-model",stage="mask"} 0.5
katagami_step_seconds_total{model="another",stage="mask"} 9
"""


class Rival:
    """A server with OpenAI's routes, and notes of what it was asked."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.text: Callable[[dict[str, Any]], str] = lambda _: json.dumps(RECORD)
        self.status, self.metrics, self.models = 200, "", ["rival-model"]
        self.busy, self.most_busy, self.lock = 0, 0, Lock()
        self.together = Barrier(1)
        self.url = ""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """A completion; held until as many are asked for as `together` waits for."""
        with self.lock:
            self.bodies.append(body)
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)
        with suppress(BrokenBarrierError):
            self.together.wait(5)
        with self.lock:
            self.busy -= 1
        message = {"role": "assistant", "content": self.text(body)}
        usage = {"prompt_tokens": 100, "completion_tokens": 40}
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}

    def prompts(self) -> list[str]:
        """Of requests for records, but for the first one, which nobody counts."""
        return [body["messages"][0]["content"] for body in self.bodies if "response_format" in body][1:]


@contextmanager
def serving(rival: Rival) -> Iterator[Rival]:
    """Have it listen on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            listing = json.dumps({"data": [{"id": name} for name in rival.models]})
            found = {"/v1/models": listing, "/metrics": rival.metrics}.get(self.path)
            self.reply(200 if found else 404, (found or "").encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.reply(rival.status, json.dumps(rival.answer(body)).encode())

        def log_message(self, *_: object) -> None:
            """Nothing to say."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    rival.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield rival
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def rival() -> Iterator[Rival]:
    """One that answers every request with the same record."""
    with serving(Rival()) as rival:
        yield rival


@pytest.fixture
def ours() -> Iterator[Rival]:
    """Another, in the place of our own server."""
    with serving(Rival()) as rival:
        yield rival


def plan_of(ours: Rival, *rivals: Rival, clients: tuple[int, ...] = (2,), records: int = 8) -> Plan:
    """What to measure."""
    urls = tuple(rival.url for rival in rivals)
    return Plan(ours.url, urls, heading_schema(), "compact", clients, records, seed=1)


def test_prompts_describe_the_record_that_is_expected() -> None:
    """Each its own, all of them valid headings, equal for equal seeds."""
    made, same = Tasks(heading_schema(), 3), Tasks(heading_schema(), 3)
    tasks = [made.record() for _ in range(50)]
    assert tasks == [same.record() for _ in range(50)]
    assert 50 == len({task.prompt for task in tasks})
    assert 50 == count_valid(heading_schema(), [Answer(json.dumps(task.expected), 0, 0, "stop") for task in tasks])
    assert all(f"id: {task.expected['id']}\ntitle: {task.expected['title']}\n" in task.prompt for task in tasks)


@pytest.mark.parametrize(("shared", "size", "beginnings"), [(False, 5, 20), (True, 150, 1)])
def test_prompts_begin_alike_where_they_are_to(shared: bool, size: int, beginnings: int) -> None:
    """Else a server that keeps prefixes could take most of one from another."""
    tasks = Tasks(heading_schema(), 3, shared)
    assert beginnings == len({tasks.record().prompt[:size] for _ in range(20)})


def test_prompts_for_another_schema_show_it() -> None:
    """And expect nothing of the values."""
    task = Tasks({"type": "integer"}, 1).record()
    assert ({}, True) == (task.expected, '{"type": "integer"}' in task.prompt)


def test_answers_are_judged() -> None:
    """By the schema, and field by field by what the prompt said; what is no JSON is neither."""
    texts = [json.dumps(RECORD), json.dumps(RECORD | {"id": -1}), '{"id": 7', "7"]
    answers = [Answer(text, 0, 0, "stop") for text in texts]
    assert 1 == count_valid(heading_schema(), answers)
    expected = Task("", {"id": 7, "title": "Sockets"})
    assert {"id": 1, "title": 2} == count_right((expected, answer) for answer in answers)


def test_clients_ask_at_once_and_answers_keep_their_order(rival: Rival) -> None:
    """As many requests are under way as there are clients, and the next begins as soon as one has its answer."""
    rival.together = Barrier(3)
    rival.text = lambda body: body["messages"]
    server = Server("rival", f"{rival.url}/v1", "m")
    bodies = [{"messages": f"text {number}"} for number in range(9)]
    turn = asyncio.run(take_turn(server, bodies, clients=3))
    assert [body["messages"] for body in bodies] == [answer.text for answer in turn.answers]
    assert (3, {"m"}) == (rival.most_busy, {body["model"] for body in rival.bodies})
    assert pytest.approx(1000 * turn.elapsed_s / 9) == turn.ms_per_record


def test_a_refusal_is_told(rival: Rival) -> None:
    """With the server's address, status and words."""
    rival.status = 400
    with pytest.raises(ServerError, match=rf"{rival.url}/v1 answers 400: .*Sockets"):
        asyncio.run(take_turn(Server("rival", f"{rival.url}/v1", "m"), [{}, {}], 2))


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_a_server_is_found_by_any_form_of_its_address(rival: Rival, suffix: str) -> None:
    """Its first model is asked."""
    found = asyncio.run(find_server("it", rival.url + suffix))
    assert Server("it", f"{rival.url}/v1", "rival-model") == found


def test_what_is_no_server_is_told(rival: Rival) -> None:
    """One that is not there, one that has no models, and an address that is none."""
    rival.models = []
    for url in (rival.url, "http://127.0.0.1:9", "nonsense"):
        with pytest.raises(ServerError, match="/v1/models"):
            asyncio.run(find_server("it", url))


def test_every_server_gets_the_same_prompts_in_turns(ours: Rival, rival: Rival) -> None:
    """Two records for each client and turn; only ours is told what only ours knows."""
    report = asyncio.run(measure(plan_of(ours, rival, clients=(2, 3), records=8), lambda _: None))
    assert [(8, 2), (8, 2), (12, 3), (12, 3)] == [(r.records, r.clients) for r in report.records]
    assert Counter(ours.prompts()) == Counter(rival.prompts())
    assert 20 == len(set(ours.prompts()))
    options = {"whitespace": "compact", "schema_in_prompt": False}
    formats = [body for body in ours.bodies if "response_format" in body]
    assert all(options == body["structured_options"] and body["temperature"] == 0 for body in formats)
    assert not any("structured_options" in body for body in rival.bodies)
    assert ["katagami", rival.url.removeprefix("http://")] == list(report.servers)


def test_figures_are_those_of_the_answers(ours: Rival, rival: Rival) -> None:
    """Counts, tokens, and the ratio of each turn's times."""
    rival.text = lambda body: "{}" if "response_format" in body else "text"
    report = asyncio.run(measure(plan_of(ours, rival), lambda _: None))
    mine, other = report.records
    assert (8, 8, 800, 320) == (mine.records, mine.valid, mine.prompt_tokens, mine.completion_tokens)
    assert (0, dict.fromkeys(RECORD, 0)) == (other.valid, other.right)
    ratios = sorted(a / b for a, b in zip(mine.turns_ms, other.turns_ms, strict=True))
    assert pytest.approx(sum(ratios) / 2) == mine.ratios[other.server]
    assert all(free.decode_tokens_per_s > 0 and free.prefill_tokens_per_s > 0 for free in report.free)


def test_seconds_of_stages_are_read_from_the_metrics(rival: Rival) -> None:
    """Of the model that is asked; a server without metrics has none."""
    server = Server("it", f"{rival.url}/v1", "rival-model")
    assert {} == stage_seconds(server)
    rival.metrics = METRICS
    assert {"forward": 3.5, "mask": 0.5} == stage_seconds(server)


def test_the_median_is_not_moved_by_one_slow_turn() -> None:
    """As it comes from another process."""
    facts: dict[str, Any] = {"records": 3, "valid": 3, "prompt_tokens": 0, "completion_tokens": 0, "right": {}}
    assert 11 == Records("it", 1, turns_ms=(10, 900, 11), elapsed_s=1, **facts).ms_per_record


def run_command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Exit code of `katagami bench serve`."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["katagami", "bench", "serve", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def test_the_command_measures_a_server_of_its_own_beside_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, rival: Rival
) -> None:
    """Starts ours, prints three tables, writes all numbers, and leaves no server behind."""
    monkeypatch.setenv("KATAGAMI_HOME", str(tmp_path))
    path = tmp_path / "figures.json"
    flags = ["--model", "katagami-bpe", "--rival-url", rival.url, "--clients", "1,2", "--records", "2"]
    assert 0 == run_command(monkeypatch, *flags, "--json", str(path))
    figures = json.loads(path.read_text("utf-8"))
    assert [1, 1, 2, 2] == [records["clients"] for records in figures["records"]]
    assert all(records["valid"] == records["records"] for records in figures["records"])
    assert {"forward", "mask", "sample", "advance"} == figures["records"][0]["stages_s"].keys()
    assert all(value > 0 for value in figures["records"][0]["stages_s"].values())
    out = capsys.readouterr().out
    places = [out.index(title) for title in ("Records (", "Where the time of steps goes", "Free text")]
    assert all(before < after for before, after in pairwise(places))
    with pytest.raises(ServerError):
        asyncio.run(find_server("ours", figures["servers"]["katagami"].split()[0]))


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--clients", "1,x"], "--clients: must be whole numbers"),
        (["--clients", "0"], "--clients: must be whole numbers"),
        (["--url", "http://127.0.0.1:9"], "http://127.0.0.1:9/v1/models does not list models"),
        (["--schema", "/nowhere.json"], "/nowhere.json: No such file"),
        (["--model", "nosuch"], "no server with the model nosuch could be started"),
    ],
)
def test_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: list[str], reason: str
) -> None:
    """Exit code 2, and what is wrong."""
    assert 2 == run_command(monkeypatch, *flags)
    assert reason in capsys.readouterr().err.splitlines()[-1]


def test_our_server_is_stopped_also_where_the_measurement_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever is raised while it runs."""
    monkeypatch.setenv("KATAGAMI_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match="a fault"), own_server("katagami-char") as url:
        raise RuntimeError(f"a fault {url}")
    with pytest.raises(ServerError):
        asyncio.run(find_server("it", url))


def test_our_server_is_stopped_where_the_measurement_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By SIGTERM, as from a job runner."""
    monkeypatch.setenv("KATAGAMI_HOME", str(tmp_path))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"), own_server("katagami-char") as url:
        os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(ServerError):
        asyncio.run(find_server("it", url))
    assert before == signal.getsignal(signal.SIGTERM)
