"""Whatever raises while sequences are decoded ends the requests concerned, and the thread goes on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from engine import (
    Engine,
    EngineConfig,
    EngineFailedError,
    Request,
    Result,
    Sampling,
    ShuttingDownError,
    decode_thread,
    recorder,
    step,
)
from engine.admission import Admission
from engine.constraint import Walk
from engine.decode_thread import DecodeThread
from engine.drawing import Drawing
from engine.expander import Expander
from engine.models.llama.kv_cache import KvCache
from engine.outputs import Outputs
from engine.recorder import Recorder
from engine.scheduler import Scheduler
from engine.sequence import choice_of
from engine.slots import CachingSlots
from engine.step import Decoder
from schemas_cache import SchemaCache
from tests.engine.llama.answers import decoder_of, load_tiny, rows_of, run

WAIT_S = 20.0
PROMPT = tuple(range(10, 70))
REQUEST = Request((PROMPT,), 5, n=3, sampling=Sampling(temperature=0.0), logprobs=1, diagnostics=True)
PLACES = [
    (Scheduler, "schedule"),
    (CachingSlots, "take"),
    (CachingSlots, "begin"),
    (CachingSlots, "start"),
    (KvCache, "reserve"),
    (KvCache, "_resize"),
    (KvCache, "reuse_prefix"),
    (KvCache, "extend"),
    (KvCache, "release"),
    (KvCache, "common_prefix"),
    (step, "plan_feed"),
    (step, "batch_of"),
    (step, "fill_masks"),
    (Drawing, "open"),
    (Drawing, "draw"),
    (Outputs, "logits"),
    (Recorder, "open"),
    (Recorder, "plan"),
    (Recorder, "inner"),
    (Recorder, "score"),
    (Recorder, "close"),
    (recorder, "diagnose"),
    (Expander, "begin_step"),
    (Expander, "dispatch"),
    (Expander, "forget"),
    (Walk, "begin"),
    (Walk, "advance"),
    (Decoder, "_schedule"),
    (Decoder, "_record"),
    (decode_thread, "sequences_of"),
    (decode_thread, "result_of"),
    (Admission, "took"),
]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A tiny model with two slots."""
    config = EngineConfig(model="tiny", max_running=2, grace_s=WAIT_S)
    made = Engine(config, load=lambda _: load_tiny(tmp_path), cache=SchemaCache(None))
    made.start()
    yield made
    made.stop()


def outcome(future: Future[Result]) -> type[Exception] | None:
    """What a request ended with; fails where it does not end."""
    error = future.exception(WAIT_S)
    assert error is None or isinstance(error, Exception)
    return None if error is None else type(error)


def fail(*_: Any, **__: Any) -> Any:
    """Not do what was asked."""
    raise RuntimeError("a bug")


@pytest.mark.parametrize(("owner", "name"), PLACES, ids=[name for _, name in PLACES])
def test_every_request_ends_and_the_next_is_answered(
    engine: Engine, owner: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three requests of three choices on two slots, while one place raises always: all end. Then all is as before."""
    expected = engine.submit("tiny", REQUEST).result(WAIT_S).choices
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        futures = [engine.submit("tiny", REQUEST) for _ in range(3)]
        assert {outcome(future) for future in futures} <= {EngineFailedError, None}
    assert engine.ready
    again = engine.submit("tiny", REQUEST).result(WAIT_S).choices
    assert [choice.token_ids for choice in expected] == [choice.token_ids for choice in again]
    assert 0 == engine.stats.running


def test_a_sequence_without_memory_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs goes on, and so do those behind it in the line."""
    loaded = load_tiny(tmp_path)
    decoder, resize = decoder_of(loaded, max_running=2), KvCache._resize
    runs, large, last = (rows_of(loaded, Request((PROMPT[:5],), size))[0] for size in (100, 300, 100))

    def short_of_memory(cache: KvCache, place: Any, capacity: int) -> None:
        if capacity > 200:
            raise MemoryError("no memory")
        resize(cache, place, capacity)

    monkeypatch.setattr(KvCache, "_resize", short_of_memory)
    run(decoder, [runs, large, last])
    assert [None, EngineFailedError, None] == [row.error and type(row.error) for row in (runs, large, last)]
    assert "MemoryError: no memory" in str(large.error)
    assert [1, 1] == [len(choice_of(row).text) > 0 for row in (runs, last)]


def test_a_sequence_that_got_no_slot_leaves_the_records_of_others(tmp_path: Path) -> None:
    """It bears the number of a slot that is another's."""
    loaded = load_tiny(tmp_path)
    decoder = decoder_of(loaded, max_running=1)
    first, second = (rows_of(loaded, Request((PROMPT,), 5, logprobs=1))[0] for _ in range(2))
    decoder.scheduler.add([first])
    decoder.step()
    decoder._recorder.close(second)
    run(decoder, [])
    assert 5 == len(first.logprobs)


def test_a_thread_that_breaks_off_leaves_nobody_waiting(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is under way ends with an error, and no more is taken; the engine is not ready any more."""
    monkeypatch.setattr(DecodeThread, "_has_work", fail)
    future = engine.submit("tiny", REQUEST)
    assert ShuttingDownError is outcome(future)
    with pytest.raises(ShuttingDownError):
        engine.submit("tiny", REQUEST)
    assert not engine.ready
