"""Rows with few allowed tokens: the draw from their logits alone is the draw from whole rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.few_tokens import allowed_counts, fold
from engine.outputs import Outputs
from engine.request import Sampling
from engine.sampling import Drawn, Outcome, Samplers, WordArray, apply_mask

VOCABULARY = 4096
SETTINGS = (
    Sampling(),
    Sampling(temperature=0.0),
    Sampling(temperature=0.3, top_k=3),
    Sampling(temperature=1.7, top_p=0.8),
    Sampling(min_p=0.2, top_p=0.99, top_k=50),
)


def pack(allowed: list[set[int]], size: int = VOCABULARY) -> WordArray:
    """Masks of these tokens, uint32 (B, W)."""
    bits = np.zeros((len(allowed), size), bool)
    for row, tokens in zip(bits, allowed, strict=True):
        row[list(tokens)] = True
    return np.packbits(bits, axis=1, bitorder="little").view("<u4").astype(np.uint32)


def samplers_of(count: int, seed: int) -> Samplers:
    """Samplers of so many slots, each with settings of its own."""
    samplers = Samplers(count)
    for slot in range(count):
        samplers.open(slot, SETTINGS[slot % len(SETTINGS)], seed, slot)
    return samplers


def draw_few(masks: WordArray, logits: np.ndarray, samplers: Samplers) -> Drawn:
    """From the logits of the allowed tokens."""
    folded = fold(masks)
    rows = np.repeat(np.arange(len(masks)), np.diff(folded.row_offsets))
    scores = folded.scores(logits[rows, folded.token_ids])
    return folded.unfold(samplers.draw(scores, folded.masks, np.arange(len(masks), dtype=np.int32)))


def draw_whole(masks: WordArray, logits: np.ndarray, samplers: Samplers) -> Drawn:
    """From whole rows."""
    scores = np.zeros(logits.shape, np.float32)
    apply_mask(logits, masks, scores)
    return samplers.draw(scores, masks, np.arange(len(masks), dtype=np.int32))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sets(st.integers(0, VOCABULARY - 1), min_size=1, max_size=300), min_size=1, max_size=9),
    st.integers(0, 1000),
)
def test_the_same_tokens_are_drawn(allowed: list[set[int]], seed: int) -> None:
    """For every setting and several draws in a row, down to the last bit of the random number."""
    masks = pack(allowed)
    few, whole = samplers_of(len(allowed), seed), samplers_of(len(allowed), seed)
    draws = np.random.default_rng(seed)
    for _ in range(4):
        logits = draws.normal(scale=3.0, size=(len(allowed), VOCABULARY)).astype(np.float32)
        expected, found = draw_whole(masks, logits, whole), draw_few(masks, logits, few)
        assert expected.token_ids.tolist() == found.token_ids.tolist()
        assert expected.outcomes.tolist() == found.outcomes.tolist() == [Outcome.DRAWN] * len(allowed)


def test_allowed_tokens_are_listed_row_by_row() -> None:
    """In ascending order, also the first and the last of a word; counts agree."""
    masks = pack([{0, 31, 32, 4095}, {700}, set(), {5, 4, 3}])
    folded = fold(masks)
    assert [0, 31, 32, 4095, 700, 3, 4, 5] == folded.token_ids.tolist()
    assert [0, 4, 5, 5, 8] == folded.row_offsets.tolist()
    assert [4, 1, 0, 3] == allowed_counts(masks).tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_dead_rows_and_logits_that_are_no_numbers_are_told(bad: float) -> None:
    """A row without any token, one whose only logit is no number, and a sound one beside them."""
    masks = pack([set(), {40}, {41}])
    logits = np.zeros((3, VOCABULARY), np.float32)
    logits[1, 40] = bad
    drawn = draw_few(masks, logits, samplers_of(3, 0))
    assert [Outcome.DEAD, Outcome.NOT_FINITE, Outcome.DRAWN] == drawn.outcomes.tolist()
    assert 41 == drawn.token_ids[2]


class Doubler:
    """Makes logits of hidden states: each number and its double. Counts its rows."""

    def __init__(self) -> None:
        self.rows = 0

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """Twice as wide as the states."""
        self.rows += len(hidden)
        return np.concatenate([hidden, 2 * hidden], axis=1)


def test_logits_of_a_position_are_made_once() -> None:
    """Whoever asks, in whatever order; a copy of one position makes its own."""
    model = Doubler()
    outputs = Outputs(np.array([[1], [2], [3], [4]], np.float32), model)  # type: ignore[arg-type]
    copy = outputs.one(3)
    assert [[3, 6], [1, 2]] == outputs.logits([2, 0]).tolist()
    assert [[1, 2], [2, 4], [3, 6]] == outputs.logits([0, 1, 2]).tolist()
    assert [[1, 2], [2, 4]] == outputs.logits(slice(2)).tolist()
    assert 3 == model.rows
    assert [[4, 8]] == copy.logits([0]).tolist()


def test_a_model_without_hidden_states_gives_its_logits_as_they_are() -> None:
    """Nothing is copied, and some logits alone cannot be asked for."""
    found = np.ones((3, 5), np.float32)
    outputs = Outputs(found)
    assert np.shares_memory(found, outputs.logits(slice(2)))
    with pytest.raises(ValueError, match="here already"):
        outputs.logits_of([0], np.zeros(1, np.int32), np.array([0, 1], np.int32))
