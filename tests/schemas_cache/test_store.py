"""Each schema is compiled once: by one thread of many, by one process of several, and not again after a restart."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from schemas_cache import memory
from schemas_cache.codec import Bytes, unpack
from schemas_cache.disk import DiskTier
from schemas_cache.entries import cache_key, row_name, tables_entry, tables_from
from schemas_cache.errors import CompileTimeoutError, Finding, SchemaError
from schemas_cache.limits import Limits
from schemas_cache.store import Lookup, SchemaCache
from tests.schemas_cache.fake_compiled import (
    VOCABULARY,
    CountingCompiler,
    FakeCompiled,
    open_cache,
    rows,
    source,
)

ROOT = Path(__file__).parents[2]
KEY = cache_key(source(), VOCABULARY)
LARGE_FILLING = "x" * 100_000  # too much for the database: the entry is a file


@pytest.fixture
def compiler(tmp_path: Path) -> CountingCompiler:
    """A compiler that counts its calls."""
    return CountingCompiler(tmp_path / "compiles")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for a cache, not created yet."""
    return tmp_path / "cache"


def fake(lookup: Lookup) -> FakeCompiled:
    """The fake inside a lookup."""
    compiled: object = lookup.compiled
    assert isinstance(compiled, FakeCompiled)
    return compiled


def wait_until(condition: Callable[[], bool]) -> None:
    """Return as soon as a condition holds; fail when it does not within ten seconds."""
    give_up_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up_s
        time.sleep(0.005)


# Tiers


def test_miss_then_memory_then_disk(folder: Path, compiler: CountingCompiler) -> None:
    """The first call compiles, the second finds it in memory, the first after a restart on disk."""
    first = open_cache(folder, compiler)
    tiers = [first.get(source(), VOCABULARY).tier, first.get(source(), VOCABULARY).tier]
    first.close()
    second = open_cache(folder, compiler)
    tiers += [second.get(source(), VOCABULARY).tier, second.get(source(), VOCABULARY).tier]
    second.close()
    assert tiers == ["miss", "memory", "disk", "memory"]
    assert compiler.calls == 1


def test_what_comes_from_disk_is_what_was_compiled(folder: Path, compiler: CountingCompiler) -> None:
    """Tables survive the round trip, large ones too."""
    compiler.filling = LARGE_FILLING
    cache = open_cache(folder, compiler)
    cache.get(source(), VOCABULARY)
    cache.close()
    cache = open_cache(folder, compiler)
    assert fake(cache.get(source(), VOCABULARY)).filling == LARGE_FILLING
    cache.close()


def test_the_call_that_compiles_says_what_it_paid(compiler: CountingCompiler) -> None:
    """A compile of 30 ms costs the miss at least that, and the hit less."""
    compiler.delay_s = 0.03
    cache = open_cache(None, compiler)
    miss, hit = cache.get(source(), VOCABULARY), cache.get(source(), VOCABULARY)
    assert miss.compile_ms >= 30 > hit.compile_ms >= 0


def test_other_sources_are_other_entries(folder: Path, compiler: CountingCompiler) -> None:
    """Two sources are compiled both and never mixed up."""
    cache = open_cache(folder, compiler)
    digests = [fake(cache.get(source(n), VOCABULARY)).digest for n in (0, 1, 0, 1)]
    cache.close()
    assert digests == [source(n).digest for n in (0, 1, 0, 1)]
    assert compiler.calls == 2


def test_without_a_folder_nothing_is_written(
    compiler: CountingCompiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory only: hits in memory, no file, no thread, and flush and close do nothing."""
    monkeypatch.chdir(tmp_path)
    before = set(threading.enumerate())
    cache = open_cache(None, compiler)
    tiers = [cache.get(source(), VOCABULARY).tier for _ in range(2)]
    cache.flush()
    cache.close()
    assert tiers == ["miss", "memory"]
    assert [path.name for path in tmp_path.iterdir()] == ["compiles"]
    assert set(threading.enumerate()) <= before


def test_the_least_recently_used_leave_memory(compiler: CountingCompiler) -> None:
    """With room for two, the third pushes out the one not used since."""
    cache = open_cache(None, compiler, memory_entries=2)
    tiers = [cache.get(source(n), VOCABULARY).tier for n in (0, 1, 0, 2, 0, 1)]
    assert tiers == ["miss", "miss", "memory", "miss", "memory", "miss"]


def test_memory_is_bounded_by_bytes(folder: Path, compiler: CountingCompiler) -> None:
    """Tables of 100 kB under a bound of 250 kB: two stay, and the latest stays under any bound."""
    compiler.filling = LARGE_FILLING
    cache = open_cache(folder, compiler, memory_bytes=250_000)
    for number in range(4):
        cache.get(source(number), VOCABULARY)
        cache.flush()
    tiers = [cache.get(source(n), VOCABULARY).tier for n in (3, 2, 0)]
    cache.close()
    assert tiers == ["memory", "memory", "disk"]


def test_memory_is_bounded_after_learning_too(compiler: CountingCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that grows beyond the bound while it is used pushes out the others at the next look."""
    monkeypatch.setattr(memory, "TRIM_EVERY_S", -1.0)
    cache = open_cache(None, compiler, memory_bytes=50_000)
    first, second = fake(cache.get(source(0), VOCABULARY)), fake(cache.get(source(1), VOCABULARY))
    second.learn(*range(60))
    assert (first.size_bytes, second.size_bytes) == (0, 60_000)
    tiers = [cache.get(source(n), VOCABULARY).tier for n in (1, 0, 1)]
    assert tiers == ["memory", "miss", "miss"]


def test_options_reach_the_source(compiler: CountingCompiler) -> None:
    """`compile_schema` tells schemas apart by every option, and equal ones not."""
    cache = open_cache(None, compiler)
    cache.compile_schema({"type": "integer"}, VOCABULARY)
    cache.compile_schema({"type": "integer"}, VOCABULARY, whitespace="spaced", strict=True)
    cache.compile_schema({"type": "integer"}, VOCABULARY, whitespace="compact")
    assert compiler.calls == 2


# Single flight among threads


def test_sixteen_threads_compile_once(folder: Path, compiler: CountingCompiler) -> None:
    """Sixteen threads that ask for one new source at once share one compile."""
    compiler.delay_s = 0.2
    cache = open_cache(folder, compiler)
    start = threading.Barrier(16)

    def ask() -> Lookup:
        start.wait()
        return cache.get(source(), VOCABULARY)

    with ThreadPoolExecutor(16) as pool:
        lookups = [future.result() for future in [pool.submit(ask) for _ in range(16)]]
    cache.close()
    assert compiler.calls == 1
    assert len({id(lookup.compiled) for lookup in lookups}) == 1
    assert {lookup.tier for lookup in lookups} <= {"miss", "memory"}


def ask_together(cache: SchemaCache, compiler: CountingCompiler, number: int) -> list[Future[Lookup]]:
    """Have threads ask for one source while the compiler's gate is shut; open it once all of them wait."""
    compiler.gate.clear()
    pool = ThreadPoolExecutor(number)
    futures = [pool.submit(cache.get, source(), VOCABULARY) for _ in range(number)]
    wait_until(lambda: waiting_threads() == number)
    compiler.gate.set()
    pool.shutdown()
    return futures


def waiting_threads() -> int:
    """How many threads of a pool stand still in a wait of `threading`: in the compiler's gate or for its result."""
    frames = sys._current_frames()
    pool = [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]
    stacks = [traceback.extract_stack(frames[thread.ident]) for thread in pool if thread.ident in frames]
    return sum(stack[-1].name == "wait" and any(call.name == "get" for call in stack) for stack in stacks)


def test_who_waits_for_a_compile_says_miss(compiler: CountingCompiler) -> None:
    """All who waited paid for the compile: none says memory."""
    futures = ask_together(open_cache(None, compiler), compiler, 4)
    assert [future.result().tier for future in futures] == ["miss"] * 4
    assert compiler.calls == 1


def test_an_error_reaches_all_who_wait_and_is_not_kept(compiler: CountingCompiler) -> None:
    """One failed compile fails the four who asked, with the same error; the next call compiles."""
    cache = open_cache(None, compiler)
    error = SchemaError([Finding("#", "pattern", "broken")])
    compiler.errors = [error]
    futures = ask_together(cache, compiler, 4)
    assert [future.exception() for future in futures] == [error] * 4
    assert cache.get(source(), VOCABULARY).tier == "miss"
    assert compiler.calls == 2


def test_an_interrupt_is_not_shared(compiler: CountingCompiler) -> None:
    """Where the compiling thread is interrupted, another one compiles for the rest."""
    compiler.errors = [KeyboardInterrupt()]
    futures = ask_together(open_cache(None, compiler), compiler, 3)
    assert sorted(repr(future.exception()) for future in futures) == ["KeyboardInterrupt()", "None", "None"]
    assert compiler.calls == 2


def test_who_is_in_a_hurry_does_not_wait(compiler: CountingCompiler) -> None:
    """A caller with little time gives up while another's compile goes on."""
    cache = open_cache(None, compiler)
    compiler.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        patient = pool.submit(cache.get, source(), VOCABULARY)
        wait_until(lambda: compiler.calls == 1)
        with pytest.raises(CompileTimeoutError, match=r"longer than 0\.05 s"):
            cache.get(source(), VOCABULARY, timeout_s=0.05)
        compiler.gate.set()
        assert patient.result().tier == "miss"
    assert compiler.calls == 1


def test_a_hurried_caller_does_not_fail_a_patient_one(compiler: CountingCompiler) -> None:
    """A compile cut off by its caller's own limit is repeated for one who waited with more time."""
    cache = open_cache(None, compiler)
    compiler.errors = [CompileTimeoutError([Finding("#", "", "too slow")])]
    compiler.gate.clear()
    with ThreadPoolExecutor(2) as pool:
        hurried = pool.submit(cache.get, source(), VOCABULARY, 5)
        wait_until(lambda: compiler.calls == 1)
        patient = pool.submit(cache.get, source(), VOCABULARY)
        wait_until(lambda: waiting_threads() == 2)
        compiler.gate.set()
        assert isinstance(hurried.exception(), CompileTimeoutError)
        assert patient.result().tier == "miss"
    assert compiler.calls == 2


@pytest.mark.parametrize(("timeout_s", "expected_s"), [(None, 7), (3, 3), (9, 7)])
def test_the_limit_holds_and_may_be_shortened(
    compiler: CountingCompiler, timeout_s: float | None, expected_s: float
) -> None:
    """The compiler gets the cache's limit or the caller's, whichever is less, but for the time already spent."""
    open_cache(None, compiler, limits=Limits(compile_timeout_s=7)).get(source(), VOCABULARY, timeout_s)
    assert expected_s - 1 < compiler.limits[0].compile_timeout_s <= expected_s


# Single flight among processes

CHILD = """
import pathlib, sys, time
from tests.schemas_cache.fake_compiled import ROW_BYTES, VOCABULARY, CountingCompiler, open_cache, source
folder, log, delay_s, ending = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
cache = open_cache(folder, CountingCompiler(log, delay_s))
print("ready", flush=True)
sys.stdin.readline()
lookup = cache.get(source(), VOCABULARY)
print(lookup.tier, flush=True)
if ending == "learn":
    lookup.compiled.learn(1, 2)
elif ending == "close":
    cache.close()
"""


def start_child(folder: Path, log: Path, delay_s: float = 0.0, ending: str = "close") -> subprocess.Popen[str]:
    """Start a process that opens the cache and is ready to ask."""
    command = [sys.executable, "-W", "error", "-c", CHILD, str(folder), str(log), str(delay_s), ending]
    child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def let_go(child: subprocess.Popen[str]) -> None:
    """Have a child ask."""
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def test_two_processes_compile_once(folder: Path, compiler: CountingCompiler) -> None:
    """Of two processes that ask for one new source at once, one compiles and the other reads what it wrote."""
    children = [start_child(folder, compiler.log, delay_s=0.5) for _ in range(2)]
    for child in children:
        let_go(child)
    tiers = sorted(child.communicate(timeout=30)[0].strip() for child in children)
    assert tiers == ["disk", "miss"]
    assert [child.returncode for child in children] == [0, 0]
    assert compiler.calls == 1


@pytest.mark.timeout(40)
def test_a_process_killed_while_compiling_blocks_nobody(folder: Path, compiler: CountingCompiler) -> None:
    """After `kill -9` of the one that compiles, the next compiles at once."""
    with start_child(folder, compiler.log, delay_s=3600) as child:
        let_go(child)
        wait_until(lambda: compiler.calls == 1)
        child.kill()
    cache = open_cache(folder, compiler, limits=Limits(compile_timeout_s=3600))
    assert cache.get(source(), VOCABULARY).tier == "miss"
    cache.close()


def test_a_process_that_hangs_blocks_for_half_the_time(folder: Path, compiler: CountingCompiler) -> None:
    """Where another process keeps the lock, the rest of the time goes into a compile of one's own."""
    with start_child(folder, compiler.log, delay_s=3600) as child:
        let_go(child)
        wait_until(lambda: compiler.calls == 1)
        cache = open_cache(folder, compiler)
        assert cache.get(source(), VOCABULARY, timeout_s=2).tier == "miss"
        assert 0 < compiler.limits[0].compile_timeout_s <= 1
        cache.close()
        child.kill()


# Writing behind


def test_exit_without_close_writes(folder: Path, compiler: CountingCompiler) -> None:
    """A process that just ends leaves its tables and the rows learnt last, and does not hang."""
    with start_child(folder, compiler.log, ending="learn") as child:
        let_go(child)
        assert child.communicate(timeout=30)[0] == "miss\n"
    cache = open_cache(folder, compiler)
    lookup = cache.get(source(), VOCABULARY)
    assert (lookup.tier, fake(lookup).known, fake(lookup).find(1, 2, 3)) == ("disk", {1, 2}, [True, True, False])
    cache.close()


def test_a_forgotten_cache_writes_and_ends_its_thread(folder: Path, compiler: CountingCompiler) -> None:
    """A cache that is collected without `close` leaves its tables, and no thread."""
    before = set(threading.enumerate())
    cache = open_cache(folder, compiler)
    cache.get(source(), VOCABULARY)
    started = set(threading.enumerate()) - before
    del cache
    gc.collect()
    assert [thread.is_alive() for thread in started] == [False]
    assert DiskTier(folder).get(KEY) is not None


def stored_states(folder: Path) -> set[int]:
    """States on disk."""
    entry = DiskTier(folder).get(KEY)
    return set() if entry is None else set(unpack(tables_from(entry, KEY))[0]["known"])


def stored_rows(folder: Path) -> list[int]:
    """The numbers up to ten whose rows are on disk."""
    disk = DiskTier(folder)
    return [n for n in range(10) for name in rows(n) if disk.rows.find(VOCABULARY, row_name(KEY, name)) is not None]


def test_writing_behind_needs_no_flush(folder: Path, compiler: CountingCompiler) -> None:
    """Tables are written at once, what is learnt later after the delay; after a hit on disk too."""
    cache = open_cache(folder, compiler, write_delay_s=0.02)
    compiled = fake(cache.get(source(), VOCABULARY))
    wait_until(lambda: DiskTier(folder).get(KEY) is not None)
    compiled.learn(1)
    wait_until(lambda: (stored_states(folder), stored_rows(folder)) == ({1}, [1]))
    cache.close()
    cache = open_cache(folder, compiler, write_delay_s=0.02)
    fake(cache.get(source(), VOCABULARY)).learn(2)
    wait_until(lambda: (stored_states(folder), stored_rows(folder)) == ({1, 2}, [1, 2]))
    cache.close()


def test_two_caches_lose_nothing_of_each_other(folder: Path, compiler: CountingCompiler) -> None:
    """Two caches that learn different things lose nothing, and who learns is taught what is there."""
    first, second = open_cache(folder, compiler), open_cache(folder, compiler)
    compiled = [fake(cache.get(source(), VOCABULARY)) for cache in (first, second)]
    first.flush()
    compiled[0].learn(1, 2)
    first.flush()
    compiled[1].learn(2, 3)
    second.close()
    compiled[0].learn(4)
    first.close()
    assert [one.known for one in compiled] == [{1, 2, 3, 4}, {1, 2, 3}]
    assert (stored_states(folder), stored_rows(folder)) == ({1, 2, 3, 4}, [1, 2, 3, 4])


def test_who_writes_between_reading_and_writing_loses_nothing(folder: Path, compiler: CountingCompiler) -> None:
    """Where others write each time that a cache is about to, it learns from each, and no write undoes another."""
    first, second = open_cache(folder, compiler), open_cache(folder, compiler)
    compiled = [fake(cache.get(source(), VOCABULARY)) for cache in (first, second)]
    unite = compiled[0].unite

    def unite_late(data: Bytes) -> None:
        unite(data)
        if len(compiled[1].known) < 4:
            compiled[1].learn(len(compiled[1].known))
            second.flush()

    compiled[0].unite = unite_late  # type: ignore[method-assign]
    compiled[1].learn(0)
    second.flush()
    compiled[0].learn(9)
    first.close()
    second.close()
    assert stored_states(folder) == {0, 1, 2, 3, 9}


def test_rows_outlive_tables_that_were_evicted(folder: Path, compiler: CountingCompiler) -> None:
    """A schema compiled again starts with the rows that were learnt for it before."""
    cache = open_cache(folder, compiler)
    compiled = fake(cache.get(source(), VOCABULARY))
    cache.flush()
    compiled.learn(1)
    cache.close()
    DiskTier(folder).delete(KEY)
    cache = open_cache(folder, compiler)
    lookup = cache.get(source(), VOCABULARY)
    assert (lookup.tier, fake(lookup).find(1, 2)) == ("miss", [True, False])
    cache.close()


def test_rows_written_later_are_found_by_who_was_there(folder: Path, compiler: CountingCompiler) -> None:
    """A process finds rows that another has written since, without a restart."""
    first, second = open_cache(folder, compiler), open_cache(folder, compiler, write_delay_s=0.02)
    compiled = [fake(cache.get(source(), VOCABULARY)) for cache in (first, second)]
    compiled[0].learn(1)
    first.close()
    wait_until(lambda: compiled[1].find(1) == [True])
    second.close()


def test_what_leaves_memory_is_written_first(folder: Path, compiler: CountingCompiler) -> None:
    """Rows learnt by an entry that was pushed out of memory are on disk."""
    cache = open_cache(folder, compiler, memory_entries=1)
    compiled = fake(cache.get(source(0), VOCABULARY))
    cache.flush()
    compiled.learn(1)
    cache.get(source(1), VOCABULARY)
    cache.flush()
    back = cache.get(source(0), VOCABULARY)
    assert (back.tier, fake(back).known, fake(back).find(1)) == ("disk", {1}, [True])
    cache.close()


def test_a_closed_cache_still_answers(folder: Path, compiler: CountingCompiler) -> None:
    """After `close` (twice) memory serves, new sources are compiled, and nothing is written."""
    cache = open_cache(folder, compiler)
    cache.get(source(0), VOCABULARY)
    cache.close()
    cache.close()
    tiers = [cache.get(source(n), VOCABULARY).tier for n in (0, 1, 1)]
    cache.flush()
    assert tiers == ["memory", "miss", "memory"]
    assert DiskTier(folder).get(cache_key(source(1), VOCABULARY)) is None


def test_an_entry_that_cannot_be_dumped_harms_no_other(
    folder: Path, compiler: CountingCompiler, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in one entry's dump is logged; other entries are written, and its lock is let go."""
    cache = open_cache(folder, compiler)
    compiler.filling = object()
    cache.get(source(0), VOCABULARY)
    compiler.filling = ""
    cache.get(source(1), VOCABULARY)
    cache.close()
    assert caplog.text.count(f"writing {KEY} failed") == 1
    assert [DiskTier(folder).get(KEY), DiskTier(folder).get(cache_key(source(1), VOCABULARY)) is None] == [None, False]
    hold = DiskTier(folder).lock(KEY, 0)
    assert hold is not None
    hold.close()


# Trouble


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"foreign",
        tables_entry(KEY, b"KATAGAMI"),
        tables_entry(KEY, FakeCompiled(source(1), VOCABULARY).dump()),
        tables_entry(cache_key(source(1), VOCABULARY), FakeCompiled(source(1), VOCABULARY).dump()),
        tables_entry(KEY, FakeCompiled(source(), VOCABULARY).dump())[:-1],
    ],
    ids=["empty", "foreign", "cut", "other tables", "other key", "one byte short"],
)
def test_a_corrupt_entry_is_a_miss_and_is_rewritten(
    folder: Path, compiler: CountingCompiler, stored: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """What is not this key's tables is compiled anew, said in the log, and replaced."""
    DiskTier(folder).put(KEY, stored)
    cache = open_cache(folder, compiler)
    lookup = cache.get(source(), VOCABULARY)
    cache.close()
    cache = open_cache(folder, compiler)
    again = cache.get(source(), VOCABULARY)
    cache.close()
    assert [lookup.tier, again.tier] == ["miss", "disk"]
    assert fake(again).digest == source().digest
    assert caplog.text.count("is corrupt and will be replaced") == 1


def test_a_folder_that_cannot_be_costs_one_warning(
    tmp_path: Path, compiler: CountingCompiler, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a usable folder the cache works from memory, and says so once."""
    (tmp_path / "file").write_text("")
    cache = open_cache(tmp_path / "file", compiler)
    with caplog.at_level(logging.WARNING):
        tiers = [cache.get(source(n), VOCABULARY).tier for n in (0, 1, 0, 1)]
        cache.close()
    assert tiers == ["miss", "miss", "memory", "memory"]
    assert len(caplog.records) == 1
