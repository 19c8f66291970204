"""Logits and masks -> tokens: each setting against a slow and obvious referee."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.request import Sampling
from engine.sampling import (
    UNIFORMS_AHEAD,
    Outcome,
    Samplers,
    apply_mask,
    apply_min_p,
    apply_temperature,
    apply_top_k,
    apply_top_p,
    are_allowed,
    draw_tokens,
)

V = 70  # three words, the last one not full
W = 3
PADDED = W * 32


def packed(allowed: list[set[int]]) -> np.ndarray:
    """Mask words of sets of token ids."""
    bits = np.zeros((len(allowed), PADDED), bool)
    for row, ids in enumerate(allowed):
        bits[row, list(ids)] = True
    return np.packbits(bits, axis=1, bitorder="little").view("<u4").astype(np.uint32)


def masked(logits: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """Scores as the step makes them."""
    scores = np.zeros((len(logits), PADDED), np.float32)
    apply_mask(logits, masks, scores)
    return scores


def padded(weights: list[list[float]]) -> np.ndarray:
    """Weights (B, 96) from the first few of each row."""
    out = np.zeros((len(weights), PADDED), np.float32)
    for row, values in enumerate(weights):
        out[row, : len(values)] = values
    return out


def kept(weights: np.ndarray) -> list[set[int]]:
    """Ids with a weight."""
    return [set(np.flatnonzero(row).tolist()) for row in weights]


@given(
    st.lists(st.sets(st.integers(0, V - 1)), min_size=1, max_size=5), st.integers(0, 2**32), st.integers(V, PADDED + 9)
)
def test_mask_keeps_allowed_logits_and_nothing_else(allowed: list[set[int]], seed: int, width: int) -> None:
    """Allowed tokens keep their logits; all else, the model's outputs beyond the vocabulary included, is -inf."""
    logits = np.random.default_rng(seed).normal(size=(len(allowed), width)).astype(np.float32)
    expected = np.full((len(allowed), PADDED), -np.inf, np.float32)
    for row, ids in enumerate(allowed):
        for token_id in ids:
            expected[row, token_id] = logits[row, token_id]
    before = logits.copy()
    np.testing.assert_array_equal(expected, masked(logits, packed(allowed)))
    np.testing.assert_array_equal(before, logits)


@given(st.sets(st.integers(0, V - 1), min_size=1), st.integers(0, V - 1))
def test_are_allowed_reads_the_bit(allowed: set[int], token_id: int) -> None:
    """Bit t % 32 of word t // 32."""
    assert (token_id in allowed) == are_allowed(packed([allowed]), np.array([token_id], np.int32))[0]


@given(st.floats(0.05, 5), st.integers(0, 2**32))
def test_temperature_gives_softmax_weights(temperature: float, seed: int) -> None:
    """Weights over their sum are the softmax of score / temperature."""
    scores = np.random.default_rng(seed).normal(size=(1, 40)).astype(np.float32)
    exact = np.exp(scores[0].astype(float) / temperature - np.max(scores) / temperature)
    apply_temperature(scores, scores.max(axis=1), np.array([temperature], np.float32))
    np.testing.assert_allclose(exact / exact.sum(), scores[0] / scores[0].sum(), rtol=1e-4, atol=1e-7)


weight_lists = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=12).filter(any)


@given(weight_lists, st.integers(1, 15))
def test_top_k_keeps_exactly_k(weights: list[float], k: int) -> None:
    """The k heaviest stay, lower ids first among equals."""
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    expected = {i for i in order[:k] if weights[i] > 0}
    array = padded([weights])
    apply_top_k(array, np.array([k]))
    assert [expected] == kept(array)


@given(weight_lists, st.floats(0.01, 1))
def test_top_p_keeps_the_fewest_that_reach_p(weights: list[float], p: float) -> None:
    """Heaviest first until their share is at least p."""
    order = sorted(range(len(weights)), key=lambda i: (-weights[i], i))
    expected: set[int] = set()
    for i in order:
        if sum(weights[j] for j in expected) < p * sum(weights):
            expected.add(i)
    array = padded([weights])
    apply_top_p(array, np.array([p]))
    assert [{i for i in expected if weights[i] > 0}] == kept(array)


@given(weight_lists, st.floats(0, 1))
def test_min_p_drops_what_is_light_beside_the_heaviest(weights: list[float], p: float) -> None:
    """Tokens below min_p times the heaviest go; the heaviest never does."""
    array = padded([weights])
    apply_min_p(array, np.array([p]))
    threshold = np.float64(p) * np.float32(max(weights))
    assert [{i for i, weight in enumerate(weights) if weight >= threshold and weight > 0}] == kept(array)


def test_rows_have_settings_of_their_own() -> None:
    """One call truncates each row by its own figure."""
    array = padded([[4, 3, 2, 1]] * 3)
    apply_top_k(array, np.array([1, 3, 96]))
    assert [{0}, {0, 1, 2}, {0, 1, 2, 3}] == kept(array)


@given(
    st.lists(st.integers(0, 5).map(float), min_size=1, max_size=PADDED).filter(any), st.floats(0, 1, exclude_max=True)
)
def test_draw_is_the_inverse_of_the_cumulative_sum(weights: list[float], uniform: float) -> None:
    """The first token whose cumulative share exceeds the uniform number, or a neighbour within rounding."""
    total = math.fsum(weights)
    token = int(draw_tokens(padded([weights]), np.array([uniform]))[0])
    below = math.fsum(weights[:token]) / total
    assert weights[token] > 0
    assert below - 1e-9 <= uniform <= below + weights[token] / total + 1e-9


def test_draw_never_takes_weight_zero_at_the_rim() -> None:
    """The largest uniform number below 1 still gives the last token that has a weight."""
    weights = padded([[1.0, 1e-7] + [0.0] * 40 + [1e-30], [0.0] * 33 + [1e-38]])
    drawn = draw_tokens(weights, np.full(2, np.nextafter(1.0, 0.0)))
    assert all(weights[row, token] > 0 for row, token in enumerate(drawn))


def draw_many(sampling: Sampling, logits: np.ndarray, masks: np.ndarray, count: int) -> np.ndarray:
    """Ids drawn from one row `count` times, int (count,)."""
    samplers = Samplers(1)
    samplers.open(0, sampling, seed=1, index=0)
    slots = np.zeros(1, np.int32)
    return np.array([samplers.draw(masked(logits, masks), masks, slots).token_ids[0] for _ in range(count)])


def test_draws_follow_the_masked_softmax() -> None:
    """Chi-square of 4,000 draws against the renormalised softmax; allowed tokens in several blocks."""
    allowed = [0, 5, 31, 32, 40, 64, 69]
    logits = np.random.default_rng(3).normal(size=(1, V)).astype(np.float32) * 2
    masks = packed([set(allowed)])
    share = np.exp(logits[0, allowed].astype(float))
    share /= share.sum()
    drawn = draw_many(Sampling(), logits, masks, 4000)
    counts = np.array([(drawn == token).sum() for token in allowed])
    assert counts.sum() == 4000
    assert (((counts - 4000 * share) ** 2) / (4000 * share)).sum() < 22.5  # 0.1 % point for 6 degrees of freedom


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(top_k=2),
        Sampling(top_p=0.1),
        Sampling(min_p=0.9),
        Sampling(temperature=0),
        Sampling(temperature=5, top_k=1),
        Sampling(temperature=1e-30),
        Sampling(temperature=2, top_k=3, top_p=0.5, min_p=0.1),
    ],
)
def test_mask_comes_before_truncation(sampling: Sampling) -> None:
    """However much the model prefers forbidden tokens, an allowed one is drawn."""
    logits = np.zeros((1, V), np.float32)
    logits[0, 10:60] = 40.0
    allowed = {2, 3, 66}
    assert set(draw_many(sampling, logits, packed([allowed]), 20).tolist()) <= allowed


def test_greedy_takes_the_best_allowed_token() -> None:
    """Temperature 0 is the best allowed logit; the lowest id among equals."""
    logits = np.zeros((1, V), np.float32)
    logits[0, [1, 50, 60]] = [9.0, 5.0, 5.0]
    expected = [50, 50, 50]
    assert expected == draw_many(Sampling(temperature=0), logits, packed([{0, 50, 60}]), 3).tolist()


def test_forbidden_logits_never_matter_however_large() -> None:
    """Allowed tokens 200 nats below a forbidden one are still drawn in proportion: no underflow."""
    logits = np.zeros((1, V), np.float32)
    logits[0, 7] = 200.0
    drawn = draw_many(Sampling(), logits, packed([{1, 2}]), 200)
    assert 60 < (drawn == 1).sum() < 140


def outcomes(logits: np.ndarray, masks: np.ndarray, sampling: Sampling) -> list[int]:
    """What becomes of each row."""
    samplers = Samplers(len(logits))
    for slot in range(len(logits)):
        samplers.open(slot, sampling, seed=0, index=slot)
    drawn = samplers.draw(masked(logits, masks), masks, np.arange(len(logits), dtype=np.int32))
    return drawn.outcomes.tolist()


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0), Sampling(top_p=0.5, top_k=3, min_p=0.1)])
def test_bad_rows_are_named_and_others_drawn(sampling: Sampling) -> None:
    """A mask of zeros is dead; NaN, an infinite best logit, or nothing but -inf are not finite; neighbours go on."""
    logits = np.zeros((6, V), np.float32)
    logits[2, 4] = np.nan
    logits[3, 4] = np.inf
    logits[4, 4] = -np.inf
    logits[5, 4] = np.inf
    masks = packed([{4, 5}, set(), {4, 5}, {4, 5}, {4}, {5}])
    good, dead, bad = Outcome.DRAWN, Outcome.DEAD, Outcome.NOT_FINITE
    assert [good, dead, bad, bad, bad, good] == outcomes(logits, masks, sampling)


def test_what_is_drawn_is_checked_against_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the sampler ever draw a forbidden token, the row says so, and its neighbour goes on."""
    monkeypatch.setattr("engine.sampling.draw_tokens", lambda _weights, _uniforms: np.array([4, 4], np.int32))
    expected = [Outcome.FORBIDDEN, Outcome.DRAWN]
    assert expected == outcomes(np.zeros((2, V), np.float32), packed([{5}, {4}]), Sampling())


def test_greedy_and_random_rows_in_one_batch() -> None:
    """The greedy row takes its best token each time, the other one draws."""
    logits = np.zeros((2, V), np.float32)
    logits[0, 33] = 0.5
    masks = packed([set(range(V))] * 2)
    samplers = Samplers(2)
    samplers.open(0, Sampling(temperature=0), seed=0, index=0)
    samplers.open(1, Sampling(temperature=0.7), seed=0, index=1)
    slots = np.arange(2, dtype=np.int32)
    greedy, drawn = np.array([samplers.draw(masked(logits, masks), masks, slots).token_ids for _ in range(20)]).T
    assert set(greedy.tolist()) == {33}
    assert len(set(drawn.tolist())) > 5


@settings(max_examples=20)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 127))
def test_stream_depends_on_seed_and_index_alone(seed: int, index: int) -> None:
    """The same seed and index draw the same tokens in another slot and in other company."""
    logits = np.random.default_rng(0).normal(size=(1, V)).astype(np.float32)
    masks = packed([set(range(V))])
    alone, crowd = Samplers(1), Samplers(3)
    alone.open(0, Sampling(), seed, index)
    for slot, (own_seed, own_index) in enumerate([(5, 1), (6, 0), (seed, index)]):
        crowd.open(slot, Sampling(), own_seed, own_index)
    order = np.array([2, 0, 1], np.int32)
    for _ in range(UNIFORMS_AHEAD + 2):
        single = alone.draw(masked(logits, masks), masks, np.zeros(1, np.int32)).token_ids[0]
        rows = np.repeat(logits, 3, axis=0)
        assert single == crowd.draw(masked(rows, masks.repeat(3, axis=0)), masks.repeat(3, axis=0), order).token_ids[0]


def test_rows_of_one_request_have_different_streams() -> None:
    """Two rows with one seed do not repeat each other."""
    logits = np.zeros((2, V), np.float32)
    masks = packed([set(range(V))] * 2)
    samplers = Samplers(2)
    for slot in (0, 1):
        samplers.open(slot, Sampling(), seed=9, index=slot)
    slots = np.arange(2, dtype=np.int32)
    first, second = np.array([samplers.draw(masked(logits, masks), masks, slots).token_ids for _ in range(20)]).T
    assert (first != second).any()
