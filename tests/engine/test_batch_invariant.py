"""Bits that do not depend on the company: tiles, logits of both shipped models, and greedy texts."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Engine, EngineConfig, LoadedModel, Request, Sampling, load_model
from engine.models import Batch
from engine.models.tiles import TILE_ROWS, fixed_tiles, tiled_product
from engine.models.window_mlp import WindowMlp
from engine.sequence import Sequence, choice_of
from engine.step import Decoder
from schemas_cache import Source, schema_source
from tests.toy import TOY, GreedyTokenizer, ToyModel, decode, random_logits, rows_for

SCHEMA = schema_source(
    {
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": 24},
            "level": {"enum": ["初級", "中級", "上級"]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
        },
        "required": ["title", "level", "tags"],
    }
)
SLOTS = 40
NEAR_TIE = 1e-3  # nats: hundreds of times what two orders of summation differ by in these models


@pytest.fixture(scope="module", params=["katagami-char", "katagami-bpe"])
def loaded(request: pytest.FixtureRequest) -> LoadedModel:
    """A shipped model."""
    return load_model(str(request.param))


def contexts_of(vocabulary_size: int) -> list[list[int]]:
    """One context for each slot, of different lengths."""
    draws = np.random.default_rng(5)
    return [draws.integers(0, vocabulary_size, draws.integers(0, 40)).tolist() for _ in range(SLOTS)]


def logits_of(model: WindowMlp, contexts: list[list[int]], numbers: list[int], inner: bool = False) -> np.ndarray:
    """Last logits of these contexts as one batch, in slots of that order; inner positions beside them on request."""
    model.allocate(SLOTS, batch_invariant=True)
    offsets = np.cumsum([0, *(len(contexts[number]) for number in numbers)]).astype(np.int32)
    token_ids = np.array([token for number in numbers for token in contexts[number]], np.int32)
    ends = set(offsets.tolist())
    wanted = np.array([at for at in range(len(token_ids)) if inner and at + 1 not in ends], np.int32)
    slots = np.arange(len(numbers), dtype=np.int32)
    return model.forward(Batch(token_ids, offsets, slots, wanted))[: len(numbers)]


def test_logits_are_the_same_bits_in_every_batch(loaded: LoadedModel) -> None:
    """Batches of 1 to 40 rows, each row in several places, beside inner positions too."""
    model = loaded.model
    assert isinstance(model, WindowMlp)
    contexts = contexts_of(model.vocabulary_size)
    alone = np.concatenate([logits_of(model, contexts, [number]) for number in range(SLOTS)])
    draws = np.random.default_rng(1)
    for size in range(1, SLOTS + 1):
        numbers = draws.permutation(SLOTS)[:size].tolist()
        np.testing.assert_array_equal(alone[numbers], logits_of(model, contexts, numbers, inner=size % 8 == 0))


def test_inner_logits_are_the_bits_of_a_last_position(loaded: LoadedModel) -> None:
    """What is said inside a chunk is what is said when the chunk ends there."""
    model = loaded.model
    context = [5, 9, 30, 7, 2, 11]
    model.allocate(1, batch_invariant=True)
    slots = np.zeros(1, np.int32)
    whole = Batch(np.array(context, np.int32), np.array([0, 6], np.int32), slots, np.arange(5, dtype=np.int32))
    inner = model.forward(whole)[1:]
    model.allocate(1, batch_invariant=True)
    for at, token in enumerate(context[:-1]):
        one = Batch(np.array([token], np.int32), np.array([0, 1], np.int32), slots)
        np.testing.assert_array_equal(inner[at], model.forward(one)[0])


def run(loaded: LoadedModel, sources: list[Source | None], slots: int, batch_invariant: bool) -> list[Sequence]:
    """Greedy texts, a request each, all of them with a title of their own as the prompt."""
    vocabulary, tokenizer = loaded.tokenizer.vocabulary, loaded.tokenizer
    rows: list[Sequence] = []
    for number, source in enumerate(sources):
        prompt = tuple(tokenizer.encode("初級 中級 上級 料理 旅 数学"[number % 12 :]))
        request = Request((prompt,), 60, sampling=Sampling(temperature=0), source=source, logprobs=2)
        rows += rows_for(request, vocabulary)
    decoder = Decoder(loaded.model, vocabulary, tokenizer.encode_bytes, slots, batch_invariant=batch_invariant)
    decode(decoder, rows, most_steps=5000)
    assert [row.error for row in rows] == [None] * len(rows)
    return rows


SOURCES = [SCHEMA if number % 3 else None for number in range(32)]


def test_greedy_text_is_exactly_the_same_in_a_crowd(loaded: LoadedModel) -> None:
    """Alone and among 31 others, schemas and free text mixed: same tokens, and log-probabilities to the last bit."""
    alone = run(loaded, SOURCES, slots=1, batch_invariant=True)
    crowd = run(loaded, SOURCES, slots=32, batch_invariant=True)
    assert [choice_of(row).token_ids for row in alone] == [choice_of(row).token_ids for row in crowd]
    assert [choice_of(row).logprobs for row in alone] == [choice_of(row).logprobs for row in crowd]


def test_without_it_texts_part_at_near_ties_only(loaded: LoadedModel) -> None:
    """The first token that differs, if any does, was within 0.001 nats of the other one both times."""
    alone = run(loaded, SOURCES, slots=1, batch_invariant=False)
    crowd = run(loaded, SOURCES, slots=32, batch_invariant=False)
    for one, other in zip(alone, crowd, strict=True):
        pairs = list(zip(one.token_ids, other.token_ids, strict=False))
        same = next((at for at, (a, b) in enumerate(pairs) if a != b), len(pairs))
        for mine, theirs in zip(one.logprobs[:same], other.logprobs[:same], strict=True):
            assert mine.logprob == pytest.approx(theirs.logprob, abs=NEAR_TIE / 10)
        if same < len(pairs):
            mine, theirs = one.logprobs[same], other.logprobs[same]
            chances = dict(theirs.alternatives)
            assert mine.token_id in chances
            assert abs(chances[mine.token_id] - theirs.logprob) < NEAR_TIE


def test_the_engine_passes_it_on() -> None:
    """The setting reaches the model."""
    told: list[bool] = []

    class Told(ToyModel):
        """Notes what it is told."""

        def allocate(self, slots: int, batch_invariant: bool = False) -> None:
            """As the toy model."""
            told.append(batch_invariant)
            super().allocate(slots)

    for setting in (False, True):
        toy = LoadedModel("toy", Told(len(TOY), random_logits(len(TOY))), GreedyTokenizer(TOY), {})  # type: ignore[arg-type]
        engine = Engine(EngineConfig(model="toy", batch_invariant=setting), load=lambda _name, toy=toy: toy)
        engine.start()
        engine.stop()
    assert [False, True] == told


def test_tiled_product_is_the_product() -> None:
    """For numbers of rows that fill no tile, one, and several; none too."""
    draws = np.random.default_rng(0)
    weight = draws.normal(size=(50, 30)).astype(np.float32)
    for count in (0, 1, 7, 8, 9, 40):
        rows = draws.normal(size=(count, 30)).astype(np.float32)
        np.testing.assert_allclose(rows @ weight.T, tiled_product(rows, weight, 8), rtol=1e-4, atol=1e-5)


def test_a_tile_whose_places_differ_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that adds differently from the third row of a tile on leaves only the tile of one row."""

    def uneven(rows: np.ndarray, weight: np.ndarray, tile_rows: int) -> np.ndarray:
        product = tiled_product(rows, weight, tile_rows)
        product[np.arange(len(rows)) % tile_rows >= 2] += np.float32(1e-3)
        return product

    monkeypatch.setattr("engine.models.tiles.tiled_product", uneven)
    assert fixed_tiles([np.ones((20, 30), np.float32)]) == TILE_ROWS[-1] == 1
