"""Mask rows that schemas share in memory: found by name, bounded, copied."""

from __future__ import annotations

from typing import Any

import numpy as np

from schemas_cache.memory import Entry, MemoryTier
from schemas_cache.shared_rows import SharedRows
from schemas_cache.source import regex_source
from tests.schemas_cache.fake_compiled import VOCABULARY, FakeCompiled

ROW = np.arange(10, dtype=np.uint32)


def test_a_row_comes_back_read_only_and_is_a_copy() -> None:
    """What its maker does with a row later changes nothing for the others."""
    rows, mine = SharedRows(), ROW.copy()
    rows.add(b"a", mine)
    mine[:] = 0
    found = rows.find(b"a")
    assert found is not None
    assert ROW.tolist() == found.tolist()
    assert not found.flags.writeable
    assert rows.find(b"b") is None


def test_the_row_used_longest_ago_goes_first() -> None:
    """The bound is in bytes, overhead included, and using a row keeps it."""
    one = SharedRows()
    one.add(b"a", ROW)
    rows = SharedRows(max_bytes=3 * one.size_bytes)
    for name in (b"a", b"b", b"c"):
        rows.add(name, ROW)
    rows.find(b"a")
    rows.add(b"d", ROW)
    assert [name for name in (b"a", b"b", b"c", b"d") if rows.find(name) is not None] == [b"a", b"c", b"d"]
    assert rows.size_bytes == 3 * one.size_bytes


def test_a_row_added_twice_is_counted_once() -> None:
    """Two threads may work out one row."""
    rows = SharedRows()
    rows.add(b"a", ROW)
    size_bytes = rows.size_bytes
    rows.add(b"a", ROW)
    assert (len(rows), rows.size_bytes) == (1, size_bytes)
    rows.clear()
    assert (len(rows), rows.size_bytes) == (0, 0)


def test_the_memory_tier_counts_shared_rows_once() -> None:
    """However many schemas share them; they are memory all the same, so entries go where they leave no room."""
    rows = SharedRows()
    rows.add(b"a", ROW)
    compiled: list[Any] = [FakeCompiled(regex_source(pattern), VOCABULARY, filling="x" * 100) for pattern in "ab"]
    entries = [Entry(str(number), each) for number, each in enumerate(compiled)]
    for each in compiled:
        each.shared_rows = rows
    for left_bytes, gone in ((0, []), (1, ["0"])):
        tier = MemoryTier(10, rows.size_bytes + 200 - left_bytes)
        for entry in entries:
            tier.put(entry)
        assert [entry.key for entry in tier.trim()] == gone
