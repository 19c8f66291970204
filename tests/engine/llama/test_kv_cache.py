"""Room for sequences: taken before they begin, given up when others need it, never more than there is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.models.llama.config import LlamaConfig
from engine.models.llama.kv_cache import GRAIN_TOKENS, CacheFullError, KvCache
from engine.models.llama.rotary import plain_frequencies

CONFIG = LlamaConfig(
    vocabulary_size=10,
    hidden_size=4,
    layers=2,
    heads=2,
    kv_heads=1,
    head_size=2,
    inner_size=4,
    context_length=1000,
    epsilon=1e-5,
    frequencies=plain_frequencies(10000.0, 2),
    attention_bias=False,
    tied=True,
    start_id=0,
)
TOKEN_BYTES = 2 * 2 * 2 * 4  # layers, keys and values of one head, numbers, bytes


def make_cache(grains: int, slots: int = 3) -> KvCache:
    """A cache with room for so many grains."""
    cache = KvCache(CONFIG, grains * GRAIN_TOKENS * TOKEN_BYTES)
    cache.allocate(slots)
    return cache


def feed(cache: KvCache, slot: int, *token_ids: int) -> None:
    """Note tokens, and write numbers that tell them apart."""
    start = cache.extend(slot, np.array(token_ids, np.int32))
    cache[slot].data[:, :, start : start + len(token_ids)] = np.array(token_ids, np.float32)[:, None]


def held(cache: KvCache, slot: int) -> list[float]:
    """What was written for the tokens of a slot."""
    place = cache[slot]
    return place.data[-1, -1, : place.length, 0].tolist()  # type: ignore[no-any-return]


def test_a_cache_without_room_for_a_grain_is_refused() -> None:
    """With both figures."""
    with pytest.raises(ValueError, match=r"100 bytes are too few.*64 tokens take 2,048"):
        KvCache(CONFIG, 100)


def test_a_sequence_that_never_fits_is_refused_with_the_figures() -> None:
    """Not made to wait."""
    with pytest.raises(CacheFullError, match=r"129 tokens need 4,128 bytes of KV cache; there are 4,096, for 128"):
        make_cache(2).reserve(0, 129)


def test_a_sequence_waits_while_others_hold_the_room() -> None:
    """And has it once one of them is over."""
    cache = make_cache(3)
    assert cache.reserve(0, 2 * GRAIN_TOKENS)
    assert not cache.reserve(1, 2 * GRAIN_TOKENS)
    cache.release(0)
    assert cache.reserve(1, 2 * GRAIN_TOKENS)
    assert (0, 2 * GRAIN_TOKENS) == (cache[0].capacity, cache[1].capacity)


def test_waiting_gives_up_nothing() -> None:
    """What others left behind is kept while there would not be room enough anyway."""
    cache = make_cache(3)
    assert cache.reserve(0, 1)
    feed(cache, 0, 5)
    cache.release(0)
    assert cache.reserve(1, 2 * GRAIN_TOKENS)
    assert not cache.reserve(2, 2 * GRAIN_TOKENS)
    assert [5.0] == held(cache, 0)


def test_the_oldest_is_given_up_first() -> None:
    """Of two sequences that are over."""
    cache = make_cache(3, slots=4)
    for slot in (0, 1, 2):
        assert cache.reserve(slot, 1)
        feed(cache, slot, slot + 5)
    for slot in (1, 0, 2):
        cache.release(slot)
    assert cache.reserve(3, 1)
    assert ([5.0], [], [7.0]) == (held(cache, 0), held(cache, 1), held(cache, 2))


def test_longest_prefix_of_any_slot_is_reused_but_for_the_last_token() -> None:
    """The last one's logits are wanted, so it is fed in any case."""
    cache = make_cache(4)
    feed(cache, 0, 1, 2, 9)
    feed(cache, 1, 1, 2, 3, 4)
    assert cache.reserve(2, 10)
    assert 3 == cache.reuse_prefix(2, np.array([1, 2, 3, 8], np.int32))
    assert [1.0, 2.0, 3.0] == held(cache, 2)
    assert 3 == cache.reuse_prefix(2, np.array([1, 2, 3, 4], np.int32))


def test_a_slot_keeps_what_it_begins_with_itself() -> None:
    """Nothing is copied, and the rest is forgotten."""
    cache = make_cache(4)
    feed(cache, 0, 1, 2, 3)
    cache.release(0)
    assert cache.reserve(0, 100)
    assert 2 == cache.reuse_prefix(0, np.array([1, 2, 7], np.int32))
    assert [1.0, 2.0] == held(cache, 0)


def test_no_prefix_in_common_is_none() -> None:
    """Also of an empty prompt."""
    cache = make_cache(4)
    feed(cache, 0, 1, 2)
    assert cache.reserve(1, 10)
    assert 0 == cache.reuse_prefix(1, np.array([2, 1], np.int32)) == cache.reuse_prefix(1, np.zeros(0, np.int32))


def test_a_copy_that_does_not_fit_is_refused() -> None:
    """More tokens than the one has, or than the other has room for."""
    cache = make_cache(4)
    feed(cache, 0, 1, 2)
    with pytest.raises(ValueError, match="3 tokens of 2"):
        cache.copy_prefix(0, 1, 3)
    with pytest.raises(ValueError, match="room for 0"):
        cache.copy_prefix(0, 1, 2)


def test_a_slot_grows_without_a_reservation_as_long_as_there_is_room() -> None:
    """Then it says what is missing; the tokens before are still there."""
    cache = make_cache(3)
    feed(cache, 0, *range(150))
    with pytest.raises(CacheFullError, match=r"no KV cache is left for 64 tokens; all 192 are taken"):
        feed(cache, 1, *range(64))
    assert list(map(float, range(150))) == held(cache, 0)
    with pytest.raises(CacheFullError, match="200 tokens need"):
        feed(cache, 0, *range(50))


@given(st.lists(st.tuples(st.sampled_from(["reserve", "release", "feed"]), st.integers(0, 2), st.integers(1, 200))))
def test_memory_is_never_exceeded_and_what_is_held_stays(actions: list[tuple[str, int, int]]) -> None:
    """Whatever sequences come and go."""
    cache, running = make_cache(4), dict[int, list[int]]()
    for action, slot, number in actions:
        if action == "reserve" and slot not in running:
            cache.reset(slot)
            if cache.reserve(slot, number):
                running[slot] = []
        elif action == "release" and slot in running:
            cache.release(slot)
            del running[slot]
        elif action == "feed" and slot in running and cache[slot].length < cache[slot].capacity:
            feed(cache, slot, number)
            running[slot].append(number)
        assert cache.used_bytes <= 4 * GRAIN_TOKENS * TOKEN_BYTES
        assert {slot: list(map(float, ids)) for slot, ids in running.items()} == {s: held(cache, s) for s in running}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"heads": 3, "kv_heads": 2}, "3 heads cannot share 2"),
        ({"head_size": 3}, "1.5 frequencies"),
        ({"head_size": 4}, "2 frequencies"),
        ({"layers": 0}, "layers is 0"),
        ({"start_id": 10}, "token 10 starts"),
    ],
)
def test_sizes_that_do_not_fit_together_are_refused(change: dict[str, int], reason: str) -> None:
    """By name."""
    with pytest.raises(ValueError, match=reason):
        replace(CONFIG, **change)  # type: ignore[arg-type]
