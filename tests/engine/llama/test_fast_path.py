"""The fast path of models with a KV cache: texts are those of the slow path, and the work is less."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from engine import CacheTooSmallError, ContextLengthError, Engine, EngineConfig, LoadedModel, Request, Retry, Sampling
from engine.config import FastPath
from engine.errors import EngineFailedError
from engine.models import caching
from engine.models.llama.kv_cache import GRAIN_TOKENS
from engine.sequence import Sequence, choice_of, result_of
from schemas_cache import SchemaCache, schema_source
from tests.engine.llama.answers import OFF, Fed, decoder_of, load_tiny, rows_of, run

SCHEMA = {
    "type": "object",
    "properties": {
        "level": {"enum": ["low", "lower", "high"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["level", "tags", "count"],
}
SOURCE = schema_source(SCHEMA)
LONG = tuple(int(i) for i in np.random.default_rng(5).integers(2, 265, 200))


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedModel:
    """A tiny random model."""
    return load_tiny(tmp_path)


def texts(rows: list[Sequence]) -> list[str]:
    """Text of each."""
    return [choice_of(row).text for row in rows]


def mixed(loaded: LoadedModel, temperature: float) -> list[Sequence]:
    """Rows with and without schema, with penalties, with log-probabilities, after short and long prompts."""
    rows: list[Sequence] = []
    for seed in range(3):
        sampling = Sampling(temperature=temperature, top_p=0.9 if seed else 1.0)
        biased = Sampling(temperature=temperature, frequency_penalty=0.5)
        rows += rows_of(loaded, Request(((5, 6, 7),), 60, sampling=sampling, source=SOURCE), seed)
        rows += rows_of(loaded, Request((LONG[: 50 + seed],), 60, sampling=sampling, source=SOURCE, n=2), seed)
        rows += rows_of(loaded, Request(((),), 12, sampling=sampling), seed)
        rows += rows_of(loaded, Request((LONG,), 60, sampling=biased, source=SOURCE), seed)
        rows += rows_of(loaded, Request((LONG,), 60, sampling=sampling, source=SOURCE, logprobs=2), seed)
        rows += rows_of(loaded, Request((LONG,), 60, sampling=sampling, source=SOURCE, diagnostics=True), seed)
    return rows


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("few_tokens", [10, 1000])
def test_switches_change_no_text(
    loaded: LoadedModel, temperature: float, few_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All on against all off: the same tokens for the same seeds, greedy or drawn."""
    monkeypatch.setattr("engine.drawing.FEW_TOKENS", few_tokens)
    slow = run(decoder_of(loaded, fast_path=OFF), mixed(loaded, temperature))
    fast = run(decoder_of(loaded, fast_path=FastPath(prefill_chunk_tokens=33)), mixed(loaded, temperature))
    assert [None] * len(slow) == [row.error for row in slow]
    assert [row.token_ids for row in slow] == [row.token_ids for row in fast]
    for one, other in zip(slow, fast, strict=True):
        assert [p.logprob for p in one.logprobs] == pytest.approx([p.logprob for p in other.logprobs], abs=1e-4)
        assert (one.diagnostics is None) == (other.diagnostics is None)
        if one.diagnostics is not None and other.diagnostics is not None:
            assert one.diagnostics.mean_mass == pytest.approx(other.diagnostics.mean_mass, abs=1e-5)


def test_few_allowed_tokens_need_no_product_with_the_output_matrix(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An enum is written without ever asking for the logits of the whole vocabulary."""
    model = caching(loaded.model)
    assert model is not None
    monkeypatch.setattr(model, "logits", None)
    source = schema_source({"enum": ["red", "green", "grey"]})
    (row,) = run(decoder_of(loaded), rows_of(loaded, Request(((5, 6),), 20, source=source)))
    assert row.error is None
    assert choice_of(row).text in ('"red"', '"green"', '"grey"')
    with pytest.raises(TypeError):
        run(decoder_of(loaded, fast_path=OFF), rows_of(loaded, Request(((5, 6),), 20, source=source)))


def test_choices_compute_their_prompt_once(loaded: LoadedModel) -> None:
    """Four answers to one prompt of 200 tokens: 200 tokens are fed, and then the last one for each of the others."""
    fed = Fed(loaded)
    rows = run(decoder_of(loaded), rows_of(loaded, Request((LONG,), 1, n=4)))
    assert len(LONG) + 3 == fed.tokens
    assert [0, 199, 199, 199] == [row.cached_tokens for row in rows]
    assert 0 == result_of(rows[0].job, map(choice_of, rows), 1.0).cached_tokens


def test_a_common_beginning_is_computed_once(loaded: LoadedModel) -> None:
    """Requests after each other and together; cached are the tokens that they share, and the text is the same."""
    first, second = (*LONG[:120], 3, 4), (*LONG[:120], 5, 6, 7)
    decoder, greedy = decoder_of(loaded), Sampling(temperature=0.0)
    run(decoder, rows_of(loaded, Request((first,), 5, sampling=greedy)))
    fed = Fed(loaded)
    (again,) = run(decoder, rows_of(loaded, Request((second,), 5, sampling=greedy)))
    assert (120, 3 + 4) == (again.cached_tokens, fed.tokens)
    assert 120 == result_of(again.job, [choice_of(again)], 1.0).cached_tokens
    (fresh,) = run(decoder_of(loaded, fast_path=OFF), rows_of(loaded, Request((second,), 5, sampling=greedy)))
    assert fresh.token_ids == again.token_ids
    together = [row for prompt in (first, second) for row in rows_of(loaded, Request((prompt,), 5, sampling=greedy))]
    assert [0, 120] == [row.cached_tokens for row in run(decoder_of(loaded), together)]
    assert fresh.token_ids == together[1].token_ids


def test_the_same_prompt_again_is_all_but_free(loaded: LoadedModel) -> None:
    """The second turn of a talk begins with the first one and its answer."""
    decoder = decoder_of(loaded)
    (one,) = run(decoder, rows_of(loaded, Request((LONG,), 6, sampling=Sampling(temperature=0.0))))
    fed = Fed(loaded)
    prompt = (*LONG, *one.token_ids, 9)
    (two,) = run(decoder, rows_of(loaded, Request((prompt,), 1)))
    assert len(LONG) + len(one.token_ids) - 1 == two.cached_tokens  # the last one drawn was never fed
    assert 2 == fed.tokens


def test_cached_tokens_are_those_of_the_first_attempt(loaded: LoadedModel) -> None:
    """Six attempts at an answer begin with the prompt that the first one left; before it nothing was there."""
    engine = Engine(EngineConfig(model="tiny", max_running=2), load=lambda _: loaded, cache=SchemaCache(None))
    engine.start()
    try:
        retry = Retry(6, lambda _: None)
        result = engine.submit(
            "tiny", Request((LONG,), 2, source=schema_source({"const": 12345}), retry=retry)
        ).result()
    finally:
        engine.stop()
    attempts = result.choices[0].attempts
    assert attempts is not None
    assert (6, 0) == (attempts.made, result.cached_tokens)


def test_a_slot_that_holds_a_longer_beginning_is_taken(loaded: LoadedModel) -> None:
    """Two talks in turn keep their places: neither overwrites what the other comes back for."""
    decoder, other = decoder_of(loaded, max_running=3), tuple(reversed(LONG))
    for turn in range(3):
        for talk in (LONG, other):
            (row,) = run(decoder, rows_of(loaded, Request((talk[: 100 + 20 * turn],), 1)))
            assert (0 if turn == 0 else 80 + 20 * turn) == row.cached_tokens


def test_what_a_broken_step_left_is_not_used_again(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tokens were noted, but their keys and values never came."""
    decoder = decoder_of(loaded)
    with monkeypatch.context() as patch:
        patch.setattr(loaded.model, "_feed_forward", None)
        decoder.scheduler.add(rows_of(loaded, Request((LONG,), 1)))
        with pytest.raises(TypeError):
            decoder.step()
    decoder.abandon(EngineFailedError("broken"))
    (row,) = run(decoder, rows_of(loaded, Request((LONG,), 3, sampling=Sampling(temperature=0.0))))
    (fresh,) = run(decoder_of(loaded), rows_of(loaded, Request((LONG,), 3, sampling=Sampling(temperature=0.0))))
    assert (0, fresh.token_ids) == (row.cached_tokens, row.token_ids)


def test_probabilities_of_a_prompt_are_computed_whatever_is_held(loaded: LoadedModel) -> None:
    """Echoed log-probabilities need every token's logits; those of the answer alone do not."""
    decoder = decoder_of(loaded)
    (first, second, third) = (
        run(decoder, rows_of(loaded, Request((LONG,), 2, logprobs=0, prompt_logprobs=prompt_too)))[0]
        for prompt_too in (True, True, False)
    )
    assert [0, 0, len(LONG) - 1] == [row.cached_tokens for row in (first, second, third)]
    values = [one.logprob for one in first.prompt_logprobs[1:] if one is not None]
    assert values == pytest.approx([one.logprob for one in second.prompt_logprobs[1:] if one is not None], abs=1e-5)
    assert len(LONG) - 1 == len(values)


def test_a_long_prompt_does_not_stop_the_others(loaded: LoadedModel) -> None:
    """While 200 tokens come in parts of 40, a running row gets a token in every step."""
    decoder = decoder_of(loaded, fast_path=FastPath(prefill_chunk_tokens=40))
    (running,) = rows_of(loaded, Request(((5, 6),), 30))
    decoder.scheduler.add([running])
    decoder.step()
    fed = Fed(loaded)
    (late,) = rows_of(loaded, Request((LONG,), 5))
    decoder.scheduler.add([late])
    for step in range(5):
        assert (step + 1, 0) == (len(running.token_ids), len(late.token_ids))
        decoder.step()
    assert [40] * 5 == [len(one[late.slot]) for one in fed.passes]
    assert 1 == len(late.token_ids)


def test_prompts_are_fed_first_come_first_served(loaded: LoadedModel) -> None:
    """Of two long prompts beside a running row the earlier one has the whole share until it is done."""
    decoder = decoder_of(loaded, fast_path=FastPath(prefill_chunk_tokens=50, prefix_reuse=False))
    rows = [rows_of(loaded, Request((prompt,), 30))[0] for prompt in ((5, 6), LONG[:120], LONG[50:150])]
    fed = Fed(loaded)
    decoder.scheduler.add(rows[:1])
    decoder.step()
    decoder.scheduler.add(rows[1:])
    for _ in range(4):
        decoder.step()
    lengths = [[len(one.get(row.slot, ())) for row in rows] for one in fed.passes]
    assert [[2, 0, 0], [1, 50, 0], [1, 50, 0], [1, 20, 30], [1, 1, 50]] == lengths


def test_rows_wait_for_room_and_all_get_it(tmp_path: Path) -> None:
    """Room for two of six at a time: never more run, none fails, and the texts are those with room for all."""
    with_room = load_tiny(tmp_path)
    tokens = 2 * GRAIN_TOKENS
    asked = [Request((LONG[i : i + 60],), 60, sampling=Sampling(temperature=0.0)) for i in range(6)]
    expected = run(decoder_of(with_room), [row for one in asked for row in rows_of(with_room, one)])
    size = caching(with_room.model).cache.token_bytes  # type: ignore[union-attr]
    (tmp_path / "small").mkdir()
    small = load_tiny(tmp_path / "small", 2 * tokens * size)
    decoder = decoder_of(small)
    rows = [row for one in asked for row in rows_of(small, one)]
    decoder.scheduler.add(rows)
    most = 0
    while not decoder.scheduler.idle:
        decoder.step()
        most = max(most, decoder.scheduler.slots_taken)
    assert 2 == most
    assert [row.token_ids for row in expected] == [row.token_ids for row in rows]


def test_a_prompt_that_fills_the_memory_is_refused_with_the_figure(tmp_path: Path) -> None:
    """Longer than the cache and longer than the context are two errors; each says its own figures."""
    loaded = load_tiny(tmp_path, 100 * 256 * 4)
    capacity = caching(loaded.model).cache.capacity_tokens  # type: ignore[union-attr]
    assert capacity < 512
    engine = Engine(EngineConfig(model="tiny"), load=lambda _name: loaded)
    engine.start()
    try:
        needed, held = (f"{tokens * 256:,}" for tokens in (capacity + 1, capacity))
        with pytest.raises(CacheTooSmallError, match=f"has {capacity} tokens and needs {needed} bytes .* has {held}$"):
            engine.submit("tiny", Request(((5,) * capacity,), 1))
    finally:
        engine.stop()
    (tmp_path / "large").mkdir()
    large = load_tiny(tmp_path / "large")
    engine = Engine(EngineConfig(model="tiny"), load=lambda _name: large)
    engine.start()
    try:
        with pytest.raises(ContextLengthError):
            engine.submit("tiny", Request(((5,) * 513,), 1))
    finally:
        engine.stop()


def test_batch_invariant_rows_do_not_depend_on_what_is_held(loaded: LoadedModel) -> None:
    """Bit for bit: log-probabilities alone, in a crowd of long prompts, and after the same prompt."""
    asked = Request((LONG,), 8, sampling=Sampling(temperature=0.0), logprobs=0)
    (alone,) = run(decoder_of(loaded, batch_invariant=True), rows_of(loaded, asked))
    decoder = decoder_of(loaded, batch_invariant=True)
    crowd = [row for i in range(1, 5) for row in rows_of(loaded, Request((LONG[i:],), 9))]
    again = run(decoder, [*crowd, *rows_of(loaded, asked)])[-1]
    after = run(decoder, rows_of(loaded, asked))[0]
    assert [one.logprob for one in alone.logprobs] == [one.logprob for one in again.logprobs]
    assert [one.logprob for one in alone.logprobs] == [one.logprob for one in after.logprobs]


def test_drawn_tokens_have_the_distribution_of_the_masked_model(loaded: LoadedModel) -> None:
    """First tokens of 4,000 answers against the softmax over what the schema allows, from whole logits."""
    source = schema_source({"enum": [1, 2, 3, 45]})
    rows = run(decoder_of(loaded, max_running=64), rows_of(loaded, Request(((5, 6, 7),), 2, n=4000, source=source)))
    found = Counter(row.token_ids[0] for row in rows)
    decoder = decoder_of(loaded, fast_path=OFF, max_running=1)
    (scored,) = run(
        decoder, rows_of(loaded, Request(((5, 6, 7),), 2, source=source, logprobs=20, logprobs_from="masked"))
    )
    expected = {token_id: np.exp(logprob) for token_id, logprob in scored.logprobs[0].alternatives if logprob > -50}
    assert set(found) <= set(expected)
    for token_id, share in expected.items():
        assert found[token_id] / 4000 == pytest.approx(share, abs=5 * np.sqrt(share * (1 - share) / 4000))
