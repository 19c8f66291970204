"""The cache stays within its limits, in memory and on disk, and says what it has."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Any

import psutil
import pytest

from schemas_cache import memory
from schemas_cache.compile import compile_source
from schemas_cache.entries import StoredSchema
from schemas_cache.limits import Limits
from schemas_cache.source import Source, json_object_source, schema_source
from schemas_cache.store import SchemaCache
from schemas_cache.vocabulary import Vocabulary
from tests.schemas_cache.fake_compiled import VOCABULARY, CountingCompiler, open_cache, source
from tests.schemas_cache.tables import assert_same_masks

BYTES = Vocabulary([bytes([byte]) for byte in range(256)], [])
SLACK_BYTES = 3 << 20  # the database's log, and pages that are free


def numbered(number: int) -> Source:
    """One of many small schemas."""
    properties = {f"key{number}": {"type": "integer"}, "name": {"type": "string", "maxLength": 5 + number % 20}}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": [f"key{number}"]}
    return schema_source(schema)


def disk_usage(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.timeout(240)
@pytest.mark.parametrize("count", [300, pytest.param(1_000, marks=pytest.mark.suite)])
def test_many_schemas_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """As many different schemas, each used: the process does not grow with them, memory and disk stay bounded."""
    memory_bytes, size_bytes, lazy = 4 << 20, count * 16_000, Limits(max_dense_entries=0)
    monkeypatch.setattr(memory, "TRIM_EVERY_S", 0.05)
    cache = SchemaCache(tmp_path, limits=lazy, memory_bytes=memory_bytes, size_limit_bytes=size_bytes)

    def use(number: int) -> str:
        lookup = cache.get(numbered(number), BYTES)
        matcher = lookup.compiled.matcher()
        for byte in f'{{"key{number}": 1'.encode():
            matcher.mask()
            matcher.advance(byte)
        return lookup.tier

    rss_bytes = list[int]()
    for number in range(count):
        assert use(number) == "miss"
        is_looked_at = (number + 1) % (count // 10) == 0
        entries = [entry for entry in cache.entries() if entry.tier == "memory"] if is_looked_at else []
        rss_bytes += [psutil.Process().memory_info().rss] if entries else []
        assert len(entries) < 100
    assert max(rss_bytes) - rss_bytes[1] < 8 * memory_bytes
    cache.flush()  # what is written behind is written now
    assert [use(number) for number in (count - 1, count - 100, 0)] == ["memory", "disk", "miss"]
    cache.close()
    assert size_bytes / 4 < disk_usage(tmp_path) < size_bytes + SLACK_BYTES


def test_memory_is_measured_as_it_is() -> None:
    """What tables say that they take is what Python allocated for them, within a factor of two, walked and not."""
    compile_source(numbered(0), BYTES, limits=Limits(max_dense_entries=0)).matcher().mask()
    for steps in (0, 400):
        gc.collect()
        tracemalloc.start()
        tables = [compile_source(numbered(n), BYTES, limits=Limits(max_dense_entries=0)) for n in range(5)]
        for compiled in tables:
            assert_same_masks(compiled, compiled, seed=steps, steps=steps)
        gc.collect()
        allocated_bytes = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        said_bytes = sum(compiled.size_bytes for compiled in tables)
        assert allocated_bytes / 2 < said_bytes < 2 * allocated_bytes


def test_the_limit_on_disk_holds_all_the_time(tmp_path: Path, compiler: CountingCompiler) -> None:
    """Entries of 40 to 400 kB under a limit of 2 MB: after each write the folder is within it, the latest stay."""
    cache = open_cache(tmp_path, compiler, size_limit_bytes=2_000_000)
    for number in range(60):
        compiler.filling = "x" * (40_000 * (1 + number % 10))
        cache.get(source(number), VOCABULARY)
        cache.flush()
        assert disk_usage(tmp_path) < 2_000_000 + SLACK_BYTES
    entries = cache.entries()
    assert sum(entry.size_bytes for entry in entries if entry.tier == "memory") > 0
    cache.close()
    again = open_cache(tmp_path, compiler)
    assert [again.get(source(number), VOCABULARY).tier for number in (59, 58, 0)] == ["disk", "disk", "miss"]
    again.close()


def test_what_is_too_large_for_the_limit_is_not_written(tmp_path: Path, compiler: CountingCompiler) -> None:
    """An entry of more than half the limit pushes nothing out: it stays in memory only."""
    cache = open_cache(tmp_path, compiler, size_limit_bytes=1_000_000)
    cache.get(source(0), VOCABULARY)
    compiler.filling = "x" * 600_000
    cache.get(source(1), VOCABULARY)
    cache.close()
    again = open_cache(tmp_path, compiler)
    assert [again.get(source(number), VOCABULARY).tier for number in (0, 1)] == ["disk", "miss"]
    again.close()


def test_what_is_used_in_memory_stays_on_disk(tmp_path: Path, compiler: CountingCompiler) -> None:
    """A schema that is only ever found in memory is not the first to go from disk."""
    compiler.filling = "x" * 100_000
    cache = open_cache(tmp_path, compiler, size_limit_bytes=1_000_000)
    for number in range(20):
        cache.get(source(number), VOCABULARY)
        assert cache.get(source(0), VOCABULARY).tier == "memory"
        cache.flush()
    cache.close()
    again = open_cache(tmp_path, compiler)
    assert [again.get(source(number), VOCABULARY).tier for number in (0, 1, 19)] == ["disk", "miss", "disk"]
    again.close()


@pytest.fixture
def compiler(tmp_path_factory: pytest.TempPathFactory) -> CountingCompiler:
    """A compiler that counts its calls."""
    return CountingCompiler(tmp_path_factory.mktemp("compiles") / "log")


def told(entries: list[StoredSchema]) -> list[tuple[str, str]]:
    """Hash and tier."""
    return [(entry.schema_hash, entry.tier) for entry in entries]


@pytest.mark.parametrize("on_disk", [True, False])
def test_entries_are_listed_newest_first(tmp_path: Path, compiler: CountingCompiler, on_disk: bool) -> None:
    """Three schemas are listed with the last one first, in memory now and on disk after a restart."""
    folder = tmp_path if on_disk else None
    cache = open_cache(folder, compiler)
    for number in range(3):
        cache.get(source(number), VOCABULARY)
    hashes = [source(number).schema_hash for number in (2, 1, 0)]
    assert told(cache.entries()) == [(digest, "memory") for digest in hashes]
    cache.close()
    again = open_cache(folder, compiler)
    assert told(again.entries()) == ([(digest, "disk") for digest in hashes] if on_disk else [])
    again.close()


def test_an_entry_is_found_by_its_hash(tmp_path: Path, compiler: CountingCompiler) -> None:
    """What is known of one schema: its vocabulary, kind and counts; None for one that is not there."""
    cache = open_cache(tmp_path, compiler)
    compiled: Any = cache.get(source(1), VOCABULARY).compiled
    compiled.learn(1, 2, 3)
    entry = cache.entry(source(1).schema_hash)
    assert entry is not None
    assert (entry.vocabulary, entry.kind, entry.states, entry.rows) == (VOCABULARY.fingerprint, "regex", 3, 3)
    assert cache.entry(source(2).schema_hash) is None
    cache.close()


def test_a_deleted_schema_is_compiled_again(tmp_path: Path, compiler: CountingCompiler) -> None:
    """Deleting removes from memory and disk, others stay, and what still runs does not bring it back."""
    cache = open_cache(tmp_path, compiler)
    running: Any = cache.get(source(0), VOCABULARY).compiled
    cache.get(source(1), VOCABULARY)
    cache.flush()
    assert cache.delete(source(0).schema_hash) == 1
    running.learn(1)
    cache.flush()
    assert cache.entry(source(0).schema_hash) is None
    assert [cache.get(source(number), VOCABULARY).tier for number in (1, 0)] == ["memory", "miss"]
    assert cache.delete("0" * 64) == 0
    cache.close()


def test_clearing_removes_everything(tmp_path: Path, compiler: CountingCompiler) -> None:
    """After `clear` nothing is listed, nothing is found, and the rows are gone too; the cache goes on."""
    cache = open_cache(tmp_path, compiler)
    compiled: Any = cache.get(source(0), VOCABULARY).compiled
    compiled.learn(1)
    cache.get(source(1), VOCABULARY)
    cache.flush()
    assert cache.sizes().rows_bytes > 0
    assert cache.clear() == 2
    assert (cache.entries(), cache.sizes().rows_bytes) == ([], 0)
    assert cache.get(source(0), VOCABULARY).tier == "miss"
    cache.close()
    assert open_cache(tmp_path, compiler).get(source(0), VOCABULARY).tier == "disk"


def test_schemas_of_all_options_are_deleted_together(tmp_path: Path) -> None:
    """One hash stands for a schema under all options and vocabularies."""
    cache = SchemaCache(tmp_path)
    other = Vocabulary([*[bytes([byte]) for byte in range(256)], b""], [256])
    for vocabulary in (BYTES, other):
        cache.get(json_object_source(), vocabulary)
    cache.compile_schema({"type": "integer"}, BYTES)
    cache.compile_schema({"type": "integer"}, BYTES, whitespace="compact")
    assert cache.delete(json_object_source().schema_hash) == 2
    assert len(cache.entries()) == 2
    cache.close()


def test_what_was_learnt_in_a_full_automaton_is_kept(tmp_path: Path) -> None:
    """New sequences get other tables; what the old ones learnt until then goes to disk."""
    compiler = CountingCompiler(tmp_path / "log")
    cache = open_cache(tmp_path / "cache", compiler)
    full: Any = cache.get(source(), VOCABULARY).compiled
    cache.flush()
    full.learn(1, 2)
    full.exhausted = True
    assert cache.get(source(), VOCABULARY).compiled is not full
    cache.close()
    later = open_cache(tmp_path / "cache", compiler)
    again: Any = later.get(source(), VOCABULARY).compiled
    assert {1, 2} == again.known
    assert [True, True] == again.find(1, 2)
