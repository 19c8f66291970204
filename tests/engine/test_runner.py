"""The thread that takes the steps: requests in from any thread, results out, everything ends that should."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from engine import (
    ContextLengthError,
    Engine,
    EngineConfig,
    EngineFailedError,
    LoadedModel,
    QueueFullError,
    Request,
    Sampling,
    ShuttingDownError,
    UnknownModelError,
    compiling_cache,
    expander,
    step,
)
from engine.constraint import Walk
from schemas_cache import (
    CompileTimeoutError,
    Limits,
    SchemaCache,
    SchemaError,
    Source,
    Vocabulary,
    compile_source,
    schema_source,
)
from tests.toy import TOY, GreedyTokenizer, ToyModel, given, random_logits

WAIT_S = 20.0
ENDLESS = [50.0 if token_id == 9 else 0.0 for token_id in range(len(TOY))]  # never the end token, always "a"
OBJECT = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}


def loaded(name: str, model: ToyModel) -> LoadedModel:
    """A toy model under a name."""
    return LoadedModel(name, model, GreedyTokenizer(TOY), {})  # type: ignore[arg-type]


@contextmanager
def running(model: ToyModel | None = None, cache: SchemaCache | None = None, **config: object) -> Iterator[Engine]:
    """An engine with the model `toy`, stopped at the end."""
    model = model or ToyModel(len(TOY), random_logits(len(TOY)))
    settings = EngineConfig(**{"model": "toy", "grace_s": WAIT_S, **config})  # type: ignore[arg-type]
    engine = Engine(settings, load=lambda name: loaded(name, model), cache=cache or compiling_cache(settings))
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def request(schema: object = None, **fields: object) -> Request:
    """For short answers to the empty prompt."""
    source = None if schema is None else schema_source(schema)  # type: ignore[arg-type]
    return Request(**{"prompts": ((),), "max_tokens": 40, "source": source, **fields})  # type: ignore[arg-type]


class Gate:
    """Logits that wait until the gate is opened, so that a test can look at a step under way."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, _context: tuple[int, ...]) -> list[float]:
        """Wait, then go on for ever."""
        self.reached.set()
        assert self.open.wait(WAIT_S)
        return ENDLESS


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread is about to do."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it never happened"
        time.sleep(0.002)


def test_a_request_comes_back_with_its_answer_and_what_it_took() -> None:
    """Valid text, the schema's tier, tokens and times."""
    with running() as engine:
        first = engine.generate_blocking("toy", request(OBJECT, prompts=((9, 10),), n=2))
        second = engine.generate_blocking("toy", request(OBJECT))
    assert all(set(json.loads(choice.text)) == {"a"} and choice.complete for choice in first.choices)
    assert first.schema is not None
    assert second.schema is not None
    assert ("miss", "memory") == (first.schema.cache, second.schema.cache)
    assert schema_source(OBJECT).schema_hash == first.schema.schema_hash
    assert (2, sum(len(choice.token_ids) for choice in first.choices)) == (
        first.prompt_tokens,
        first.completion_tokens,
    )
    assert min(first.timings.queue_ms, first.timings.prefill_ms, first.timings.decode_ms) >= 0


def test_same_seed_same_text() -> None:
    """A seed fixes the text; without one two requests differ; the engine's seed fixes those."""
    seeded = request(None, sampling=Sampling(seed=-5))
    with running(seed=1) as engine:
        texts = [engine.generate_blocking("toy", asked).choices[0].text for asked in (seeded, request(), seeded)]
        texts.append(engine.generate_blocking("toy", request()).choices[0].text)
    assert texts[0] == texts[2]
    assert texts[1] != texts[3]
    with running(seed=1) as engine:
        assert texts[1] == engine.generate_blocking("toy", request()).choices[0].text


def test_many_requests_at_once_are_not_mixed_up() -> None:
    """64 requests with 8 schemas on 5 slots: each answer satisfies the schema that was sent with it."""
    schemas = [{"type": "array", "items": {"const": i}, "minItems": i, "maxItems": i} for i in (1, 2, 12, 20, 21)]
    schemas += [{"enum": ["a"]}, {"enum": ["ab"]}, {"type": "boolean"}]

    async def ask(engine: Engine) -> list[str]:
        results = [engine.generate("toy", request(schemas[i % 8], max_tokens=400)) for i in range(64)]
        return [result.choices[0].text for result in await asyncio.gather(*results)]

    with running(max_running=5) as engine:
        texts = asyncio.run(ask(engine))
    for i, text in enumerate(texts):
        value, schema = json.loads(text), schemas[i % 8]
        if "items" in schema:
            assert [schema["items"]["const"]] * schema["minItems"] == value  # type: ignore[index, operator]
        else:
            assert value in schema.get("enum", [True, False])  # type: ignore[operator]


def test_cancelling_frees_the_rows_within_a_step() -> None:
    """The task that awaited is cancelled; its rows are gone before the next step, the neighbour's are not."""
    gate = Gate()
    model = ToyModel(len(TOY), gate)

    async def scenario(engine: Engine) -> None:
        task = asyncio.create_task(engine.generate("toy", request(n=3, max_tokens=10_000)))
        stays = asyncio.create_task(engine.generate("toy", request(max_tokens=30)))
        await asyncio.to_thread(gate.reached.wait, WAIT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open.set()
        assert (await stays).choices

    with running(model, max_running=3) as engine:
        asyncio.run(scenario(engine))
        assert [3, 1] == [len(rows) for rows in model.fed[:2]]
        assert (0, 1) == (engine.stats.running, engine.stats.cancelled)


def test_cancelled_while_in_line_never_runs() -> None:
    """A request that waits for a slot is forgotten when its future is cancelled."""
    gate = Gate()
    model = ToyModel(len(TOY), gate)
    with running(model, max_running=1) as engine:
        first = engine.submit("toy", request(max_tokens=3))
        assert gate.reached.wait(WAIT_S)
        second = engine.submit("toy", request(prompts=((9, 10, 11),)))
        assert second.cancel()
        gate.open.set()
        first.result(WAIT_S)
        until(lambda: engine.stats.cancelled == 1)
    assert all((9, 10, 11) not in rows for rows in model.fed)


def test_cancelled_while_it_is_compiled_never_runs() -> None:
    """The schema is finished all the same, for those who ask for it next."""
    compiles = SlowCompiles()
    model = ToyModel(len(TOY), given(len(TOY)))
    cache = SchemaCache(None, compile_function=compiles)  # type: ignore[arg-type]
    with running(model, cache=cache) as engine:
        gone = engine.submit("toy", request({"enum": ["a", "b"]}, prompts=((9, 10, 11),)))
        until(lambda: compiles.count == 1)
        assert gone.cancel()
        until(lambda: engine.stats.cancelled == 1)
        compiles.go.set()
        result = engine.submit("toy", request({"enum": ["a", "b"]}, prompts=((12,),))).result(WAIT_S)
        assert result.schema is not None
    assert 1 == compiles.count
    assert all(ids[:3] != (9, 10, 11) for rows in model.fed for ids in rows)


def test_queue_bound_counts_requests_not_rows() -> None:
    """Two may wait beside what runs; the third is refused with an estimate, and later ones are taken again."""
    gate = Gate()
    with running(ToyModel(len(TOY), gate), max_running=1, max_queued=2) as engine:
        futures = [engine.submit("toy", request(max_tokens=2))]
        assert gate.reached.wait(WAIT_S)
        futures += [engine.submit("toy", request(max_tokens=2, n=5)) for _ in range(2)]
        with pytest.raises(QueueFullError) as refused:
            engine.submit("toy", request())
        assert refused.value.retry_after_s >= 1
        assert 2 == engine.stats.queued
        gate.open.set()
        assert [1, 5, 5] == [len(future.result(WAIT_S).choices) for future in futures]
        assert engine.generate_blocking("toy", request()).choices


def test_queue_bound_when_all_come_at_once() -> None:
    """One slot and two places in the line take three of six, whether or not the first has begun, and those are told."""
    compiles = SlowCompiles()
    cache = SchemaCache(None, compile_function=compiles)  # type: ignore[arg-type]
    with running(cache=cache, max_running=1, max_queued=2) as engine:
        futures, refused = [], 0
        for _ in range(6):
            try:
                futures.append(engine.submit("toy", request({"enum": ["a"]}, n=3)))
            except QueueFullError:
                refused += 1
        assert (3, 3) == (len(futures), refused)
        compiles.go.set()
        assert [3, 3, 3] == [len(future.result(WAIT_S).choices) for future in futures]


def test_a_cancelled_request_gives_its_place_away() -> None:
    """At once, also while the step that it was in goes on."""
    gate = Gate()
    with running(ToyModel(len(TOY), gate), max_running=1, max_queued=1) as engine:
        running_one = engine.submit("toy", request(max_tokens=2))
        assert gate.reached.wait(WAIT_S)
        queued = engine.submit("toy", request(max_tokens=2))
        with pytest.raises(QueueFullError):
            engine.submit("toy", request())
        assert queued.cancel()
        next_one = engine.submit("toy", request(max_tokens=2))
        gate.open.set()
        assert [1, 1] == [len(future.result(WAIT_S).choices) for future in (running_one, next_one)]


def test_queue_of_one_model_leaves_the_other_free() -> None:
    """Where a model has a free slot, its request is taken although the line of another is full."""
    gate = Gate()
    models = {"x": ToyModel(len(TOY), gate), "y": ToyModel(len(TOY), random_logits(len(TOY)))}
    config = EngineConfig("x", ("y",), max_running=1, max_queued=1)
    engine = Engine(config, load=lambda name: loaded(name, models[name]))
    engine.start()
    try:
        futures = [engine.submit("x", request(max_tokens=2)) for _ in range(2)]
        assert gate.reached.wait(WAIT_S)
        with pytest.raises(QueueFullError):
            engine.submit("x", request())
        futures.append(engine.submit("y", request(max_tokens=2)))
        gate.open.set()
        assert [1, 1, 1] == [len(future.result(WAIT_S).choices) for future in futures]
    finally:
        engine.stop()


def test_a_model_whose_rows_wait_for_states_leaves_the_other_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the one would wait for its states, the other takes step after step."""
    known = threading.Event()
    monkeypatch.setattr(expander, "INLINE_WORK", 0)
    monkeypatch.setattr(step, "WAIT_S", 2 * WAIT_S)
    monkeypatch.setattr(Walk, "rehearse", lambda *_: known.wait(2 * WAIT_S))
    gate = Gate()
    models = {"x": ToyModel(len(TOY), gate), "y": ToyModel(len(TOY), random_logits(len(TOY)))}
    cache = SchemaCache(None, limits=Limits(max_dense_entries=0))
    engine = Engine(EngineConfig("x", ("y",)), load=lambda name: loaded(name, models[name]), cache=cache)
    engine.start()
    try:
        free = engine.submit("x", request(max_tokens=300))
        assert gate.reached.wait(WAIT_S)
        bound = engine.submit("y", request(OBJECT))
        gate.open.set()
        assert free.result(WAIT_S).choices
        assert bound.cancel()
        known.set()
    finally:
        engine.stop()


def test_cancelled_in_line_for_a_worker_is_never_compiled() -> None:
    """A client that went away costs no compile where none has begun."""
    compiles = SlowCompiles()
    cache = SchemaCache(None, compile_function=compiles)  # type: ignore[arg-type]
    with running(cache=cache, compile_workers=1) as engine:
        first = engine.submit("toy", request({"enum": ["a"]}))
        until(lambda: compiles.count == 1)
        assert engine.submit("toy", request({"const": 1})).cancel()
        compiles.go.set()
        assert first.result(WAIT_S).choices
        assert engine.generate_blocking("toy", request(OBJECT)).choices
    assert 2 == compiles.count


def test_prompt_longer_than_the_context_is_refused() -> None:
    """Before anything is compiled or queued."""
    with (
        running(ToyModel(len(TOY), given(len(TOY)), context_length=5)) as engine,
        pytest.raises(ContextLengthError) as raised,
    ):
        engine.submit("toy", request(prompts=((9,) * 6,)))
    assert (6, 5) == (raised.value.prompt_tokens, raised.value.context_length)


@pytest.mark.parametrize("token_id", [-1, len(TOY)])
def test_prompt_tokens_outside_the_vocabulary_are_refused(token_id: int) -> None:
    """They would break the step for everybody in it."""
    with running() as engine, pytest.raises(ValueError, match="outside the vocabulary of 31"):
        engine.submit("toy", request(prompts=((9,), (9, token_id))))


def test_unknown_model_is_refused_by_name() -> None:
    """The error names the ones there are."""
    with running() as engine, pytest.raises(UnknownModelError, match='"other" is loaded; there is toy'):
        engine.submit("other", request())


def test_limit_of_zero_compiles_and_returns_nothing() -> None:
    """Prewarming: the schema is compiled, the text is empty, and the model is not asked."""
    model = ToyModel(len(TOY), given(len(TOY)))
    with running(model) as engine:
        result = engine.generate_blocking("toy", request(OBJECT, max_tokens=0))
        after = engine.generate_blocking("toy", request(OBJECT))
        with pytest.raises(SchemaError):
            engine.generate_blocking("toy", request({"type": "nonsense"}, max_tokens=0))
    (choice,) = result.choices
    assert ("", "max_tokens", False, 0) == (choice.text, choice.stop_reason, choice.complete, choice.model_calls)
    assert after.schema is not None
    assert after.schema.cache == "memory"


@pytest.mark.parametrize("fault", [MemoryError, RecursionError, KeyError, TimeoutError])
def test_whatever_a_compile_raises_ends_its_request_alone(fault: type[Exception]) -> None:
    """A typed error; the loop goes on; a retry compiles again."""
    faults = [fault("made up")]

    def compile_or_fail(source: Source, vocabulary: Vocabulary, **limits: object) -> object:
        if faults:
            raise faults.pop()
        return compile_source(source, vocabulary)

    cache = SchemaCache(None, compile_function=compile_or_fail)  # type: ignore[arg-type]
    with running(cache=cache) as engine:
        expected = CompileTimeoutError if fault is TimeoutError else EngineFailedError
        with pytest.raises(expected):
            engine.generate_blocking("toy", request(OBJECT))
        assert engine.generate_blocking("toy", request()).choices
        again = engine.generate_blocking("toy", request(OBJECT))
    assert again.schema is not None
    assert again.schema.cache == "miss"


class SlowCompiles:
    """A compile function that waits for a signal for schemas which say so, and counts."""

    def __init__(self) -> None:
        self.go, self.count = threading.Event(), 0

    def __call__(self, source: Source, vocabulary: Vocabulary, **_limits: object) -> object:
        """Compile, sooner or later."""
        self.count += 1
        if "enum" in source.content:
            assert self.go.wait(WAIT_S)
        return compile_source(source, vocabulary)


def test_equal_schemas_compile_once_and_known_ones_do_not_wait_for_new_ones() -> None:
    """One compile for all who ask; while every worker is busy, a schema seen before is served."""
    compiles = SlowCompiles()
    cache = SchemaCache(None, compile_function=compiles)  # type: ignore[arg-type]
    with running(cache=cache, compile_workers=2) as engine:
        engine.generate_blocking("toy", request(OBJECT))
        waiting = [engine.submit("toy", request({"enum": ["a"]})) for _ in range(5)]
        until(lambda: compiles.count == 2)
        assert engine.submit("toy", request(OBJECT)).result(WAIT_S).choices
        assert not any(future.done() for future in waiting)
        compiles.go.set()
        assert ['"a"'] * 5 == [future.result(WAIT_S).choices[0].text for future in waiting]
    assert 2 == compiles.count


def test_compile_time_limit_counts_the_wait_for_a_worker() -> None:
    """A request behind a slow compile gives up at its own limit."""
    compiles = SlowCompiles()
    cache = SchemaCache(None, compile_function=compiles)  # type: ignore[arg-type]
    with running(cache=cache, compile_workers=1) as engine:
        slow = engine.submit("toy", request({"enum": ["a"]}))
        until(lambda: compiles.count == 1)
        hasty = engine.submit("toy", request({"const": 1}, compile_timeout_s=0.01))
        time.sleep(0.05)
        compiles.go.set()
        with pytest.raises(CompileTimeoutError):
            hasty.result(WAIT_S)
        assert slow.result(WAIT_S).choices


def test_a_bug_in_a_step_fails_what_was_in_it_and_the_thread_goes_on() -> None:
    """The next request is served as if nothing had been."""
    faults = [RuntimeError("a bug")]

    def logits(context: tuple[int, ...]) -> list[float]:
        if faults:
            raise faults.pop()
        return [0.0] * len(TOY)

    with running(ToyModel(len(TOY), logits)) as engine:
        with pytest.raises(EngineFailedError, match="a bug"):
            engine.generate_blocking("toy", request(n=2))
        assert engine.generate_blocking("toy", request()).choices
        assert (1, 1, 0) == (engine.stats.failed, engine.stats.completed, engine.stats.running)


def test_one_bad_row_fails_its_request_and_frees_the_others() -> None:
    """A choice that broke takes its request's other choices with it, and nobody else's."""

    def logits(context: tuple[int, ...]) -> list[float]:
        return [float("nan")] * len(TOY) if context[:1] == (10,) else ENDLESS

    with running(ToyModel(len(TOY), logits)) as engine:
        bad = engine.submit("toy", request(prompts=((9,), (10,)), max_tokens=5_000))
        good = engine.submit("toy", request(max_tokens=50))
        with pytest.raises(EngineFailedError, match="finite"):
            bad.result(WAIT_S)
        assert good.result(WAIT_S).choices
        until(lambda: engine.stats.running == 0)
        assert engine.stats.steps["toy"].rows < 100


def test_choices_that_end_in_the_step_in_which_another_breaks() -> None:
    """One choice fails and the next one ends at the same time: one error, and the thread goes on."""

    def logits(context: tuple[int, ...]) -> list[float]:
        return [float("nan")] * len(TOY) if context[:1] == (10,) else ENDLESS

    with running(ToyModel(len(TOY), logits)) as engine:
        with pytest.raises(EngineFailedError):
            engine.submit("toy", request(prompts=((10,), (9,)), max_tokens=1)).result(WAIT_S)
        assert engine.submit("toy", request(max_tokens=1)).result(WAIT_S).choices


def test_stop_lets_requests_finish() -> None:
    """Within the grace time everything taken is answered; afterwards nothing is taken."""
    with running() as engine:
        futures = [engine.submit("toy", request(OBJECT)) for _ in range(5)]
        assert engine.ready
    assert all(future.result(0).choices for future in futures)
    assert not engine.ready
    with pytest.raises(ShuttingDownError):
        engine.submit("toy", request())


def test_stop_fails_what_outlasts_the_grace_time() -> None:
    """No request is left without an answer."""
    gate = Gate()
    with running(ToyModel(len(TOY), gate), grace_s=0.0) as engine:
        future = engine.submit("toy", request(max_tokens=10_000))
        assert gate.reached.wait(WAIT_S)
        gate.open.set()
    with pytest.raises(ShuttingDownError):
        future.result(0)


def test_several_models_share_one_thread() -> None:
    """Each request goes to the model that it names, under the name it was loaded by."""
    models = {name: ToyModel(len(TOY), given(len(TOY), {token: 90.0})) for name, token in (("x", 9), ("y", 10))}
    engine = Engine(EngineConfig("x", ("y", "x")), load=lambda name: loaded(name, models[name]))
    engine.start()
    try:
        futures = [engine.submit(name, request(max_tokens=3)) for name in ("x", "y", "x")]
        assert ["aaa", "bbb", "aaa"] == [future.result(WAIT_S).choices[0].text for future in futures]
        assert {"x", "y"} == set(engine.models) == set(engine.stats.steps)
    finally:
        engine.stop()


def test_config_refuses_figures_below_one() -> None:
    """Named, with the figure."""
    with pytest.raises(ValueError, match="max_running is 0"):
        EngineConfig(max_running=0)


def test_two_models_of_one_name_are_refused() -> None:
    """A request could mean either."""
    engine = Engine(
        EngineConfig(model="a", models=("b",)), load=lambda _: loaded("same", ToyModel(len(TOY), given(len(TOY))))
    )
    with pytest.raises(ValueError, match="two models are named 'same'"):
        engine.start()
    engine.stop()
