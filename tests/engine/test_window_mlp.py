"""The window model: its size, its memory, and its logits against a plain re-computation."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.models import Batch
from engine.models.window_mlp import WindowMlp, parameter_count, parameter_shapes

VOCABULARY, END, SLOTS = 6, 0, 4
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), max_size=40)


def make_weights() -> dict[str, NDArray[np.float32]]:
    """Random weights of full width for six tokens."""
    draws = np.random.default_rng(0)
    return {
        name: 0.3 * draws.standard_normal(shape).astype(np.float32)
        for name, shape in parameter_shapes(VOCABULARY).items()
    }


WEIGHTS = make_weights()


def make_model() -> WindowMlp:
    """A model with four slots, each at the beginning of a line."""
    model = WindowMlp(WEIGHTS, END)
    model.allocate(SLOTS)
    return model


def feed(model: WindowMlp, rows: Mapping[int, Sequence[int]]) -> NDArray[np.float32]:
    """One step: slot -> new tokens."""
    token_ids = np.array([token for tokens in rows.values() for token in tokens], np.int32)
    offsets = np.cumsum([0, *map(len, rows.values())]).astype(np.int32)
    logits = model.forward(Batch(token_ids, offsets, np.array(list(rows), np.int32)))
    return logits[:, : model.vocabulary_size]


def plain_logits(fed: Sequence[int]) -> NDArray[np.float64]:
    """Logits after all tokens of a sequence, from the definition: 24 tokens of the last line, end tokens before it."""
    line = list(fed)
    while END in line:
        line.pop(0)
    window = ([END] * 24 + line)[-24:]
    embedded = np.concatenate([WEIGHTS["embedding.weight"][token] for token in window]).astype(np.float64)
    hidden = np.tanh(WEIGHTS["hidden.weight"] @ embedded + WEIGHTS["hidden.bias"])
    logits = WEIGHTS["output.weight"] @ hidden + WEIGHTS["output.bias"]
    return logits.astype(np.float64)


@pytest.mark.parametrize(("vocabulary_size", "count"), [(838, 327_334), (1038, 381_934)])
def test_parameter_count_is_the_article_s(vocabulary_size: int, count: int) -> None:
    """V x 16 + (24 x 16) x 256 + 256 + 256 x V + V."""
    assert count == parameter_count(vocabulary_size)
    assert count == vocabulary_size * 16 + (24 * 16) * 256 + 256 + 256 * vocabulary_size + vocabulary_size


@settings(deadline=None, max_examples=60)
@given(st.lists(st.dictionaries(st.integers(0, SLOTS - 1), TOKENS, min_size=1), max_size=6))
def test_logits_are_those_of_the_last_line_s_window(steps: list[dict[int, list[int]]]) -> None:
    """Rows of any lengths in any slots, joining and pausing, as if each sequence were computed alone from its start."""
    model = make_model()
    fed: dict[int, list[int]] = {slot: [] for slot in range(SLOTS)}
    for rows in steps:
        logits = feed(model, rows)
        for row, (slot, tokens) in enumerate(rows.items()):
            fed[slot] += tokens
            assert plain_logits(fed[slot]) == pytest.approx(logits[row], abs=1e-4)


def test_empty_prompt_is_the_beginning_of_a_line() -> None:
    """No token, and the end token of another line, give the same logits."""
    logits = feed(make_model(), {0: [], 1: [3, 2, END], 2: [END]})
    assert logits[0].tolist() == pytest.approx(logits[1].tolist())
    assert logits[0].tolist() == pytest.approx(logits[2].tolist())


def test_reset_forgets_one_slot_only() -> None:
    """The slot is as new; its neighbour goes on."""
    model = make_model()
    feed(model, {0: [1, 2], 1: [3, 4]})
    model.reset(0)
    logits = feed(model, {0: [], 1: []})
    assert plain_logits([]) == pytest.approx(logits[0], abs=1e-4)
    assert plain_logits([3, 4]) == pytest.approx(logits[1], abs=1e-4)


def test_allocate_forgets_all() -> None:
    """And makes as many slots as asked for."""
    model = make_model()
    feed(model, {0: [1, 2]})
    model.allocate(SLOTS + 1)
    logits = feed(model, {0: [], SLOTS: [5]})
    assert plain_logits([]) == pytest.approx(logits[0], abs=1e-4)
    assert plain_logits([5]) == pytest.approx(logits[1], abs=1e-4)


def test_logits_are_float32_and_new_each_time() -> None:
    """The caller may keep a row while the next step runs."""
    model = make_model()
    first = feed(model, {0: [1]})
    kept = first.copy()
    feed(model, {0: [2]})
    assert first.dtype == np.float32
    assert np.array_equal(kept, first)


@pytest.mark.parametrize("fault", ["missing", "superfluous", "shape"])
def test_weights_that_do_not_fit_are_refused(fault: str) -> None:
    """Each kind of misfit."""
    weights: dict[str, NDArray[np.float32]] = dict(WEIGHTS)
    if fault == "missing":
        del weights["hidden.bias"]
    elif fault == "superfluous":
        weights["hidden.scale"] = weights["hidden.bias"]
    else:
        weights["hidden.weight"] = weights["hidden.weight"].T
    with pytest.raises(ValueError, match="not the weights of a window model"):
        WindowMlp(weights, END)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.tuples(st.integers(0, VOCABULARY - 1), st.booleans()), max_size=30), max_size=SLOTS))
def test_inner_logits_are_those_of_feeding_token_by_token(rows: list[list[tuple[int, bool]]]) -> None:
    """Of any tokens of a chunk, end tokens and those past a window among them; memory and last logits stay the same."""
    fed = {slot: [token for token, _ in row] for slot, row in enumerate(rows)}
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    asked = [(slot, at) for slot, row in enumerate(rows) for at, (_, wanted) in enumerate(row[:-1]) if wanted]
    inner = np.array([offsets[slot] + at for slot, at in asked], np.int32)
    token_ids = np.array([token for tokens in fed.values() for token in tokens], np.int32)
    model, plain = make_model(), make_model()
    feed(model, {slot: [1, 2] for slot in fed})
    logits = model.forward(Batch(token_ids, offsets, np.array(list(fed), np.int32), inner))[:, :VOCABULARY]
    assert (len(rows) + len(asked), VOCABULARY) == logits.shape
    feed(plain, {slot: [1, 2] for slot in fed})
    for number, (slot, at) in enumerate(asked):
        assert plain_logits([1, 2, *fed[slot][: at + 1]]) == pytest.approx(logits[len(rows) + number], abs=1e-4)
    last = feed(plain, fed)
    assert last == pytest.approx(logits[: len(rows)], abs=1e-5)
    again = {slot: [] for slot in fed}
    assert feed(plain, again) == pytest.approx(feed(model, again), abs=1e-5)
