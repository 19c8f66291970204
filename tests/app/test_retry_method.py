"""`structured_options.method: "retry"` over HTTP: what reaches the engine, and what the answer tells of attempts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from engine import Attempts
from engine.training.corpus import RECORD_SCHEMA

SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
ATTEMPTS = Attempts(made=3, judged=4, accepted=1, tokens=28, model_calls=30)
COST = {"judged": 4, "accepted": 1, "acceptance_rate": 0.25, "tokens": 28, "model_calls": 30}


@pytest.mark.parametrize(("options", "most"), [({}, 8), ({"max_attempts": None}, 8), ({"max_attempts": 64}, 64)])
def test_attempts_reach_the_engine(post: Any, engine: Any, options: dict[str, Any], most: int) -> None:
    """With their number and the independent validator of this source."""
    assert 200 == post(response_format=FORMAT, structured_options={"method": "retry"} | options).status_code
    retry = engine.requests[-1][1].retry
    assert most == retry.max_attempts
    assert [True, False, False] == [retry.is_valid(text) for text in ('{"b": 1}', '{"b": "1"}', "{")]


@pytest.mark.parametrize("options", [{}, {"method": "mask"}])
def test_the_mask_is_the_default(post: Any, engine: Any, options: dict[str, Any]) -> None:
    """No attempts unless they are asked for."""
    post(response_format=FORMAT, structured_options=options)
    assert engine.requests[-1][1].retry is None


def test_attempts_are_told(post: Any, engine: Any, make_choice: Any) -> None:
    """Attempts and acceptance rate stand beside `valid`, and only there where text was drawn freely."""
    engine.answer = lambda index: replace(make_choice(index, '{"b": 1}'), attempts=ATTEMPTS)
    told = post(response_format=FORMAT, structured_options={"method": "retry"}).json()["choices"][0]["structured"]
    assert (3, COST, True, True) == (told["attempts"], told["retry"], told["complete"], told["valid"])
    engine.answer = lambda index: make_choice(index, '{"b": 1}')
    assert "attempts" not in post(response_format=FORMAT).json()["choices"][0]["structured"]


def test_running_out_is_told_and_no_error(post: Any, engine: Any, make_choice: Any) -> None:
    """200 with the last text, which is not complete and not judged."""
    last = replace(
        make_choice(0, '{"b": '), stop_reason="max_attempts", complete=False, attempts=replace(ATTEMPTS, accepted=0)
    )
    engine.answer = lambda _index: last
    response = post(response_format=FORMAT, structured_options={"method": "retry"})
    choice = response.json()["choices"][0]
    assert (200, '{"b": ') == (response.status_code, choice["text"])
    assert ("length", "max_attempts") == (choice["finish_reason"], choice["stop_reason"])
    assert (False, None, 0.0) == (
        choice["structured"]["complete"],
        choice["structured"]["valid"],
        choice["structured"]["retry"]["acceptance_rate"],
    )


def test_a_stream_tells_of_attempts_at_the_end(post: Any, engine: Any, make_choice: Any) -> None:
    """On the last piece of each choice."""
    engine.answer = lambda index: replace(make_choice(index, '{"b": 1}'), attempts=ATTEMPTS)
    response = post(response_format=FORMAT, structured_options={"method": "retry"}, stream=True)
    pieces = [
        json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data: {")
    ]
    ends = [piece for piece in pieces if piece["choices"] and piece["choices"][0]["finish_reason"]]
    assert [(3, COST)] == [
        (told["attempts"], told["retry"]) for told in (end["choices"][0]["structured"] for end in ends)
    ]


def test_options_of_retry_need_something_to_enforce(post: Any) -> None:
    """As all options do."""
    response = post(structured_options={"method": "retry", "max_attempts": 4})
    assert (400, "structured_options.max_attempts") == (response.status_code, response.json()["error"]["param"])


def test_with_a_real_model(real: Any) -> None:
    """Valid records drawn without a mask, some of them not at the first attempt; the same again from the same seed."""
    body = {
        "model": "katagami-char",
        "prompt": "",
        "n": 12,
        "seed": 1,
        "max_tokens": 160,
        "response_format": {"type": "json_schema", "json_schema": {"name": "record", "schema": RECORD_SCHEMA}},
        "structured_options": {"method": "retry", "max_attempts": 64},
    }
    first, again = (real.post("/v1/completions", json=body).json()["choices"] for _ in range(2))
    assert [choice["text"] for choice in first] == [choice["text"] for choice in again]
    assert all(choice["structured"]["valid"] and choice["stop_reason"] == "end_turn" for choice in first)
    assert any(choice["structured"]["attempts"] > 1 for choice in first)
    assert 12 == sum(choice["structured"]["retry"]["accepted"] >= 1 for choice in first)
