"""The cache over real tables: what comes from memory, from disk or from another process masks as if just compiled."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schemas_cache.compile import CompiledSchema, compile_source
from schemas_cache.disk import DiskTier
from schemas_cache.entries import cache_key
from schemas_cache.errors import SchemaError
from schemas_cache.source import Source, choice_source, json_object_source, regex_source, schema_source
from schemas_cache.store import SchemaCache
from schemas_cache.vocabulary import Vocabulary

ROOT = Path(__file__).parents[2]
WHOLE = [bytes([byte]) for byte in range(256)]
VOCABULARY = Vocabulary(
    [*WHOLE, b'{"', b'": ', b'", "', b"true", b"ab", "上級".encode(), "級".encode()[:2], b""], [263]
)
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name"],
    "additionalProperties": False,
}
SOURCES = {
    "integer": schema_source({"type": "integer", "minimum": 1, "maximum": 9999}),
    "tree": schema_source(TREE),
    "strings": schema_source(
        {"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 4}, "maxItems": 3}
    ),
    "object": json_object_source(),
    "regex": regex_source("(a|b)*a(a|b){4}"),
    "choice": choice_source(["ab", "abc", "上級"]),
}


def assert_same_masks(expected: CompiledSchema, got: CompiledSchema, seed: int, steps: int = 60) -> None:
    """Walk both at random, on the same way, and compare every mask."""
    chance = random.Random(seed)
    first, second = expected.matcher(), got.matcher()
    for _ in range(steps):
        mask = first.mask()
        assert np.array_equal(mask, second.mask())
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        if not len(allowed):
            break
        token_id = int(chance.choice(allowed))
        first.advance(token_id)
        second.advance(token_id)
    assert (first.accepting, first.finished, first.pointer()) == (second.accepting, second.finished, second.pointer())


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
    """Rows and states of the first process are known to the second before it takes a step."""
    cache = SchemaCache(tmp_path)
    before = cache.get(SOURCES["tree"], VOCABULARY).compiled
    assert_same_masks(before, before, seed=1)
    cache.close()
    cache = SchemaCache(tmp_path)
    after = cache.get(SOURCES["tree"], VOCABULARY).compiled
    cache.close()
    assert before.learned_rows() == after.learned_rows()
    assert before.generation == after.generation


def test_two_caches_merge_their_rows(tmp_path: Path) -> None:
    """What two processes learnt on different ways is together on disk."""
    caches = [SchemaCache(tmp_path, write_delay_s=3600) for _ in range(2)]
    compiled = [cache.get(SOURCES["tree"], VOCABULARY).compiled for cache in caches]
    for seed, one in enumerate(compiled):
        assert_same_masks(one, one, seed)
    learnt = compiled[0].learned_rows() | compiled[1].learned_rows()
    for cache in caches:
        cache.close()
    cache = SchemaCache(tmp_path)
    assert cache.get(SOURCES["tree"], VOCABULARY).compiled.learned_rows() == learnt
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
