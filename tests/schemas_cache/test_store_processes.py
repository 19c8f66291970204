"""Processes that share a folder lose nothing of what each of them learns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from schemas_cache.compile import CompiledSchema, compile_source
from schemas_cache.store import SchemaCache
from tests.schemas_cache.tables import ROOT, SOURCES, VOCABULARY

CHILD = """
import json, pathlib, sys
from schemas_cache.store import SchemaCache
from tests.schemas_cache.tables import SOURCES, VOCABULARY
cache = SchemaCache(pathlib.Path(sys.argv[1]), write_delay_s=0.01)
compiled = cache.get(SOURCES[sys.argv[2]], VOCABULARY).compiled
print("ready", flush=True)
for line in sys.stdin:
    matcher = compiled.matcher()
    for byte in json.loads(line).encode():
        matcher.mask()
        matcher.advance(byte)
    matcher.mask()
    print("walked", flush=True)
"""
TEXTS = {
    "tree": (
        ['{"name": "a"}', '{"name": "", "children": [{"name": "bcd"}, {"name": "e", "children": []}]}'],
        ['{"name": "\\u00e9\\n", "children": [{"name": "x", "children": [{"name": "y"}]}]}', '{"name": "上級"}'],
    ),
    "strings": (['["ab", "上級a"]', "[]"], ['["\\n\\tcd"]', '["ab", "cd", "efgh"]']),
    "object": (
        ['{"a": {"b": [1, true, null]}}', '{"x": -1.5e3}'],
        ['{"list": [[], {}, [[0]]]}', '{"": "\\u0041", "b": false}'],
    ),
    "regex": (["aaaaa", "babab"], ["bbabbbb", "abaabab"]),
}


def walk(compiled: CompiledSchema, text: str) -> list[bytes]:
    """Every mask on the way through a text."""
    matcher, masks = compiled.matcher(), []
    for byte in text.encode():
        masks.append(matcher.mask().tobytes())
        matcher.advance(byte)
    return [*masks, matcher.mask().tobytes()]


def tell(child: subprocess.Popen[str], text: str) -> None:
    """Have a child walk through a text, and wait until it has."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(text) + "\n")
    child.stdin.flush()
    assert child.stdout.readline() == "walked\n"


@pytest.mark.parametrize("name", TEXTS)
def test_two_processes_teach_a_third(tmp_path: Path, name: str) -> None:
    """Two processes walk different ways in turn; a third knows every state and row of both, and masks as if fresh."""
    command = [sys.executable, "-W", "error", "-c", CHILD, str(tmp_path), name]
    children = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for texts in zip(*TEXTS[name], strict=True):
        for child, text in zip(children, texts, strict=True):
            tell(child, text)
    for child in children:
        child.communicate(timeout=30)
    cache, fresh = SchemaCache(tmp_path), compile_source(SOURCES[name], VOCABULARY)
    lookup = cache.get(SOURCES[name], VOCABULARY)
    known = (lookup.compiled.generation, lookup.compiled.rows)
    for text in (*TEXTS[name][0], *TEXTS[name][1]):
        assert walk(fresh, text) == walk(lookup.compiled, text)
    assert (lookup.tier, known) == ("disk", (lookup.compiled.generation, lookup.compiled.rows))
    assert lookup.compiled.rows_computed == 0
    cache.close()


def test_states_unite_in_any_order() -> None:
    """Tables united either way know the same states by content, the same transitions, and step alike."""
    tables = [compile_source(SOURCES["tree"], VOCABULARY) for _ in range(2)]
    for compiled, texts in zip(tables, TEXTS["tree"], strict=True):
        for text in texts:
            walk(compiled, text)
    dumps = [compiled.dump() for compiled in tables]
    tables[0].unite(dumps[1])
    tables[1].unite(dumps[0])
    one, other = (compiled.tokens.automaton for compiled in tables)
    assert (len(one), one.expansions) == (len(other), other.expansions)
    assert tables[0].generation == tables[1].generation
    for text in (*TEXTS["tree"][0], *TEXTS["tree"][1]):
        for cut in range(len(text.encode()) + 1):
            states = [automaton.walk(1, text.encode()[:cut]) for automaton in (one, other)]
            assert one.shortest(states[0]) == other.shortest(states[1])
            assert one.pointer(states[0]) == other.pointer(states[1])
    assert tables[0].generation == tables[1].generation


DUMPS = """
import hashlib
from schemas_cache.compile import compile_source
from schemas_cache.source import schema_source
from tests.schemas_cache.tables import SOURCES, VOCABULARY
machines = {"type": "string", "pattern": "^[^x]{0,9}y", "maxLength": 12, "not": {"enum": ["ay", "by"]}}
names = {"type": "object", "properties": {"a": True}, "patternProperties": {"^b": {"type": "null"}}, "minProperties": 2}
for source in (*SOURCES.values(), schema_source(machines), schema_source(names)):
    print(hashlib.sha256(compile_source(source, VOCABULARY).dump()).hexdigest())
"""


def test_every_process_compiles_to_the_same_tables() -> None:
    """Tables of one schema are byte for byte equal in every process: numbers depend on no hash and no address."""
    said = set()
    for seed in range(4):
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        command = [sys.executable, "-c", DUMPS]
        said.add(subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True).stdout)
    assert len(said) == 1
    assert said.pop().count(b"\n") == len(SOURCES) + 2


def test_uniting_twice_changes_nothing() -> None:
    """What is known already is not learnt again."""
    first, second = (compile_source(SOURCES["object"], VOCABULARY) for _ in range(2))
    walk(first, TEXTS["object"][0][0])
    walk(second, TEXTS["object"][1][0])
    second.unite(first.dump())
    known = second.generation
    before = second.tokens.automaton.next_state.copy()
    second.unite(first.dump())
    assert known == second.generation
    assert np.array_equal(before, second.tokens.automaton.next_state)
