"""The cache over real tables: what comes from memory, from disk or from another process masks as if just compiled."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from schemas_cache.compile import compile_source
from schemas_cache.disk import DiskTier
from schemas_cache.entries import cache_key
from schemas_cache.errors import SchemaError
from schemas_cache.source import Source, json_object_source, schema_source
from schemas_cache.store import SchemaCache
from tests.schemas_cache.tables import ROOT, SOURCES, VOCABULARY, assert_same_masks


@pytest.mark.parametrize("name", SOURCES)
def test_every_tier_masks_as_if_just_compiled(tmp_path: Path, name: str) -> None:
    """Tables from a miss, from memory and from disk, before and after learning, agree with fresh ones."""
    source, tiers = SOURCES[name], []
    for seed in range(3):
        cache = SchemaCache(tmp_path)
        for _ in range(2):
            lookup = cache.get(source, VOCABULARY)
            assert_same_masks(compile_source(source, VOCABULARY), lookup.compiled, seed)
            tiers.append(lookup.tier)
        cache.close()
    assert tiers == ["miss", "memory", "disk", "memory", "disk", "memory"]


def test_what_was_learnt_is_there_after_a_restart(tmp_path: Path) -> None:
    """States and rows of the first process are known to the second: on the same way it learns nothing."""
    cache = SchemaCache(tmp_path)
    before = cache.get(SOURCES["tree"], VOCABULARY).compiled
    assert_same_masks(before, before, seed=1)
    cache.close()
    cache = SchemaCache(tmp_path)
    after = cache.get(SOURCES["tree"], VOCABULARY).compiled
    assert before.generation == after.generation
    assert_same_masks(before, after, seed=1)
    assert (before.generation, before.rows, 0) == (after.generation, after.rows, after.rows_computed)
    cache.close()


@pytest.mark.parametrize("name", SOURCES)
def test_two_caches_unite_what_they_learn(tmp_path: Path, name: str) -> None:
    """What two processes learnt on different ways is together on disk: a third learns nothing on either."""
    caches = [SchemaCache(tmp_path, write_delay_s=3600) for _ in range(2)]
    compiled = [cache.get(SOURCES[name], VOCABULARY).compiled for cache in caches]
    for seed, one in enumerate(compiled):
        assert_same_masks(one, one, seed)
    for cache in caches:
        cache.close()
    cache = SchemaCache(tmp_path)
    united = cache.get(SOURCES[name], VOCABULARY).compiled
    known = united.generation
    for seed in range(2):
        assert_same_masks(compile_source(SOURCES[name], VOCABULARY), united, seed)
    assert (known, 0) == (united.generation, united.rows_computed)
    cache.close()


def test_a_damaged_entry_never_gives_a_wrong_mask(tmp_path: Path) -> None:
    """Whatever bytes of an entry change, the next call compiles, and masks are right."""
    source, chance = SOURCES["strings"], random.Random(5)
    key = cache_key(source, VOCABULARY)
    cache = SchemaCache(tmp_path)
    expected = cache.get(source, VOCABULARY).compiled
    cache.close()
    disk = DiskTier(tmp_path)
    for seed in range(10):
        stored = disk.get(key)
        assert stored is not None
        damaged = bytearray(stored)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        disk.put(key, bytes(damaged))
        cache = SchemaCache(tmp_path)
        lookup = cache.get(source, VOCABULARY)
        cache.close()
        assert lookup.tier == "miss"
        assert_same_masks(expected, lookup.compiled, seed)


def test_threads_decode_while_tables_are_written(tmp_path: Path) -> None:
    """Four threads walk and learn, the cache writes all the time, and every mask is right."""
    cache = SchemaCache(tmp_path, write_delay_s=0.001)

    def decode(seed: int) -> None:
        names = list(SOURCES)
        for name in names[seed % len(names) :]:
            compiled = cache.get(SOURCES[name], VOCABULARY).compiled
            assert_same_masks(compile_source(SOURCES[name], VOCABULARY), compiled, seed, steps=30)
            cache.flush()

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(decode, seed) for seed in range(4)]:
            future.result()
    cache.close()


CHILD = """
import pathlib, sys
from schemas_cache import SchemaCache, Vocabulary, schema_source
cache = SchemaCache(pathlib.Path(sys.argv[1]))
vocabulary = Vocabulary([bytes([byte]) for byte in range(256)], [])
print("ready", flush=True)
sys.stdin.readline()
print(cache.get(schema_source({"type": "integer"}), vocabulary).tier)
"""


def test_processes_share_one_compile(tmp_path: Path) -> None:
    """Of three processes that ask for one new schema at once, one compiles and two read what it wrote."""
    command = [sys.executable, "-W", "error", "-c", CHILD, str(tmp_path)]
    children = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    assert sorted(child.communicate(timeout=60)[0].strip() for child in children) == ["disk", "disk", "miss"]


def test_a_refused_schema_is_refused_each_time(tmp_path: Path) -> None:
    """An error is raised from the cache as from the compiler, is not kept, and leaves nothing on disk."""
    refused: Source = schema_source({"type": "string", "contains": {"$ref": "#/missing"}})
    cache = SchemaCache(tmp_path)
    for _ in range(2):
        with pytest.raises(SchemaError):
            cache.get(refused, VOCABULARY)
    cache.close()
    assert DiskTier(tmp_path).get(cache_key(refused, VOCABULARY)) is None


def test_tables_that_learnt_nothing_yet_are_stored(tmp_path: Path) -> None:
    """A schema that nobody has decoded with is on disk after its compile alone."""
    for expected in ("miss", "disk"):
        cache = SchemaCache(tmp_path)
        assert cache.get(json_object_source(), VOCABULARY).tier == expected
        cache.close()
