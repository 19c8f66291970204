"""Free text, judged and drawn again: which attempt is taken, what is told of the others, and that nothing is bent."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from engine import Choice, DeadlineExceededError, Delta, EngineFailedError, Ready, Request, Result, Retry, Sampling
from engine.retry import Trial, Verdict, verdict_on
from engine.scheduler import Scheduler
from engine.sequence import Job, Sequence, choice_of
from schemas_cache import Lookup, compile_source, regex_source, schema_source
from tests.engine.test_runner import WAIT_S, running, until
from tests.toy import TOY, ToyModel, decode, decoder_for, given, rows_for

ONE_OR_TWO = regex_source("1|2")
THREE_LETTERS = schema_source({"type": "string", "maxLength": 3})
SELDOM_RIGHT = given(len(TOY), {18: 9.0, 9: 9.0, 0: 9.0})  # "1", "a" or the end: a ninth of the texts is "1"


def right_or_endless(context: tuple[int, ...]) -> NDArray[np.float32]:
    """`1` and the end, or `a` for ever: as likely at the beginning."""
    favoured = {9: 50.0, 18: 50.0} if not context else {9 if context[0] == 9 else 0: 50.0}
    return np.asarray(given(len(TOY), favoured)(context), np.float32)


def anything(_text: str) -> bool:
    """A validator that likes everything."""
    return True


def retrying(attempts: int, is_valid: Callable[[str], bool | None] = anything, **fields: object) -> Request:
    """A request for "1" or "2"."""
    asked = {"prompts": ((),), "max_tokens": 4, "source": ONE_OR_TWO, "retry": Retry(attempts, is_valid)}
    return Request(**(asked | fields))  # type: ignore[arg-type]


def job_of(request: Request) -> Job:
    """A job whose source is compiled."""
    job = Job(request, Future(), seed=0, submitted_s=0.0)
    assert request.source is not None
    job.lookup = Lookup(compile_source(request.source, TOY), "miss", 0.0)
    return job


def said(row: Sequence, *, accepted: bool) -> Verdict:
    """A verdict on an attempt whose text is its number."""
    row.stop_reason, row.data = "end_turn", bytearray(str(row.attempt).encode())
    return Verdict(choice_of(row), accepted, accepted)


def test_the_first_of_the_attempts_is_taken_not_the_first_to_end() -> None:
    """Attempt 3 is over before attempt 2, and both are right: it has to wait, and 2 is taken."""
    trial = Trial(job_of(retrying(8)), 100)
    (row,) = trial.first
    (second,) = trial.take(row, said(row, accepted=False), slots_free=8).new
    third, fourth = trial.take(second, said(second, accepted=False), slots_free=8).new
    assert trial.take(fourth, said(fourth, accepted=True), slots_free=8).choice is None
    choice = trial.take(third, said(third, accepted=True), slots_free=8).choice
    assert choice is not None
    assert ("2", "end_turn", True) == (choice.text, choice.stop_reason, choice.complete)
    assert choice.attempts is not None
    assert (3, 4, 2, 0.5) == (
        choice.attempts.made,
        choice.attempts.judged,
        choice.attempts.accepted,
        choice.attempts.acceptance_rate,
    )


def test_waves_double_as_far_as_slots_are_free() -> None:
    """1, 1, 2 and 4 attempts with room; one by one without; never more than were asked for."""
    for slots_free, waves in ((8, [1, 2, 3]), (2, [1, 2, 2, 1]), (0, [1] * 6)):
        trial = Trial(job_of(retrying(7)), 100)
        todo, found = trial.first, []
        while todo:
            moves = [trial.take(row, said(row, accepted=False), slots_free) for row in todo]
            todo = [row for move in moves for row in move.new]
            found.append(len(todo))
        assert [*waves, 0] == found
        assert trial.over


def test_attempts_that_nobody_waits_for_are_given_up() -> None:
    """The second is right, so the third, under way, is needless; what it says later changes nothing."""
    trial = Trial(job_of(retrying(4)), 100)
    (row,) = trial.first
    (second,) = trial.take(row, said(row, accepted=False), slots_free=8).new
    third, fourth = trial.take(second, said(second, accepted=False), slots_free=8).new
    move = trial.take(third, said(third, accepted=True), slots_free=8)
    assert [fourth] == move.needless
    assert trial.take(fourth, said(fourth, accepted=True), slots_free=8).choice is None
    assert ["2"] == [choice.text for choice in trial.choices]


def test_running_out_is_told() -> None:
    """The last text comes back as it is, marked `max_attempts`; complete says whether it is a document at all."""
    for whole in (False, True):
        trial = Trial(job_of(retrying(1)), 100)
        (row,) = trial.first
        verdict = replace(said(row, accepted=False), whole=whole)
        choice = trial.take(row, verdict, slots_free=8).choice
        assert choice is not None
        assert ("0", "max_attempts", whole) == (choice.text, choice.stop_reason, choice.complete)


@pytest.mark.parametrize(
    ("text", "says", "whole", "accepted"),
    [
        ('"a"', True, True, True),
        ('"a"', None, True, True),
        ('"a"', False, True, False),
        ('"aaaa"', True, False, False),
        ('"a', True, False, False),
        (' "a"', True, False, False),
        ("", True, False, False),
    ],
)
def test_an_attempt_needs_the_language_and_the_validator(
    text: str, says: bool | None, whole: bool, accepted: bool
) -> None:
    """Its bytes are a document under the options that were asked for, and the validator does not say no."""
    (row,) = Trial(job_of(retrying(1, lambda _: says, source=THREE_LETTERS)), 100).first
    row.stop_reason, row.data = "end_turn", bytearray(text.encode())
    verdict = verdict_on(row)
    assert (whole, accepted) == (verdict.whole, verdict.accepted)


def test_closed_objects_and_the_order_of_keys_are_part_of_it() -> None:
    """Texts that a validator takes and the options do not are not accepted: a mask would not write them either."""
    schema = schema_source({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]})
    for text, accepted in (
        ('{"a": 1, "b": 1}', True),
        ('{"b": 1, "a": 1}', False),
        ('{"a": 1, "b": 1, "c": 1}', False),
    ):
        (row,) = Trial(job_of(retrying(1, source=schema)), 100).first
        row.stop_reason, row.data = "end_turn", bytearray(text.encode())
        assert accepted == verdict_on(row).accepted, text


def test_attempts_draw_from_streams_of_their_own() -> None:
    """Two answers of three attempts each: six streams, the first attempts' those of free text."""
    trial = Trial(job_of(retrying(3, n=2)), 100)
    rows, todo = [], trial.first
    while todo:
        rows += todo
        todo = [new for row in todo for new in trial.take(row, said(row, accepted=False), slots_free=1).new]
    assert [0, 1, 2, 3, 4, 5] == sorted(row.stream for row in rows)
    assert [0, 1] == [row.stream for row in rows if row.attempt == 0]


def test_attempts_are_free_text() -> None:
    """No matcher, so no mask and no forced text; with one attempt the text is that of a free request."""
    free = decode(
        decoder_for(TOY, ToyModel(len(TOY), SELDOM_RIGHT)), rows_for(Request(((),), max_tokens=4), TOY, seed=3)
    )
    with running(ToyModel(len(TOY), SELDOM_RIGHT)) as engine:
        sampling = Sampling(seed=3)
        choice = engine.generate_blocking("toy", retrying(1, lambda _: False, sampling=sampling)).choices[0]
    assert bytes(free[0].data).decode() == choice.text
    assert choice.stop_reason == "max_attempts"


def test_an_answer_is_right_or_says_so() -> None:
    """Two hundred answers: each is in the language, or has run out of attempts."""
    with running(ToyModel(len(TOY), SELDOM_RIGHT), max_running=16) as engine:
        result = engine.generate_blocking("toy", retrying(3, n=200))
    kinds = Counter((choice.text in ("1", "2"), choice.complete, choice.stop_reason) for choice in result.choices)
    assert {(True, True, "end_turn"), (False, False, "max_attempts")} == set(kinds)
    assert list(range(200)) == [choice.index for choice in result.choices]
    assert all(choice.attempts is not None and 1 <= choice.attempts.made <= 3 for choice in result.choices)


def test_the_number_of_slots_changes_nothing() -> None:
    """Which attempt is taken does not depend on how many run at once."""
    texts = []
    for slots in (1, 3, 64):
        with running(ToyModel(len(TOY), SELDOM_RIGHT), max_running=slots) as engine:
            result = engine.generate_blocking("toy", retrying(8, n=12, sampling=Sampling(seed=5)))
        texts.append([(choice.text, choice.attempts and choice.attempts.made) for choice in result.choices])
    assert texts[0] == texts[1] == texts[2]


def test_needless_attempts_leave_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once an answer is decided, its further attempts give back their slots while other answers go on."""
    withdrawn: list[Sequence] = []
    withdraw = Scheduler.withdraw

    def watched(scheduler: Scheduler, rows: list[Sequence]) -> None:
        if not any(rows is row.job.sequences for row in rows):  # else it is the end of the request
            withdrawn.extend(row for row in rows if not row.over)
        withdraw(scheduler, rows)

    monkeypatch.setattr(Scheduler, "withdraw", watched)
    with running(ToyModel(len(TOY), right_or_endless), max_running=64) as engine:
        result = engine.generate_blocking("toy", retrying(64, n=12, max_tokens=300, sampling=Sampling(seed=5)))
    made = {choice.index: choice.attempts.made for choice in result.choices if choice.attempts is not None}
    assert withdrawn
    assert all(row.attempt >= made[row.index] for row in withdrawn)


def test_the_attempts_are_counted_in_full() -> None:
    """Tokens and calls of failed attempts are told beside those of the answer itself."""
    with running(ToyModel(len(TOY), SELDOM_RIGHT)) as engine:
        result = engine.generate_blocking("toy", retrying(64, n=30, sampling=Sampling(seed=1)))
    many = [choice for choice in result.choices if choice.attempts is not None and choice.attempts.made > 1]
    assert many
    for choice in many:
        assert choice.attempts is not None
        assert choice.attempts.tokens >= len(choice.token_ids)
        assert choice.attempts.model_calls > choice.model_calls


def test_a_stream_shows_each_answer_once_it_is_known() -> None:
    """No text of an attempt that failed: a delta with the whole text, and the choice."""

    async def read() -> list[object]:
        with running(ToyModel(len(TOY), SELDOM_RIGHT)) as engine:
            return [event async for event in engine.stream("toy", retrying(64, n=2, sampling=Sampling(seed=1)))]

    events = asyncio.run(read())
    assert [Ready, Delta, Choice, Delta, Choice, Result] == list(map(type, events))
    deltas = {event.index: event.text for event in events if isinstance(event, Delta)}
    assert deltas == {event.index: event.text for event in events if isinstance(event, Choice)}


def test_what_the_validator_raises_fails_the_request_alone() -> None:
    """An error in judging is an error of that request; the engine goes on."""

    def broken(_text: str) -> bool:
        raise ZeroDivisionError("no")

    with running(ToyModel(len(TOY), given(len(TOY), {18: 50.0}))) as engine:
        with pytest.raises(EngineFailedError, match="no"):
            engine.generate_blocking("toy", retrying(64, broken, source=regex_source("1*"), max_tokens=2))
        again = engine.generate_blocking("toy", retrying(64, source=regex_source("1*"), max_tokens=2))
        assert ["11"] == [choice.text for choice in again.choices]


def test_deadlines_hold_while_attempts_are_judged() -> None:
    """A validator that takes its time does not keep the request beyond its deadline."""
    go_on = threading.Event()

    def slow(_text: str) -> bool:
        return go_on.wait(WAIT_S) and False

    with running(ToyModel(len(TOY), given(len(TOY), {18: 50.0}))) as engine:
        asked = retrying(64, slow, source=regex_source("1*"), max_tokens=2, deadline_s=0.2)
        with pytest.raises(DeadlineExceededError):
            engine.generate_blocking("toy", asked)
        go_on.set()
        until(lambda: engine.stats.running == 0)


def test_accepted_texts_have_the_models_own_shares() -> None:
    """Tokens `1`, `2`, `12` and the end, each with a quarter; texts `2` and `12` are asked for.

    The model writes `12` with 1/16 + 1/64 and `2` with 1/16: five to four. A mask gives `12` two thirds, since it makes
    `2` certain after `1`.
    """
    model = ToyModel(len(TOY), given(len(TOY), {18: 50.0, 19: 50.0, 20: 50.0, 0: 50.0}))
    asked = retrying(64, source=regex_source("2|12"), n=1000, sampling=Sampling(seed=2))
    with running(model, max_running=64) as engine:
        by_retry, by_mask = (engine.generate_blocking("toy", it) for it in (asked, replace(asked, retry=None)))
    shares = [Counter(choice.text for choice in it.choices)["12"] / 1000 for it in (by_retry, by_mask)]
    assert [5 / 9, 2 / 3] == pytest.approx(shares, abs=0.05)
