"""Cases distilled from faults that users of such servers reported, kind `http`: requests, answers, and what holds."""

from __future__ import annotations

import contextlib
import json
import math
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from tests.end_to_end.byte_model import write_byte_model

CASES_FILE = Path(__file__).parents[3] / "shared" / "cases" / "field_reports.json"
CASES: list[dict[str, Any]] = json.loads(CASES_FILE.read_text()) if CASES_FILE.exists() else []
HTTP_CASES = [case for case in CASES if case["kind"] == "http"]
MODEL = "bytes"
FAILURE_KEPT_S = 0.5  # as faulty_server.py has it

pytestmark = pytest.mark.skipif(not CASES, reason="the folder `shared` with the cases is not beside the repository")


@dataclass
class Answer:
    """What came back for one request of a case, whole or in pieces."""

    asked: dict[str, Any]
    status: int = 0
    text: str = ""
    choices: dict[int, dict[str, Any]] = field(default_factory=dict)  # by index: content, finish_reason, logprobs
    usage: dict[str, Any] | None = None
    events: list[Any] = field(default_factory=list)  # of a stream, `[DONE]` included

    @property
    def content(self) -> str:
        """Of the only choice."""
        (choice,) = self.choices.values()
        return str(choice["content"])

    @property
    def message(self) -> str:
        """Of an error."""
        return str(json.loads(self.text)["error"]["message"])

    @property
    def schema(self) -> Any:
        """What the content was asked to satisfy."""
        return self.asked["response_format"]["json_schema"]["schema"]


def ask(url: str, request: dict[str, Any]) -> Answer:
    """Send one request as the case has it."""
    raw = request["body_text"] if "body_text" in request else json.dumps(request["body"])
    raw = raw.replace('"MODEL"', f'"{MODEL}"')
    answer = Answer(json.loads(raw))
    headers = {"content-type": "application/json"}
    timeout_s = request.get("disconnect_after_s", 60)
    try:
        response = httpx.request(
            request["method"], url + request["path"], content=raw, headers=headers, timeout=timeout_s
        )
    except httpx.ReadTimeout:
        assert "disconnect_after_s" in request
        return answer
    answer.status, answer.text = response.status_code, response.text
    if response.status_code == 200:
        read_stream(answer) if answer.asked.get("stream") else read_whole(answer)
    return answer


def read_whole(answer: Answer) -> None:
    """The choices of a whole answer."""
    body = json.loads(answer.text)
    answer.usage = body["usage"]
    for choice in body["choices"]:
        answer.choices[choice["index"]] = choice | {"content": choice["message"]["content"]}


def read_stream(answer: Answer) -> None:
    """The choices of a stream, put together."""
    answer.events = [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]
    for chunk in map(json.loads, answer.events[:-1]):
        answer.usage = chunk.get("usage") or answer.usage
        for piece in chunk["choices"]:
            choice = answer.choices.setdefault(piece["index"], {"content": "", "finish_reason": None})
            choice["content"] += piece["delta"].get("content") or ""
            choice["finish_reason"] = piece["finish_reason"] or choice["finish_reason"]


def run(url: str, case: dict[str, Any], pause_s: float = 0.0) -> list[Answer]:
    """All requests in turn, those that are concurrent at the same moment; with a pause before those that wait."""
    requests, together = case["requests"], case.get("concurrent", [])
    with ThreadPoolExecutor(max(1, len(together))) as pool:
        answers = dict(zip(together, pool.map(lambda number: ask(url, requests[number]), together), strict=True))
    for number, request in enumerate(requests):
        if number not in answers:
            time.sleep(pause_s if "after" in request else 0)
            answers[number] = ask(url, request)
    return [answers[number] for number in range(len(requests))]


def check(case: dict[str, Any], answers: list[Answer]) -> None:
    """The machine-readable part of what is expected."""
    for request, answer in zip(case["requests"], answers, strict=True):
        assert answer.status in request.get("status", [0]), answer.text
        for choice in answer.choices.values():
            if case.get("valid_content") and choice["finish_reason"] != "length":
                jsonschema.validate(json.loads(choice["content"]), answer.schema)
            assert case.get("content", choice["content"]) == choice["content"]
            assert case.get("finish_reason", choice["finish_reason"]) == choice["finish_reason"]


def unknown_type(answers: list[Answer]) -> None:
    """The message names the keyword, its value and its place."""
    for answer in answers:
        assert re.search(r"#/properties/x/type.*notatype", answer.message)


def malformed(answers: list[Answer]) -> None:
    """The message says what was expected."""
    for answer in answers:
        assert re.search("must be|is required|belongs at|unknown field|expected", answer.message), answer.message


def escape(answers: list[Answer]) -> None:
    """Understood and enforced, where it is not refused."""
    assert answers[0].status == 400 or '"hi!"' == answers[0].content


def unsatisfiable(answers: list[Answer]) -> None:
    """The message says that no value can match."""
    for answer in answers:
        assert "unsatisfiable_schema" == json.loads(answer.text)["error"]["code"], answer.text


def tuples(answers: list[Answer]) -> None:
    """Read as positions."""
    number, letter = json.loads(answers[0].content)
    assert (True, "x") == (isinstance(number, int), letter)


def switched_off(answers: list[Answer]) -> None:
    """The message says so."""
    assert "switched off" in next(answer.message for answer in answers if answer.status == 400)


def unwrapped(answers: list[Answer]) -> None:
    """The message says where it belongs."""
    for answer in answers:
        assert "response_format.json_schema.schema" in answer.message or "one level deeper" in answer.message


def cut(answers: list[Answer]) -> None:
    """A beginning of a document, and as many tokens as there may be."""
    for answer in answers:
        assert answer.content.startswith('{"t": "')
        assert answer.usage is None or answer.usage["completion_tokens"] == answer.asked["max_tokens"]


def complete(answers: list[Answer]) -> None:
    """Far below the limit."""
    assert answers[0].usage
    assert answers[0].usage["completion_tokens"] < 20


def stops(answers: list[Answer]) -> None:
    """The same plain and streamed, and the text before the stop string."""
    assert answers[0].content == answers[1].content
    assert answers[0].content.startswith('{"a": ')
    assert ("{", ["stop"] * 3) == (answers[2].content, [answer.choices[0]["finish_reason"] for answer in answers])


def no_blanks(answers: list[Answer]) -> None:
    """Nothing before the document, and one blank at most."""
    for answer in answers:
        assert answer.content.startswith("{")
        assert not re.search(r"\s\s|[\t\n\r]", answer.content)


def same_streamed(answers: list[Answer]) -> None:
    """Byte for byte, with one id, the role first, the reason last, and an end."""
    plain, streamed = answers
    assert plain.content == streamed.content
    *events, done = streamed.events
    chunks = [json.loads(event) for event in events]
    assert (1, "[DONE]") == (len({chunk["id"] for chunk in chunks}), done)
    assert ("assistant", "stop") == (
        chunks[0]["choices"][0]["delta"]["role"],
        chunks[-1]["choices"][0]["finish_reason"],
    )


def whole_characters(answers: list[Answer]) -> None:
    """No marks of replacement."""
    assert "\ufffd" not in answers[0].text
    assert "\\ufffd" not in answers[0].text


def usage_last(answers: list[Answer]) -> None:
    """In a chunk of its own, with true counts."""
    last = json.loads(answers[1].events[-2])
    assert [] == last["choices"]
    assert 0 < last["usage"]["completion_tokens"] < 20


def finite(answers: list[Answer]) -> None:
    """Every number is one that JSON has."""
    assert not re.search("NaN|Infinity", answers[0].text)
    for known in answers[0].choices[0]["logprobs"]["content"]:
        assert all(math.isfinite(entry["logprob"]) for entry in (known, *known["top_logprobs"]))


def four(answers: list[Answer]) -> None:
    """All of them."""
    for answer in answers:
        assert {0, 1, 2, 3} == set(answer.choices)


MORE: dict[str, Callable[[list[Answer]], None]] = {
    "h-unknown-type": unknown_type,
    "h-malformed-spec-shapes": malformed,
    "h-regex-unsupported-escape": escape,
    "h-unsatisfiable-schema": unsatisfiable,
    "h-tuple-old-draft": tuples,
    "h-assertion-per-request": switched_off,
    "h-schema-unwrapped": unwrapped,
    "h-finish-length": cut,
    "h-finish-once-complete": complete,
    "h-stop-strings": stops,
    "h-whitespace-only": no_blanks,
    "h-stream-equals-plain": same_streamed,
    "h-stream-split-characters": whole_characters,
    "h-stream-usage": usage_last,
    "h-logprobs-masked": finite,
    "h-n-choices": four,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "structured output disabled": {"flags": ["--no-structured-output"]},
    "compile time-out injected once": {"faults": "compile_once"},
}


@contextlib.contextmanager
def nobody_calls(port: int) -> Iterator[None]:
    """Listen, where this process may, and see that nobody connects."""
    with contextlib.ExitStack() as stack:
        try:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", port)))
        except PermissionError:  # low ports are for the system's owner
            yield
            return
        listener.setblocking(False)
        yield
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.fixture(scope="module")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can spell anything."""
    return write_byte_model(tmp_path_factory.mktemp("models") / MODEL)


@pytest.fixture(scope="module")
def byte_server(byte_model: Path, start_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server with that model alone."""
    with start_server(tmp_path_factory.mktemp("home"), "--model", str(byte_model)) as server:
        yield server


@pytest.mark.parametrize("case", [pytest.param(c, id=c["id"]) for c in HTTP_CASES if "server_option" not in c])
def test_case(byte_server: Any, case: dict[str, Any]) -> None:
    """Statuses, contents and ends are as the case has them, and what it says in words holds."""
    with nobody_calls(9):
        answers = run(byte_server.url, case)
    check(case, answers)
    MORE.get(case["id"], lambda _: None)(answers)
    give_up = time.monotonic() + 1.0
    while "katagami_running 0.0" not in httpx.get(f"{byte_server.url}/metrics").text:
        assert time.monotonic() < give_up
        time.sleep(0.02)
    assert "Traceback" not in byte_server.log.read_text("utf-8")


@pytest.mark.parametrize("case", [pytest.param(c, id=c["id"]) for c in HTTP_CASES if "server_option" in c])
def test_case_with_a_server_of_its_own(
    byte_model: Path, start_server: Any, tmp_path: Path, case: dict[str, Any]
) -> None:
    """The same where the server has to be set up for it."""
    option = OPTIONS[case["server_option"]]
    flags = ["--model", str(byte_model), *option.get("flags", [])]
    with start_server(tmp_path, *flags, faults=option.get("faults", "")) as server:
        answers = run(server.url, case, pause_s=2 * FAILURE_KEPT_S)
    check(case, answers)
    MORE.get(case["id"], lambda _: None)(answers)


def test_every_case_is_run() -> None:
    """What is said of cases here is said of cases that there are."""
    assert set(MORE) <= {case["id"] for case in HTTP_CASES}
    assert {case["server_option"] for case in HTTP_CASES if "server_option" in case} == set(OPTIONS)
