"""Schemas compiled for requests: once for equal ones, each request with its own patience, nobody in another's way."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.compiler_pool import CompilerPool, Order
from engine.errors import EngineFailedError
from schemas_cache import (
    CompileTimeoutError,
    Finding,
    Limits,
    Lookup,
    SchemaCache,
    SchemaError,
    SchemaTooComplexError,
    Source,
    Vocabulary,
    compile_source,
    schema_source,
)
from schemas_cache.limits import FAILURE_KEPT_S
from tests.toy import TOY

WAIT_S = 20.0


class Compiles:
    """A compile function that waits for `go` where the schema has an `enum`; `sources` are those it was asked for."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.sources: list[object] = []
        self.limits_s: list[float] = []
        self.error: Exception | None = None

    def __call__(self, source: Source, vocabulary: Vocabulary, *, limits: Limits) -> object:
        """Compile, sooner or later."""
        self.sources.append(source.content)
        self.limits_s.append(limits.compile_timeout_s)
        if "enum" in source.content:
            assert self.go.wait(WAIT_S)
        if self.error:
            raise self.error
        return compile_source(source, vocabulary)


@dataclass
class Asked:
    """A request of the test: what it was told, and how often."""

    told: list[Lookup | Exception] = field(default_factory=list)
    order: Order | None = None

    @property
    def answer(self) -> Lookup | Exception:
        """What it was told, awaited."""
        until(lambda: bool(self.told))
        (answer,) = self.told
        return answer


Ask = Callable[..., Asked]


@contextmanager
def pool_of(
    compiles: Compiles, workers: int = 1, memory_entries: int = 256, clock: Callable[[], float] = time.monotonic
) -> Iterator[tuple[CompilerPool, Ask]]:
    """A pool that runs, and a function that asks it for a schema."""
    cache = SchemaCache(None, compile_function=compiles, memory_entries=memory_entries)  # type: ignore[arg-type]
    pool = CompilerPool(cache, workers, clock=clock)
    pool.start()

    def ask(schema: dict[str, object], timeout_s: float = WAIT_S) -> Asked:
        asked = Asked()
        asked.order = pool.submit(schema_source(schema), TOY, timeout_s, asked.told.append)
        return asked

    try:
        yield pool, ask
    finally:
        compiles.go.set()
        pool.stop()


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread is about to do."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it never happened"
        time.sleep(0.002)


SLOW, OTHER_SLOW, QUICK = {"enum": ["a"]}, {"enum": ["b"]}, {"const": 1}


def test_equal_requests_take_one_worker() -> None:
    """While twenty wait for one schema, the second worker serves another; all twenty get the first's compile."""
    compiles = Compiles()
    with pool_of(compiles, workers=2) as (_, ask):
        waiting = [ask(SLOW) for _ in range(20)]
        until(lambda: len(compiles.sources) == 1)
        assert isinstance(ask(QUICK).answer, Lookup)
        compiles.go.set()
        answers = [asked.answer for asked in waiting]
    assert ["miss"] * 20 == [answer.tier for answer in answers if isinstance(answer, Lookup)]
    assert 1 == len({id(answer.compiled) for answer in answers if isinstance(answer, Lookup)})
    assert [SLOW, QUICK] == compiles.sources


def test_time_that_a_parked_request_waited_is_its_own() -> None:
    """The first waited longer than the one that came later."""
    compiles = Compiles()
    with pool_of(compiles) as (_, ask):
        first = ask(SLOW)
        until(lambda: len(compiles.sources) == 1)
        time.sleep(0.02)
        second = ask(SLOW)
        compiles.go.set()
        answers = first.answer, second.answer
    assert all(isinstance(answer, Lookup) for answer in answers)
    assert answers[0].compile_ms >= answers[1].compile_ms + 19  # type: ignore[union-attr]


def test_each_request_has_its_own_time_limit() -> None:
    """One on the same compile gives up at its limit, named as it was asked for, while the compile goes on."""
    compiles = Compiles()
    with pool_of(compiles) as (_, ask):
        patient = ask(SLOW)
        hasty = ask(SLOW, 0.0125)
        error = hasty.answer
        assert isinstance(error, CompileTimeoutError)
        assert "not compiled within 0.0125 s" in str(error)
        assert not patient.told
        compiles.go.set()
        assert isinstance(patient.answer, Lookup)


def test_time_limit_in_line_for_a_worker() -> None:
    """Whoever waits behind another's compile hears of the end of its time without waiting for it."""
    compiles = Compiles()
    with pool_of(compiles) as (_, ask):
        ask(SLOW)
        until(lambda: len(compiles.sources) == 1)
        assert isinstance(ask(QUICK, 0.01).answer, CompileTimeoutError)
        compiles.go.set()
        assert isinstance(ask(OTHER_SLOW).answer, Lookup)
    assert QUICK not in compiles.sources


def test_a_compile_that_times_out_names_the_limit_asked_for() -> None:
    """Not what was left of it when the compile began."""
    compiles = Compiles()
    compiles.error = CompileTimeoutError([Finding("#", "", "compiling took longer than 4.98 s")])
    with pool_of(compiles) as (_, ask):
        error = ask(QUICK, 5.0).answer
    assert isinstance(error, CompileTimeoutError)
    (finding,) = error.findings
    assert re.fullmatch(r"not compiled within 5 s, the limit: it has taken 0\.\d\d s so far", finding.reason)


def test_who_came_later_compiles_again_with_the_time_left() -> None:
    """The compile had the first one's limit; the other boarded it and has more time."""
    compiles = Compiles()
    compiles.error = CompileTimeoutError([Finding("#", "", "compiling took too long")])
    with pool_of(compiles) as (_, ask):
        first = ask(SLOW, WAIT_S / 2)
        until(lambda: len(compiles.sources) == 1)
        second = ask(SLOW, WAIT_S)
        until(lambda: second.order is not None and second.order.flight is not None)
        compiles.go.set()
        assert isinstance(first.answer, CompileTimeoutError)
        assert isinstance(second.answer, CompileTimeoutError)
    assert [SLOW, SLOW] == compiles.sources
    assert compiles.limits_s[0] <= WAIT_S / 2 < compiles.limits_s[1]


def test_a_flight_may_take_as_long_as_its_most_patient_request() -> None:
    """Those that wait when it begins are looked at together."""
    compiles = Compiles()
    with pool_of(compiles) as (_, ask):
        ask(SLOW)
        until(lambda: len(compiles.sources) == 1)
        waiting = [ask(OTHER_SLOW, timeout_s) for timeout_s in (WAIT_S / 4, WAIT_S, WAIT_S / 2)]
        until(lambda: all(asked.order is not None and asked.order.flight is not None for asked in waiting))
        compiles.go.set()
        assert all(isinstance(asked.answer, Lookup) for asked in waiting)
    assert WAIT_S / 2 < compiles.limits_s[1] <= WAIT_S


def test_a_compile_that_everybody_left_before_it_began_is_dropped() -> None:
    """Nobody is told, and the worker goes on with the next."""
    compiles = Compiles()
    with pool_of(compiles) as (pool, ask):
        ask(SLOW)
        until(lambda: len(compiles.sources) == 1)
        gone = [ask(OTHER_SLOW) for _ in range(3)]
        stays = ask(QUICK)
        for asked in gone:
            assert asked.order is not None
            pool.leave(asked.order)
        compiles.go.set()
        assert isinstance(stays.answer, Lookup)
    assert [SLOW, QUICK] == compiles.sources
    assert [[], [], []] == [asked.told for asked in gone]


def test_leaving_takes_nothing_from_those_who_stay() -> None:
    """One of two leaves a compile that has not begun; the other gets it."""
    compiles = Compiles()
    with pool_of(compiles) as (pool, ask):
        ask(SLOW)
        until(lambda: len(compiles.sources) == 1)
        leaves, stays = ask(QUICK), ask(QUICK)
        assert leaves.order is not None
        pool.leave(leaves.order)
        compiles.go.set()
        assert isinstance(stays.answer, Lookup)
    assert [] == leaves.told


def test_a_compile_under_way_is_kept_although_everybody_left() -> None:
    """The next one finds it in memory."""
    compiles = Compiles()
    with pool_of(compiles) as (pool, ask):
        gone = ask(SLOW)
        until(lambda: len(compiles.sources) == 1)
        assert gone.order is not None
        pool.leave(gone.order)
        compiles.go.set()
        assert isinstance(ask(SLOW).answer, Lookup)
        again = ask(SLOW).answer
    assert isinstance(again, Lookup)
    assert ("memory", 1) == (again.tier, len(compiles.sources))


def test_a_refusal_answers_for_a_minute() -> None:
    """All on the flight hear of it, and who asks later is told the same without a compile; then it is tried again."""
    compiles, now_s = Compiles(), [100.0]
    compiles.error = SchemaTooComplexError([Finding("#", "", "31 states, and the limit is 30")])
    with pool_of(compiles, clock=lambda: now_s[0]) as (_, ask):
        waiting = [ask(SLOW) for _ in range(3)]
        until(lambda: len(compiles.sources) == 1)
        compiles.go.set()
        answers = [asked.answer for asked in waiting]
        now_s[0] += FAILURE_KEPT_S - 1
        answers.append(ask(SLOW).answer)
        assert [SLOW] == compiles.sources
        compiles.error = None
        now_s[0] += 1
        assert isinstance(ask(SLOW).answer, Lookup)
    assert [SchemaTooComplexError] * 4 == [type(answer) for answer in answers]
    assert {"at #: 31 states, and the limit is 30"} == set(map(str, answers))
    assert 4 == len(set(map(id, answers)))  # raising an error writes into it


def test_a_refusal_waits_for_no_worker() -> None:
    """While the only worker is busy."""
    compiles = Compiles()
    with pool_of(compiles) as (_, ask):
        compiles.error = SchemaError([Finding("#", "if", "no")])
        assert isinstance(ask(QUICK).answer, SchemaError)
        ask(SLOW)
        until(lambda: len(compiles.sources) == 2)
        assert isinstance(ask(QUICK).answer, SchemaError)
        assert not compiles.go.is_set()


def test_what_is_on_disk_waits_for_no_worker(tmp_path: Path) -> None:
    """While the only worker is busy."""
    first = SchemaCache(tmp_path)
    first.get(schema_source(QUICK), TOY)
    first.close()
    compiles = Compiles()
    cache = SchemaCache(tmp_path, compile_function=compiles)  # type: ignore[arg-type]
    pool = CompilerPool(cache, 1)
    pool.start()
    told: list[Lookup | Exception] = []
    try:
        pool.submit(schema_source(SLOW), TOY, WAIT_S, lambda _: None)
        until(lambda: len(compiles.sources) == 1)
        pool.submit(schema_source(QUICK), TOY, WAIT_S, told.append)
        until(lambda: bool(told))
    finally:
        compiles.go.set()
        pool.stop()
        cache.close()
    assert ["disk"] == [answer.tier for answer in told if isinstance(answer, Lookup)]


def test_a_time_limit_that_was_broken_answers_those_with_no_more_time() -> None:
    """Who has more time compiles again."""
    compiles = Compiles()
    compiles.error = CompileTimeoutError([Finding("#", "", "made up")])
    with pool_of(compiles) as (_, ask):
        assert isinstance(ask(QUICK, 5.0).answer, CompileTimeoutError)
        assert isinstance(ask(QUICK, 4.0).answer, CompileTimeoutError)
        assert isinstance(ask(QUICK, 5.0).answer, CompileTimeoutError)  # some microseconds more are left of it
        assert [QUICK] == compiles.sources
        compiles.error = None
        assert isinstance(ask(QUICK, 6.0).answer, Lookup)


def test_a_fault_that_is_not_the_schemas_is_not_remembered() -> None:
    """All on the flight hear of it; the next request compiles again."""
    compiles = Compiles()
    compiles.error = KeyError("x")
    with pool_of(compiles) as (_, ask):
        waiting = [ask(SLOW) for _ in range(3)]
        until(lambda: len(compiles.sources) == 1)
        compiles.go.set()
        assert [EngineFailedError] * 3 == [type(asked.answer) for asked in waiting]
        compiles.error = None
        assert isinstance(ask(SLOW).answer, Lookup)


def test_a_schema_that_cannot_be_read_is_refused_at_once() -> None:
    """Its digest needs it read: the thread in front says what is wrong."""
    with pool_of(Compiles()) as (_, ask):
        deep: dict[str, object] = {}
        for _ in range(100):
            deep = {"items": deep}
        assert isinstance(ask(deep).answer, SchemaTooComplexError)


def test_a_schema_that_was_forgotten_goes_to_a_worker() -> None:
    """The thread in front compiles nothing."""
    compiles = Compiles()
    with pool_of(compiles, memory_entries=1) as (_, ask):
        assert isinstance(ask(QUICK).answer, Lookup)
        assert isinstance(ask({"maxLength": 3}).answer, Lookup)  # drives out the other
        assert isinstance(ask(QUICK).answer, Lookup)
    assert [QUICK, {"maxLength": 3}, QUICK] == compiles.sources


def test_nothing_is_taken_after_the_stop() -> None:
    """And what waited for a worker is never compiled."""
    compiles = Compiles()
    with pool_of(compiles) as (pool, ask):
        ask(SLOW)
        until(lambda: len(compiles.sources) == 1)
        ask(QUICK)
        pool.stop()
        compiles.go.set()
        with pytest.raises(RuntimeError, match="stopped"):
            ask(QUICK)
    assert [SLOW] == compiles.sources
