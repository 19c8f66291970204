"""Rows that wait for states: the others go on, and no text depends on who waited for how long."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

from engine import expander
from engine.constraint import Walk
from engine.expander import Expander, Held
from engine.request import Request, Sampling
from engine.sequence import Sequence
from engine.step import Decoder
from schemas_cache import Limits, SchemaTooComplexError, Vocabulary, compile_source, schema_source
from schemas_cache.work import GrowthLock, Haste, NotNowError, working
from tests.toy import CHARACTERS, TOY, ToyModel, decode, decoder_for, given, random_logits, rows_for

SCHEMAS: list[dict[str, Any]] = [
    {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "integer"}}},
    {"type": "array", "items": {"anyOf": [{"const": "ab"}, {"type": "integer"}]}, "maxItems": 6},
    {"type": "string", "maxLength": 9},
    {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}]},
]
LAZY = Limits(max_dense_entries=0)  # no table of all states
Rehearse = Callable[[Walk, Sequence, int | None], None]


def request(schema: dict[str, Any] | None, seed: int, **fields: Any) -> Request:
    """One prompt, and a schema or none; a limit that many texts come near to."""
    source = None if schema is None else schema_source(schema)
    sampling = Sampling(seed=seed)
    return Request(**({"prompts": ((9,),), "source": source, "sampling": sampling, "max_tokens": 12} | fields))


def lazy(one: Request, vocabulary: Vocabulary, seed: int = 0, limits: Limits = LAZY) -> Sequence:
    """The row of a request, none of whose states has been visited."""
    (row,) = rows_for(one, vocabulary, seed)
    if one.source is not None:
        row.matcher = compile_source(one.source, vocabulary, limits=limits).matcher()
    return row


def crowd(**fields: Any) -> list[Sequence]:
    """Three rows for each schema."""
    requests = [request(schema, seed, **fields) for seed in range(3) for schema in SCHEMAS]
    return [lazy(one, CHARACTERS, number) for number, one in enumerate(requests)]


def texts(rows: list[Sequence]) -> list[tuple[list[int], str | None, bool]]:
    """What became of rows, and why they ended."""
    return [(row.token_ids, row.stop_reason, row.closed_early) for row in rows]


def decoder() -> Decoder:
    """A model whose choices look random."""
    return decoder_for(CHARACTERS, ToyModel(len(CHARACTERS), random_logits(len(CHARACTERS))), max_running=16)


def slowed(monkeypatch: pytest.MonkeyPatch, before: Callable[[], object]) -> list[Sequence]:
    """Do all work beside, after `before`; returns the rows that it is done for, as they come."""
    seen: list[Sequence] = []
    rehearse: Rehearse = Walk.rehearse

    def slow(walk: Walk, row: Sequence, token_id: int | None) -> None:
        seen.append(row)
        before()
        rehearse(walk, row, token_id)

    monkeypatch.setattr(expander, "INLINE_WORK", 0)
    monkeypatch.setattr(Walk, "rehearse", slow)
    return seen


@contextmanager
def blocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Event, list[Sequence]]]:
    """No work is done beside before the event is set."""
    go = threading.Event()
    try:
        yield go, slowed(monkeypatch, lambda: go.wait(20))
    finally:
        go.set()


@pytest.mark.parametrize("on_limit", ["close", "truncate"])
def test_texts_do_not_depend_on_waits(monkeypatch: pytest.MonkeyPatch, on_limit: str) -> None:
    """The same with everything worked out at once, and with waits of random length before every new state."""
    at_once = crowd(on_limit=on_limit)
    decode(decoder(), at_once)
    waits = random.Random(7)
    seen = slowed(monkeypatch, lambda: time.sleep(waits.random() * 0.002))
    waiting = crowd(on_limit=on_limit)
    decode(decoder(), waiting, most_steps=100_000)
    assert texts(at_once) == texts(waiting)
    assert len(seen) > len(waiting)


def test_probabilities_do_not_depend_on_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of tokens that were taken after their step are the ones of the step in which they were drawn."""
    at_once = crowd(logprobs=2)
    decode(decoder(), at_once)
    slowed(monkeypatch, lambda: None)
    waiting = crowd(logprobs=2)
    decode(decoder(), waiting, most_steps=100_000)
    assert [row.logprobs for row in at_once] == [row.logprobs for row in waiting]
    assert all(len(row.logprobs) == len(row.token_ids) for row in waiting)


def test_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row whose schema is being worked on has no token yet when a row beside it has twenty."""
    with blocked(monkeypatch) as (go, seen):
        bound, free = lazy(request(SCHEMAS[0], 0), TOY), lazy(request(None, 1, max_tokens=20), TOY)
        one = decoder_for(TOY, ToyModel(len(TOY), given(len(TOY), {9: 50.0})))
        assert [free] == _until_over(one, [bound, free])
        assert (20, 0) == (len(free.token_ids), len(bound.token_ids))
        go.set()
        assert [bound] == _until_over(one, [])
    assert bound.complete
    assert {bound} == set(seen)


def _until_over(one: Decoder, rows: list[Sequence]) -> list[Sequence]:
    """Step until something is over."""
    one.scheduler.add(rows)
    deadline_s = time.monotonic() + 20
    while not (over := one.step()):
        assert time.monotonic() < deadline_s, "nothing ended"
    return over


def test_who_has_nothing_else_to_do_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all rows wait for states; not where another model's rows have work, nor where one row can go on."""
    waits: list[float] = []
    ready = Expander.ready

    def looked_at(self: Expander, wait_s: float) -> list[Held]:
        waits.append(wait_s)
        return ready(self, 0.0)

    monkeypatch.setattr(Expander, "ready", looked_at)
    with blocked(monkeypatch):
        one = decoder_for(TOY, ToyModel(len(TOY), given(len(TOY), {9: 50.0})))
        one.scheduler.add([lazy(request(SCHEMAS[0], 0), TOY)])
        assert ([], False) == (one.step(), one.scheduler.idle)
        assert one.stalled
        one.step()
        one.step(may_wait=False)
        one.scheduler.add([lazy(request(None, 1, max_tokens=20), TOY)])
        one.step()
        assert not one.stalled
        one.step()
    assert [expander.WAIT_S, 0.0, expander.WAIT_S, 0.0] == waits


def test_the_last_to_leave_puts_the_switch_interval_back() -> None:
    """The expanders of several models come and go in any order."""
    before_s, switching = sys.getswitchinterval(), expander.Switching()
    with ExitStack() as first, ExitStack() as last:
        first.enter_context(switching)
        last.enter_context(switching)
        first.close()
        assert expander.SWITCH_INTERVAL_S == pytest.approx(sys.getswitchinterval())
    assert before_s == sys.getswitchinterval()


def test_a_row_that_is_dropped_while_it_waits_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its slot goes to the next row; the work that was done for it changes nothing."""
    with blocked(monkeypatch) as (go, _):
        bound, free = lazy(request(SCHEMAS[0], 0), TOY), lazy(request(None, 1, max_tokens=20), TOY)
        one = decoder_for(TOY, ToyModel(len(TOY), given(len(TOY), {9: 50.0})), max_running=1)
        one.scheduler.add([bound])
        one.step()
        one.scheduler.drop(bound.job)
        go.set()
        assert [free] == _until_over(one, [free])
    assert ([], None) == (bound.token_ids, bound.stop_reason)


def test_a_state_beyond_the_limit_fails_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the figure and the limit; the row beside it is decoded."""
    monkeypatch.setattr(expander, "INLINE_WORK", 0)
    bound = lazy(request(SCHEMAS[3], 0), TOY, limits=Limits(max_expansion_work=10, max_dense_entries=0))
    free = lazy(request(None, 1, max_tokens=5), TOY)
    one = decoder_for(TOY, ToyModel(len(TOY), given(len(TOY), {9: 50.0})))
    over = decode(one, [bound, free])
    assert {bound, free} == set(over)
    assert isinstance(bound.error, SchemaTooComplexError)
    assert "the limit is 10" in str(bound.error)
    assert (None, 5) == (free.error, len(free.token_ids))


def test_little_work_is_done_in_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread is started for small schemas."""
    monkeypatch.setattr(Walk, "rehearse", lambda *_: pytest.fail("nothing had to wait"))
    rows = crowd()
    decode(decoder(), rows)
    assert all(row.error is None for row in rows)


def test_who_is_in_haste_does_not_wait_for_a_lock() -> None:
    """While another thread lets an automaton grow."""
    lock, held, go = GrowthLock(), threading.Event(), threading.Event()

    def grow() -> None:
        with lock:
            held.set()
            go.wait(20)

    thread = threading.Thread(target=grow)
    thread.start()
    held.wait(20)
    with working(Haste(100)), pytest.raises(NotNowError), lock:
        pytest.fail("it was free")
    go.set()
    thread.join()
    with working(Haste(100)), lock, lock:
        pass


def test_a_row_goes_back_to_where_it_was() -> None:
    """What was appended and advanced since is taken back."""
    row = lazy(request(SCHEMAS[2], 0), TOY)
    assert row.matcher is not None
    row.matcher.advance(2)
    row.token_ids.append(2)
    row.data += b'"'
    before, state = expander.Mark.of(row), row.matcher.state
    row.matcher.advance(9)
    row.matcher.advance(10)
    row.token_ids += [9, 10]
    row.pending += [9, 10]
    row.data += b"ab"
    row.forced_tokens += 1
    before.restore(row)
    assert (state, [2], b'"', 0) == (row.matcher.state, row.token_ids, bytes(row.data), row.forced_tokens)
    assert np.array_equal([9], row.pending)
