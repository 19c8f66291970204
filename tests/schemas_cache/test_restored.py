"""An automaton from disk: equal in everything to the one that was stored, and built only when it has to be."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from schemas_cache.automaton import START
from schemas_cache.codec import CorruptEntryError, pack, unpack
from schemas_cache.compile import CompiledSchema, compile_source
from schemas_cache.limits import Limits
from tests.schemas_cache.tables import SOURCES, VOCABULARY, assert_same_masks

TEXT = b'{"name": "ab", "children": [{"name": "c"}]}'


def stored() -> tuple[CompiledSchema, bytes]:
    """Tables that have walked through a text, and their bytes."""
    compiled = compile_source(SOURCES["tree"], VOCABULARY)
    matcher = compiled.matcher()
    for byte in TEXT:
        matcher.mask()
        matcher.forced()
        matcher.advance(byte)
    matcher.mask()
    return compiled, compiled.dump()


def load(data: bytes) -> CompiledSchema:
    """Tables from bytes."""
    return CompiledSchema.load(data, SOURCES["tree"], VOCABULARY)


def is_built(compiled: CompiledSchema) -> bool:
    """Whether configurations and frames are there."""
    return "configurations" in vars(compiled.tokens.automaton)


def test_known_ways_need_nothing_built() -> None:
    """Masks, steps, what is forced, what is over, counts and sizes come from the arrays alone."""
    compiled, data = stored()
    loaded = load(data)
    one, other = compiled.matcher(), loaded.matcher()
    for byte in TEXT:
        assert np.array_equal(one.mask(), other.mask())
        assert (one.forced(), one.accepting, one.finished) == (other.forced(), other.accepting, other.finished)
        one.advance(byte)
        other.advance(byte)
    assert (compiled.generation, compiled.states, compiled.rows) == (loaded.generation, loaded.states, loaded.rows)
    assert loaded.minimum_tokens == compiled.minimum_tokens
    assert not loaded.exhausted
    assert 0 < loaded.tokens.automaton.size_bytes < len(data)
    assert not is_built(loaded)


def test_what_is_new_is_worked_out_as_if_never_stored() -> None:
    """A new way builds the rest, with the same numbers; pointers, shortest ways and costs agree everywhere."""
    compiled, data = stored()
    loaded = load(data)
    assert_same_masks(compiled, loaded, seed=7)
    assert is_built(loaded)
    one, other = compiled.tokens.automaton, loaded.tokens.automaton
    assert (len(one), one.expansions) == (len(other), other.expansions)
    for state in range(START, len(one)):
        assert one.configurations[state] == other.configurations[state]
        assert one.shortest(state) == other.shortest(state)
        assert one.pointer(state) == other.pointer(state)
        assert (one.live(state), one.forced(state)) == (other.live(state), other.forced(state))


def test_threads_build_it_once() -> None:
    """Eight threads that meet something new at once find the same automaton."""
    _, data = stored()
    loaded, start = load(data), Barrier(8)

    def build(_: int) -> int:
        start.wait()
        return id(loaded.tokens.automaton.configurations)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(build, range(8)))) == 1


def test_a_missing_attribute_is_an_error() -> None:
    """A name that no automaton has is not searched for again and again."""
    _, data = stored()
    automaton = load(data).tokens.automaton
    with pytest.raises(AttributeError, match="nosuch"):
        _ = automaton.nosuch  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["only_byte", "next_state", "row_of_state", "accepting", "op"])
def test_a_snapshot_without_an_array_is_corrupt(name: str) -> None:
    """Sealed bytes that lack a part are refused when they are loaded, not when they are used."""
    _, data = stored()
    header, arrays = unpack(data)
    del arrays[name]
    with pytest.raises(CorruptEntryError):
        load(pack(header, arrays))


@pytest.mark.parametrize("name", ["tree", "integer"])
def test_of_more_states_than_the_limit_allows_the_first_are_taken(name: str) -> None:
    """What was learnt under larger limits: there is room for new ones, the dense table is left out, masks are equal."""
    compiled = compile_source(SOURCES[name], VOCABULARY)
    assert_same_masks(compiled, compiled, seed=5, steps=15)
    data = compiled.dump()
    limits = Limits(max_states=2 * (compiled.states - 4))
    loaded = CompiledSchema.load(data, SOURCES[name], VOCABULARY, limits=limits)
    assert (compiled.states - 4, False) == (loaded.states, loaded.exhausted)
    assert loaded.tokens.dense is None
    assert_same_masks(compiled, loaded, seed=5, steps=15)
    assert is_built(loaded)


def test_learning_from_others_leaves_room() -> None:
    """However much another process has learnt, half of the states are left for what is decoded here."""
    compiled, data = stored()
    few = compile_source(SOURCES["tree"], VOCABULARY, limits=Limits(max_states=compiled.states))
    few.unite(data)
    assert (compiled.states // 2, False) == (few.states, few.exhausted)
    assert_same_masks(compiled, few, seed=3, steps=4)
