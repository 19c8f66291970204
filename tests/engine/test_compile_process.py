"""Compiling in processes: the same tables and errors as here, bounds that hold, and no process left behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine import compile_process
from engine.compile_process import CompileProcess
from engine.compile_processes import CompileProcesses
from engine.compiler_pool import CompilerPool
from engine.errors import EngineFailedError
from schemas_cache import (
    CompiledSchema,
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
from schemas_cache.limits import DEFAULT_LIMITS
from schemas_cache.work import StoppedError
from tests.toy import CHARACTERS, TOY

MADE_UP = "tests.engine.made_up_compiles:by_constant"
WAIT_S = 20.0
OBJECT: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def process() -> Iterator[CompileProcess]:
    """One worker for all tests of this file that leave it alive, or not."""
    process = CompileProcess(MADE_UP)
    yield process
    process.close()


def asks_for(deed: str) -> Source:
    """A schema that has the worker do something."""
    return schema_source({"const": deed})


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process is about to do."""
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it never happened"
        time.sleep(0.005)


def test_tables_are_those_of_a_compile_here(process: CompileProcess) -> None:
    """The same bytes, and the first masks are there already."""
    source = schema_source(OBJECT)
    here, there = compile_source(source, TOY), process.compile(source, TOY, DEFAULT_LIMITS)
    assert isinstance(there, CompiledSchema)
    assert here.minimum_tokens == there.minimum_tokens
    assert (here.matcher().mask() == there.matcher().mask()).all()
    for matcher in (here.matcher(), there.matcher()):
        matcher.advance_bytes(b'{"a": "')
        assert matcher.allows(9)
    assert there.rows_computed >= 2


def test_one_process_serves_several_vocabularies(process: CompileProcess) -> None:
    """Each is handed over once."""
    pids = set()
    for vocabulary in (TOY, CHARACTERS, TOY):
        assert vocabulary is process.compile(schema_source(OBJECT), vocabulary, DEFAULT_LIMITS).vocabulary
        pids.add(process.pid)
    assert 1 == len(pids)


def test_refusals_come_back_as_they_are(process: CompileProcess) -> None:
    """Class and findings, every field."""
    with pytest.raises(SchemaError) as caught:
        process.compile(asks_for("refuse"), TOY, DEFAULT_LIMITS)
    assert SchemaError is type(caught.value)
    expected = (Finding("#/a", "if", "no", "yes"), Finding("#", "", "", is_note=True))
    assert expected == caught.value.findings


def test_a_bug_is_an_error_of_the_engine(process: CompileProcess) -> None:
    """The process goes on."""
    pid = process.pid
    with pytest.raises(EngineFailedError, match="KeyError: 'x'"):
        process.compile(asks_for("fail"), TOY, DEFAULT_LIMITS)
    assert pid == process.pid


@pytest.mark.parametrize("deed", ["sleep", "count_slowly"])
def test_the_time_limit_holds_whatever_the_compile_is_at(process: CompileProcess, deed: str) -> None:
    """Asked by the clock where it looks at it, killed where it does not; the error names figure and limit."""
    with pytest.raises(CompileTimeoutError, match=r"took 0\.\d+ s.*limit is 0.1 s"):
        process.compile(asks_for(deed), TOY, Limits(compile_timeout_s=0.1))
    process.compile(schema_source(OBJECT), TOY, DEFAULT_LIMITS)


def test_the_limit_on_work_holds(process: CompileProcess) -> None:
    """And leaves the process as it was."""
    pid = process.pid
    with pytest.raises(SchemaTooComplexError, match=r"steps of work.*limit is 10,000"):
        process.compile(asks_for("count"), TOY, Limits(max_work=10_000))
    assert pid == process.pid


@pytest.mark.skipif(sys.platform != "linux", reason="the system bounds no address space")
def test_the_limit_on_memory_holds(process: CompileProcess) -> None:
    """The error names figure and limit, and the next compile works."""
    with pytest.raises(SchemaTooComplexError, match=r"more than 320 MB.*limit is 64 MB"):
        process.compile(asks_for("hoard"), TOY, Limits(max_memory_bytes=64 << 20))
    process.compile(schema_source(OBJECT), TOY, DEFAULT_LIMITS)


def test_a_process_that_dies_is_replaced(process: CompileProcess) -> None:
    """At its work: an error of the engine, since it may be nobody's fault. Between two compiles: nobody notices."""
    with pytest.raises(EngineFailedError, match="died by signal 9"):
        process.compile(asks_for("die"), TOY, DEFAULT_LIMITS)
    process.compile(schema_source(OBJECT), TOY, DEFAULT_LIMITS)
    assert process.pid is not None
    psutil.Process(process.pid).kill()
    psutil.Process(process.pid).wait(WAIT_S)
    process.compile(schema_source(OBJECT), TOY, DEFAULT_LIMITS)


@pytest.mark.parametrize("deed", ["sleep", "count_slowly"])
def test_a_compile_can_be_stopped(process: CompileProcess, deed: str) -> None:
    """Where it looks it stops by itself, else its process is killed."""
    process.prepare([TOY])
    stopping = threading.Timer(0.1, process.stop)
    stopping.start()
    with pytest.raises(StoppedError):
        process.compile(asks_for(deed), TOY, DEFAULT_LIMITS)
    stopping.join()


@pytest.fixture
def never_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process ever gets as far as reading its pipe."""
    monkeypatch.setattr(
        compile_process, "command", lambda *_: [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    )


@pytest.mark.usefixtures("never_ready")
def test_a_process_that_never_begins_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for it is told so, and it is gone."""
    monkeypatch.setattr(compile_process, "STARTING_S", 0.1)
    before = set(psutil.Process().children())
    one = CompileProcess(MADE_UP)
    with pytest.raises(EngineFailedError, match=r"did not start within 0\.1 s"):
        one.compile(schema_source(OBJECT), TOY, DEFAULT_LIMITS)
    assert one.pid is None
    assert set(psutil.Process().children()) <= before


@pytest.mark.usefixtures("never_ready")
def test_who_ends_the_work_does_not_wait_for_a_process_that_begins() -> None:
    """Neither asking it to stop nor the end of the pool does, though nobody reads the pipe; nothing is left behind."""
    before = set(psutil.Process().children())
    large = Vocabulary([b"", *(f"token {number}".encode() for number in range(50_000))], [0])  # no pipe holds it
    processes = CompileProcesses(1, MADE_UP)
    told: list[Exception] = []

    def work() -> None:
        try:
            processes(schema_source(OBJECT), large, limits=DEFAULT_LIMITS)
        except Exception as error:  # looked at below
            told.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: set(psutil.Process().children()) > before)
    processes.stop(schema_source(OBJECT), large)
    processes.close()
    thread.join(WAIT_S)
    assert [StoppedError] == list(map(type, told))
    assert set(psutil.Process().children()) <= before


def test_a_compile_that_everybody_left_is_stopped() -> None:
    """Its worker is free for the next, long before the compile would have ended."""
    processes = CompileProcesses(1, MADE_UP)
    pool = CompilerPool(SchemaCache(None, compile_function=processes), 1, processes)
    pool.start([TOY])
    told: list[Lookup | Exception] = []
    try:
        gone = pool.submit(asks_for("sleep"), TOY, 600.0, told.append)
        until(lambda: gone.flight is not None and gone.flight.begun_with is not None)
        pool.leave(gone)
        pool.submit(schema_source(OBJECT), TOY, WAIT_S, told.append)
        until(lambda: bool(told))
    finally:
        pool.stop()
    assert [Lookup] == list(map(type, told))


def test_who_asks_after_everybody_left_is_served() -> None:
    """The compile that is being stopped is not theirs: it begins again."""
    processes = CompileProcesses(1, MADE_UP)
    pool = CompilerPool(SchemaCache(None, compile_function=processes), 1, processes)
    pool.start([TOY])
    told: list[Lookup | Exception] = []
    try:
        gone = pool.submit(asks_for("count_slowly"), TOY, 600.0, told.append)
        until(lambda: gone.flight is not None and gone.flight.begun_with is not None)
        pool.leave(gone)
        pool.submit(asks_for("count_slowly"), TOY, 1.5, told.append)
        until(lambda: bool(told))
    finally:
        pool.stop()
    assert [CompileTimeoutError] == list(map(type, told))


def test_nothing_is_left_behind_by_a_stop() -> None:
    """Not even what is at work."""
    before = set(psutil.Process().children())
    processes = CompileProcesses(2, MADE_UP)
    pool = CompilerPool(SchemaCache(None, compile_function=processes), 2, processes)
    pool.start([TOY])
    at_work = pool.submit(asks_for("sleep"), TOY, 600.0, lambda _: None)
    until(lambda: at_work.flight is not None and at_work.flight.begun_with is not None)
    pool.stop()
    until(lambda: set(psutil.Process().children()) <= before)


@pytest.mark.parametrize("deed", [None, "sleep"])
def test_workers_end_when_their_parent_is_killed(deed: str | None) -> None:
    """Idle or at work: the end of the pipe ends them. None of them runs the main module, which has no guard here."""
    script = f"""
import sys, threading
from engine.compile_process import CompileProcess
from schemas_cache import Limits, schema_source
from tests.toy import TOY
process = CompileProcess({MADE_UP!r})
process.prepare([TOY])
print(process.pid, flush=True)
if {deed!r}:
    process.compile(schema_source({{"const": {deed!r}}}), TOY, Limits())
threading.Event().wait()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT, text=True) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        time.sleep(0.5 if deed else 0.0)  # until it is at work, most times
        parent.kill()
    psutil.wait_procs([worker], timeout=WAIT_S)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE  # of whoever reaps orphans here
