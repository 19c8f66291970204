"""The forward pass against the slow referee, over every type of model and every way to cut sequences into batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from engine.models.gguf_file import GgufCheckpoint
from engine.models.hf_folder import HfCheckpoint
from engine.models.llama import decoder
from engine.models.llama.config import Checkpoint
from engine.models.llama.decoder import PASS_TOKENS, LlamaModel, pass_ends
from engine.models.llama.weights import packed_arrays, weights_of
from tests.engine.llama.slow import Sizes, slow_logits
from tests.engine.llama.tiny import Weights, batch_of, make_weights, write_folder, write_gguf

TOLERANCE = 2e-4  # of logits of the size of 1: float32 against float64
PLAIN = Sizes()
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
# Of 64 positions at base 10,000 and 8 numbers a head: 10.2 rounds stay, 1.02 are blended, 0.1 and less are slowed down.
SHARE = (64 / (2 * np.pi) / 10 - 1) / 3
LLAMA3_FACTORS = (1.0, 1 / (SHARE + (1 - SHARE) / 8), 8.0, 8.0)


def gguf(sizes: Sizes, architecture: str = "llama") -> Callable[[Path, Weights], Checkpoint]:
    """Writes and opens a GGUF file."""
    return lambda folder, weights: GgufCheckpoint(write_gguf(folder / "m.gguf", sizes, weights, architecture))


def folder(sizes: Sizes, **options: object) -> Callable[[Path, Weights], Checkpoint]:
    """Writes and opens a Hugging Face folder."""
    return lambda path, weights: HfCheckpoint(write_folder(path / "m", sizes, weights, **options))  # type: ignore[arg-type]


HALVES = replace(PLAIN, pairs="halves")
KINDS: dict[str, tuple[Sizes, Callable[[Path, Weights], Checkpoint]]] = {
    "gguf-llama": (PLAIN, gguf(PLAIN)),
    "gguf-untied": (replace(PLAIN, tied=False), gguf(replace(PLAIN, tied=False))),
    "gguf-factors": (
        replace(PLAIN, factors=(1.0, 1.5, 4.0, 8.0)),
        gguf(replace(PLAIN, factors=(1.0, 1.5, 4.0, 8.0))),
    ),
    "gguf-qwen2": (replace(HALVES, bias=True), gguf(replace(HALVES, bias=True), "qwen2")),
    "gguf-one-head-each": (replace(PLAIN, kv_heads=4), gguf(replace(PLAIN, kv_heads=4))),
    "folder-llama": (HALVES, folder(HALVES)),
    "folder-untied": (replace(HALVES, tied=False), folder(replace(HALVES, tied=False), model_type="mistral")),
    "folder-qwen2": (replace(HALVES, bias=True), folder(replace(HALVES, bias=True), model_type="qwen2")),
    "folder-llama3": (replace(HALVES, factors=LLAMA3_FACTORS), folder(HALVES, extra={"rope_scaling": LLAMA3})),
    "folder-odd-vocabulary": (replace(HALVES, vocabulary=301), folder(replace(HALVES, vocabulary=301), shards=3)),
}


def open_model(checkpoint: Checkpoint, slots: int = 4) -> LlamaModel:
    """The model of a checkpoint, weights in memory."""
    model = LlamaModel(checkpoint.config, weights_of(dict(packed_arrays(checkpoint))), cache_bytes=1 << 22)
    model.allocate(slots)
    return model


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    """A tiny model; each test takes it with empty slots."""
    return open_model(gguf(PLAIN)(tmp_path_factory.mktemp("plain"), make_weights(PLAIN)))


@pytest.fixture
def model(plain: LlamaModel) -> LlamaModel:
    """The tiny model with four empty slots."""
    plain.allocate(4)
    return plain


def tokens(count: int, seed: int = 0) -> list[int]:
    """Random tokens."""
    return np.random.default_rng(seed).integers(0, PLAIN.vocabulary, count).tolist()  # type: ignore[no-any-return]


def expected(token_ids: list[int], sizes: Sizes = PLAIN) -> NDArray[np.float64]:
    """What the referee says of the tiny model."""
    return slow_logits(sizes, make_weights(sizes), token_ids)


def assert_close(want: NDArray[np.float64], got: NDArray[np.float32]) -> None:
    """Equal up to rounding, on the tokens that there are."""
    np.testing.assert_allclose(got[..., : want.shape[-1]], want, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_of_each_type_of_model_are_the_referees(kind: str, tmp_path: Path) -> None:
    """At every position of a sequence that is fed at once."""
    sizes, write = KINDS[kind]
    token_ids, weights = tokens(90), make_weights(sizes)
    model = open_model(write(tmp_path, weights))
    got = model.forward(batch_of([token_ids], [0], range(89)))
    want = slow_logits(sizes, weights, token_ids)
    assert_close(want[-1], got[0])
    assert_close(want[:-1], got[1:])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_rows_may_be_cut_and_mixed_in_any_way(plain: LlamaModel, seed: int) -> None:
    """Chunks of any size, rows that join and wait: the logits are those of each sequence alone."""
    draws = np.random.default_rng(seed)
    plain.allocate(4)
    rows = [tokens(40 + 7 * row, row) for row in range(4)]
    want, fed = [expected(row) for row in rows], [0] * 4
    while any(fed[row] < len(rows[row]) for row in range(4)):
        sizes = [min(int(draws.choice([0, 1, 2, 5, 30])), len(rows[row]) - fed[row]) for row in range(4)]
        slots = [row for row in range(4) if sizes[row] or fed[row]]
        got = plain.forward(batch_of([rows[row][fed[row] : fed[row] + sizes[row]] for row in slots], slots))
        fed = [before + size for before, size in zip(fed, sizes, strict=True)]
        for number, row in enumerate(slots):
            assert_close(want[row][fed[row] - 1], got[number])


def test_decode_steps_of_rows_of_unlike_lengths_are_the_referees(model: LlamaModel) -> None:
    """One token each, at lengths that fall into several groups of padding."""
    rows = [tokens(length, length) for length in (2, 40, 70, 200)]
    model.forward(batch_of([row[:-1] for row in rows], range(4)))
    got = model.forward(batch_of([row[-1:] for row in rows], range(4)))
    assert_close(np.stack([expected(row)[-1] for row in rows]), got)


def test_a_prompt_longer_than_a_pass_is_cut(model: LlamaModel) -> None:
    """Beside another row, with inner positions on both sides of the cut."""
    long, short = tokens(PASS_TOKENS + 50), tokens(20, 1)
    got = model.forward(batch_of([short, long], [2, 1], [5, 20 + PASS_TOKENS - 1, 20 + PASS_TOKENS]))
    want = expected(long)
    assert_close(np.stack([expected(short)[-1], want[-1]]), got[:2])
    assert_close(np.stack([expected(short)[5], want[PASS_TOKENS - 1], want[PASS_TOKENS]]), got[2:])


@given(lengths=st.lists(st.integers(0, 3 * PASS_TOKENS), min_size=1, max_size=8))
def test_passes_are_bounded_and_cut_rows_as_if_alone(lengths: list[int]) -> None:
    """Each pass has at most `PASS_TOKENS`, and cuts within a row are at multiples of them from its beginning."""
    offsets = np.cumsum([0, *lengths])
    ends = pass_ends(offsets.astype(np.int32))
    assert offsets[-1] == ([0, *ends])[-1]
    assert all(0 < end - start <= PASS_TOKENS for start, end in zip([0, *ends], ends, strict=False))
    assert all(min((end - first) % PASS_TOKENS for first in offsets if first <= end) == 0 for end in ends)


def test_a_row_without_new_tokens_has_the_logits_it_had(model: LlamaModel) -> None:
    """Asked again beside a row that goes on."""
    first = model.forward(batch_of([tokens(10), tokens(12, 1)], [0, 1]))
    again = model.forward(batch_of([[], tokens(3, 2)], [0, 1]))
    assert np.array_equal(first[0], again[0])


def test_an_empty_prompt_begins_with_the_start_token(model: LlamaModel) -> None:
    """So that there is something to predict from; inner positions of other rows stay what they are."""
    row = tokens(5)
    got = model.forward(batch_of([[], row], [0, 1], [2]))
    assert_close(np.stack([expected([1])[0], expected(row)[-1], expected(row)[2]]), got)
    assert_close(expected([1, 7])[1], model.forward(batch_of([[7]], [0]))[0])


def test_reset_forgets(model: LlamaModel) -> None:
    """A slot that another sequence had gives the logits of a fresh one."""
    model.forward(batch_of([tokens(30)], [0]))
    model.reset(0)
    row = tokens(9, 3)
    assert_close(expected(row)[-1], model.forward(batch_of([row], [0]))[0])


def test_logits_of_some_tokens_are_those_of_all(model: LlamaModel) -> None:
    """Other tokens for each row, none for one."""
    hidden = model.hidden(batch_of([tokens(4), tokens(5, 1), tokens(6, 2)], [0, 1, 2]))
    offsets, ids = np.array([0, 3, 3, 4], np.int32), np.array([3, 3, 289, 0], np.int32)
    found = model.logits_of(hidden, ids, offsets)
    logits = model.logits(hidden)
    np.testing.assert_allclose(found, [logits[0, 3], logits[0, 3], logits[0, 289], logits[2, 0]], atol=1e-5)


def test_a_chunk_needs_no_logits(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first part of a prompt is fed without a product with the output matrix."""
    monkeypatch.setattr(LlamaModel, "logits", None)
    row = tokens(30)
    model.hidden(batch_of([row[:20]], [0]))
    monkeypatch.undo()
    assert_close(expected(row)[-1], model.forward(batch_of([row[20:]], [0]))[0])


def test_numbers_that_are_none_stay_in_their_row(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken row does not break its neighbours, now or later."""
    weights = model._weights
    embedding = weights.embedding.copy()
    embedding[5] = np.nan
    monkeypatch.setattr(model, "_weights", replace(weights, embedding=embedding))
    rows = [tokens(70), tokens(65, 1)]
    rows = [[token_id for token_id in row if token_id != 5] for row in rows]
    model.forward(batch_of(rows, [0, 1]))
    got = model.forward(batch_of([[5], [7]], [0, 1]))
    later = model.forward(batch_of([[6], [8]], [0, 1]))
    assert np.isnan(got[0]).all()
    assert_close(expected([*rows[1], 7, 8])[-2:], np.stack([got[1], later[1]]))


def test_a_pass_that_breaks_off_leaves_no_prefix_behind(model: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was noted and not computed must not be taken for the beginning of another sequence."""
    row = tokens(20)
    monkeypatch.setattr(model, "_feed_forward", None)
    with pytest.raises(TypeError):
        model.hidden(batch_of([row, row], [0, 1]))
    monkeypatch.undo()
    assert model.cache.reserve(2, 20)
    assert 0 == model.cache.reuse_prefix(2, np.array(row, np.int32))


def test_copied_prefix_goes_on_like_the_original(model: LlamaModel) -> None:
    """Four choices of one prompt: fed once, copied three times."""
    prompt = tokens(50)
    model.forward(batch_of([prompt], [0]))
    for slot in (1, 2, 3):
        assert model.cache.reserve(slot, 60)
        model.cache.copy_prefix(0, slot, 50)
    got = model.forward(batch_of([[slot + 10] for slot in range(4)], range(4)))
    assert_close(np.stack([expected([*prompt, slot + 10])[-1] for slot in range(4)]), got)


def test_reused_prefix_goes_on_like_a_fresh_sequence(model: LlamaModel) -> None:
    """A request that shares the beginning of one that is over feeds only what differs."""
    first, second = tokens(40), [*tokens(40)[:25], *tokens(10, 9)]
    model.forward(batch_of([first], [0]))
    model.cache.release(0)
    assert model.cache.reserve(1, 40)
    held = model.cache.reuse_prefix(1, np.array(second, np.int32))
    assert held == 25
    assert_close(expected(second)[-1], model.forward(batch_of([second[held:]], [1]))[0])


def test_context_is_what_memory_holds(tmp_path: Path) -> None:
    """A prompt that cannot fit is refused by the context's length, before anything is fed."""
    checkpoint = gguf(PLAIN)(tmp_path, make_weights(PLAIN))
    weights = weights_of(dict(packed_arrays(checkpoint)))
    token_bytes = 2 * 2 * 2 * 8 * 4
    assert LlamaModel(checkpoint.config, weights, 100 * token_bytes).context_length == 99
    assert LlamaModel(checkpoint.config, weights, 1 << 24).context_length == PLAIN.context


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7])
def test_batch_invariant_logits_are_the_same_to_the_last_bit(model: LlamaModel, rows: int) -> None:
    """Whatever other rows are there, in the prompt and in decode steps."""
    prompts = [tokens(300 if row == 3 else 20 + 13 * row, row) for row in range(7)]

    def logits_of_row(row: int, others: list[int]) -> NDArray[np.float32]:
        model.allocate(7, batch_invariant=True)
        together = sorted({row, *others})
        found = [model.forward(batch_of([prompts[i] for i in together], together))[together.index(row)]]
        for token_id in (9, 8, 7):
            found.append(model.forward(batch_of([[token_id]] * len(together), together))[together.index(row)])
        return np.stack(found)

    for row in (0, 3):
        assert np.array_equal(logits_of_row(row, []), logits_of_row(row, list(range(rows))))


def test_scratch_is_as_large_as_a_pass() -> None:
    """A pass is a whole number of tiles, so that padding fits into it."""
    assert 0 == decoder.PASS_TOKENS % 16 == decoder.PASS_TOKENS % decoder.ROW_MULTIPLE
