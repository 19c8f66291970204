"""Streams, prewarms and deadlines: what comes out of a running engine beside whole results."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest

from engine import (
    BudgetBelowMinimumError,
    Choice,
    ContextLengthError,
    DeadlineExceededError,
    Delta,
    Engine,
    EngineFailedError,
    Ready,
    Request,
    Result,
    Sampling,
    StreamEvent,
)
from engine.sequence import Job
from engine.sequence import Sequence as Row
from schemas_cache import SchemaCache, SchemaError, Source, Vocabulary, compile_source
from tests.engine.test_runner import ENDLESS, OBJECT, WAIT_S, Gate, request, running, until
from tests.toy import TOY, ToyModel, random_logits


async def read(engine: Engine, asked: Request) -> list[StreamEvent]:
    """All events of a stream."""
    return [event async for event in engine.stream("toy", asked)]


@pytest.mark.parametrize("schema", [OBJECT, None])
def test_a_stream_is_the_result_in_pieces(schema: object) -> None:
    """Ready, deltas and choices, the result; joined deltas are the texts, equal to those of the request unstreamed."""
    asked = request(schema, n=3, sampling=Sampling(seed=3, stop=("ba",)), prompts=((9,), (10,)))
    with running(cache=SchemaCache(None), max_running=2) as engine:
        events = asyncio.run(read(engine, asked))
        whole = engine.generate_blocking("toy", asked)
    ready, *middle, result = events
    assert isinstance(ready, Ready)
    assert isinstance(result, Result)
    assert (ready.schema is None) == (schema is None)
    assert [choice.text for choice in whole.choices] == [choice.text for choice in result.choices]
    for choice in result.choices:
        own = [event for event in middle if isinstance(event, Delta | Choice) and event.index == choice.index]
        assert choice == own[-1]
        assert choice.text == "".join(event.text for event in own[:-1])
        assert choice.token_ids == tuple(i for event in own[:-1] for i in event.token_ids)  # type: ignore[union-attr]


def test_text_never_runs_ahead_of_its_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does anything come before those of the prompt, however many pieces it is fed in."""
    monkeypatch.setattr("engine.recorder.MOST_LOGITS", 32 * 8 * 2)
    prompts = ((9, 10, 11) * 19, ())
    asked = request(OBJECT, prompts=prompts, n=2, logprobs=1, prompt_logprobs=True)
    with running(cache=SchemaCache(None)) as engine:
        events = asyncio.run(read(engine, asked))
    for index in range(4):
        text, data = "", b""
        own = [event for event in events if isinstance(event, Delta) and event.index == index]
        for delta in own:
            text += delta.text
            data += b"".join(TOY.token_bytes[token_id] for token_id in delta.token_ids)
            assert data.startswith(text.encode())
            assert delta.token_ids == tuple(one.token_id for one in delta.logprobs or ())
        known = [None if delta.prompt_logprobs is None else len(delta.prompt_logprobs) for delta in own]
        assert [len(prompts[index // 2])] + [None] * (len(own) - 1) == known


def test_deltas_come_while_the_text_is_written() -> None:
    """The first one is there although the model is held up in a later step."""
    gate = Gate()
    model = ToyModel(len(TOY), lambda context: gate(context) if len(context) >= 3 else ENDLESS)

    async def first_text(engine: Engine) -> str:
        text, stream = "", engine.stream("toy", request(max_tokens=5))
        async for event in stream:
            text += event.text if isinstance(event, Delta) else ""
            if len(text) == 3:
                gate.open.set()
        return text

    with running(model) as engine:
        assert "aaaaa" == asyncio.run(asyncio.wait_for(first_text(engine), WAIT_S))


@pytest.mark.parametrize("way", ["closed", "cancelled"])
def test_a_reader_that_goes_away_frees_the_rows(way: str) -> None:
    """Closing the generator, or cancelling the task that reads it: the slots are free before the next step."""

    async def scenario(engine: Engine) -> None:
        stream = engine.stream("toy", request(n=3, max_tokens=9_000))
        assert isinstance(await anext(stream), Ready)
        assert isinstance(await anext(stream), Delta)
        if way == "closed":
            await stream.aclose()
        else:
            task = asyncio.create_task(anext_forever(stream))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await stream.aclose()
        steps = engine.stats.steps["toy"].steps
        await asyncio.to_thread(until, lambda: engine.stats.running == 0)
        assert engine.stats.steps["toy"].steps <= steps + 5

    async def anext_forever(stream: object) -> None:
        async for _ in stream:  # type: ignore[attr-defined]
            pass

    with running(ToyModel(len(TOY), lambda _context: ENDLESS), max_running=3) as engine:
        asyncio.run(scenario(engine))
        until(lambda: engine.stats.cancelled == 1)


def test_a_slow_reader_holds_up_nobody() -> None:
    """Nothing is read of a stream until a neighbour is done; then all of it is there."""

    async def scenario(engine: Engine) -> list[StreamEvent]:
        stream = engine.stream("toy", request(max_tokens=300))
        events = [await anext(stream)]
        assert (await engine.generate("toy", request(max_tokens=350))).completion_tokens == 350
        return events + [event async for event in stream]

    with running(ToyModel(len(TOY), lambda _context: ENDLESS)) as engine:
        events = asyncio.run(scenario(engine))
    assert "a" * 300 == "".join(event.text for event in events if isinstance(event, Delta))


def test_failure_in_the_middle_is_raised_from_the_stream() -> None:
    """After the deltas that were there."""

    def breaks(context: tuple[int, ...]) -> list[float]:
        if len(context) >= 4:
            raise ZeroDivisionError
        return ENDLESS

    async def scenario(engine: Engine) -> list[StreamEvent]:
        stream = engine.stream("toy", request())
        events = [await anext(stream) for _ in range(5)]
        with pytest.raises(EngineFailedError):
            await anext(stream)
        return events

    with running(ToyModel(len(TOY), breaks)) as engine:
        events = asyncio.run(scenario(engine))
    assert [Ready, Delta, Delta, Delta, Delta] == [type(event) for event in events]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (request({"type": "nonsense"}), SchemaError),
        (request(OBJECT, prompts=((9,) * 20_000,)), ContextLengthError),
        (request(OBJECT, max_tokens=2, on_limit="error"), BudgetBelowMinimumError),
    ],
)
def test_what_is_not_taken_is_raised_before_ready(asked: Request, error: type[Exception]) -> None:
    """The first thing that the stream does is to raise."""

    async def scenario(engine: Engine) -> None:
        with pytest.raises(error):
            await anext(engine.stream("toy", asked))

    with running(cache=SchemaCache(None)) as engine:
        asyncio.run(scenario(engine))
        until(lambda: engine.stats.queued == 0)


def test_a_prewarm_waits_for_no_slot() -> None:
    """All slots are taken by a request that is held up; a request of no tokens is answered, its schema compiled."""
    gate = Gate()
    with running(ToyModel(len(TOY), gate), SchemaCache(None), max_running=1) as engine:
        busy = engine.submit("toy", request(max_tokens=3))
        assert gate.reached.wait(WAIT_S)
        first = engine.submit("toy", request(OBJECT, max_tokens=0, n=2, on_limit="error")).result(WAIT_S)
        second = asyncio.run(asyncio.wait_for(read(engine, request(OBJECT, max_tokens=0)), WAIT_S))
        gate.open.set()
        busy.result(WAIT_S)
    assert [("", "max_tokens", False)] * 2 == [(c.text, c.stop_reason, c.complete) for c in first.choices]
    assert first.schema is not None
    ready, choice, result = second
    assert isinstance(ready, Ready)
    assert isinstance(result, Result)
    assert (choice,) == result.choices
    assert ("miss", "memory") == (first.schema.cache, ready.schema.cache)  # type: ignore[union-attr]


@pytest.mark.parametrize("streamed", [True, False])
def test_a_deadline_ends_a_request_that_runs(streamed: bool) -> None:
    """It fails, and its slot is free; who has more time goes on."""

    async def scenario(engine: Engine) -> None:
        asked = request(max_tokens=9_000, deadline_s=0.05)
        with pytest.raises(DeadlineExceededError) as caught:
            await (read(engine, asked) if streamed else engine.generate("toy", asked))
        assert 0.05 == caught.value.deadline_s
        assert (await engine.generate("toy", request(max_tokens=5, deadline_s=WAIT_S))).completion_tokens == 5

    with running(ToyModel(len(TOY), lambda _context: ENDLESS), max_running=1) as engine:
        asyncio.run(scenario(engine))
        until(lambda: engine.stats.running == 0)


def test_a_deadline_ends_a_request_in_line() -> None:
    """It never gets a slot; the one that has it is untouched."""
    with running(ToyModel(len(TOY), slowly), max_running=1) as engine:
        busy = engine.submit("toy", request(max_tokens=60))
        with pytest.raises(DeadlineExceededError):
            engine.generate_blocking("toy", request(deadline_s=0.05))
        assert 60 == busy.result(WAIT_S).completion_tokens


def slowly(_context: tuple[int, ...]) -> list[float]:
    """Logits that take their time."""
    time.sleep(0.005)
    return ENDLESS


def test_a_deadline_ends_a_request_whose_schema_is_compiled() -> None:
    """The engine is idle but for that; nobody else has to wake it."""
    begun, go_on = threading.Event(), threading.Event()

    def held_up(source: Source, vocabulary: Vocabulary, **options: object) -> object:
        begun.set()
        assert go_on.wait(WAIT_S)
        return compile_source(source, vocabulary)

    cache = SchemaCache(None, compile_function=held_up)  # type: ignore[arg-type]
    with running(cache=cache) as engine:
        waiting = engine.submit("toy", request(OBJECT, deadline_s=0.05))
        assert begun.wait(WAIT_S)
        with pytest.raises(DeadlineExceededError):
            waiting.result(WAIT_S)
        assert 0 == engine.stats.queued
        go_on.set()


def test_nothing_is_left_of_requests_that_are_over() -> None:
    """Finished, cancelled, late and failed ones: no job and no sequence is kept alive by the engine."""
    jobs, rows = alive(Job), alive(Row)  # of engines that other tests still have
    with running(ToyModel(len(TOY), random_logits(len(TOY))), SchemaCache(None), max_running=4) as engine:
        for _ in range(20):
            asyncio.run(read(engine, request(OBJECT, deadline_s=60.0)))
            engine.submit("toy", request(max_tokens=5_000)).cancel()
            with pytest.raises(DeadlineExceededError):
                engine.generate_blocking("toy", request(max_tokens=9_000, deadline_s=0.0))
            with pytest.raises(BudgetBelowMinimumError):
                engine.generate_blocking("toy", request(OBJECT, max_tokens=1, on_limit="error"))
        until(lambda: engine.stats.running == engine.stats.queued == 0)
        until(lambda: alive(Job) <= jobs + 4 and alive(Row) <= rows + 4)  # what idle threads still have in hand


def alive(kind: type) -> int:
    """How many objects of a type there are."""
    gc.collect()
    return sum(type(thing) is kind for thing in gc.get_objects())
