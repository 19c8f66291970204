"""Log-probabilities: single rows against float64, whole answers against feeding their tokens one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import LoadedModel, load_model
from engine.constraint import drawable_words
from engine.errors import EngineFailedError
from engine.logprobs import FLOOR, allowed_bits, kept_mass, token_logprobs
from engine.models import Batch
from engine.outputs import Outputs
from engine.penalties import offset_of
from engine.recorder import Record, Recorder
from engine.request import Request, Sampling, TokenLogprobs
from engine.sequence import Sequence, choice_of
from engine.step import Decoder
from schemas_cache import Finding, Matcher, SchemaTooComplexError, Source, schema_source
from tests.toy import CHARACTERS, TOY, Logits, ToyModel, decode, decoder_for, random_logits, rows_for
from tests.toy import given as logits_of

SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": [1, 12]}}, "required": ["a", "b"]},
    {"enum": ["a", "ab", "abc"]},
    {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1, "maxItems": 3},
    {"const": {"a": [True, False]}},
    {"type": "string", "maxLength": 4},
    None,
]
LOGITS = random_logits(len(TOY))


def plain_logprobs(scores: np.ndarray) -> np.ndarray:
    """Log-softmax in float64."""
    exact = np.asarray(scores, np.float64)
    top = exact.max()
    return exact - top - math.log(math.fsum(np.exp(exact - top)))


scores_of = st.lists(st.floats(-60, 60, width=32) | st.just(-math.inf), min_size=2, max_size=80).filter(
    lambda row: max(row) > -math.inf
)


@given(scores_of, st.integers(0, 20), st.data())
def test_one_row_is_the_log_softmax(row: list[float], count: int, data: st.DataObject) -> None:
    """The token's own, and the best ones in order; what cannot be has the floor, and is no alternative."""
    scores = np.array([row], np.float32)
    exact = plain_logprobs(scores[0])
    token_id = data.draw(st.integers(0, len(row) - 1))
    (found,) = token_logprobs(scores, [token_id], [count])
    assert max(float(exact[token_id]), FLOOR) == pytest.approx(found.logprob, abs=1e-4)
    possible = [token for token in range(len(row)) if row[token] > -math.inf]
    best = sorted(possible, key=lambda token: (-scores[0, token], token))[:count]
    assert best == [token for token, _ in found.alternatives]
    assert [float(exact[token]) for token in best] == pytest.approx(
        [value for _, value in found.alternatives], abs=1e-4
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_always_a_finite_number(bad: float) -> None:
    """Whatever the scores are."""
    for row in ([bad, 0.0, 1.0], [bad] * 3):
        for token_id in range(3):
            (found,) = token_logprobs(np.array([row], np.float32), [token_id], [3])
            assert all(math.isfinite(value) for value in (found.logprob, *(value for _, value in found.alternatives)))
            assert FLOOR <= found.logprob <= 0.0


def test_the_floor_is_where_it_should_be() -> None:
    """10,000 nats below is floored, 9,000 are not."""
    first, second = token_logprobs(np.array([[0, -1e4], [0, -9e3]], np.float32), [1, 1], [0, 2])
    assert (FLOOR, ()) == (first.logprob, first.alternatives)
    assert second.logprob == pytest.approx(-9e3)
    assert [0, 1] == [token for token, _ in second.alternatives]


@given(st.lists(st.floats(-50, 50, width=32), min_size=40, max_size=40), st.sets(st.integers(0, 39)))
def test_kept_mass_is_the_share_of_the_allowed(row: list[float], allowed: set[int]) -> None:
    """The sum of exponentials over some tokens, divided by that over all."""
    bits = np.zeros((1, 64), bool)
    bits[0, list(allowed)] = True
    masks = np.packbits(bits, axis=1, bitorder="little").view("<u4")
    exact = np.exp(plain_logprobs(np.array(row, np.float32)))
    assert math.fsum(exact[list(allowed)]) == pytest.approx(kept_mass(np.array([row], np.float32), masks)[0], abs=1e-5)
    np.testing.assert_array_equal(bits[:, :40], allowed_bits(masks, 40))


def request(schema: object, **fields: object) -> Request:
    """One request of short answers to a prompt of three tokens."""
    source = None if schema is None else schema_source(schema)  # type: ignore[arg-type]
    return Request(**{"prompts": ((9, 10, 11),), "max_tokens": 30, "source": source, "logprobs": 3, **fields})  # type: ignore[arg-type]


def answers(asked: Request, logits: Logits = LOGITS, max_running: int = 8, seed: int = 0) -> list[Sequence]:
    """Its sequences, decoded on the toy vocabulary."""
    rows = rows_for(asked, TOY, seed)
    decode(decoder_for(TOY, ToyModel(len(TOY), logits), max_running), rows)
    assert [row.error for row in rows] == [None] * len(rows)
    return rows


def masks_along(row: Sequence) -> list[set[int]]:
    """What the schema allows at each token of an answer, token by token by asking a matcher."""
    if row.job.lookup is None:
        return [{token for token, data in enumerate(TOY.token_bytes) if data} | set(TOY.end_ids)] * len(row.token_ids)
    matcher: Matcher = row.job.lookup.compiled.matcher()
    allowed = []
    for token_id in row.token_ids:
        allowed.append({token for token in range(len(TOY)) if matcher.allows(token)})
        matcher.advance(token_id)
    return allowed


def expected_logprobs(row: Sequence, logits: Logits, masked: bool) -> list[np.ndarray]:
    """Float64 log-probabilities at each token of an answer, from the definition."""
    asked = row.job.request
    prompt, found = asked.prompts[row.index // asked.n], []
    for at, allowed in enumerate(masks_along(row)):
        scores = np.array(logits((*prompt, *row.token_ids[:at])), np.float64)
        if masked:
            scores += offset_of(asked.sampling, row.token_ids[:at], len(TOY))
            scores[[token for token in range(len(TOY)) if token not in allowed]] = -np.inf
        found.append(plain_logprobs(scores))
    return found


def check(found: tuple[TokenLogprobs, ...], expected: list[np.ndarray], token_ids: tuple[int, ...], count: int) -> None:
    """Each position has its token, its log-probability, and the best ones."""
    assert token_ids == tuple(one.token_id for one in found)
    for one, exact in zip(found, expected, strict=True):
        assert float(exact[one.token_id]) == pytest.approx(one.logprob, abs=1e-5)
        best = sorted(np.flatnonzero(np.isfinite(exact)).tolist(), key=lambda token: -exact[token])[:count]
        assert [float(exact[token]) for token in best] == pytest.approx(
            [value for _, value in one.alternatives], abs=1e-5
        )


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(SCHEMAS),
    st.booleans(),
    st.sampled_from(["raw", "masked"]),
    st.sampled_from([(), (9,), (9, 10, 11)]),
    st.sampled_from([Sampling(), Sampling(temperature=0), Sampling(temperature=2, top_k=2)]),
    st.integers(1, 30),
    st.sampled_from(["close", "truncate"]),
    st.integers(0, 1000),
)
def test_every_token_has_the_logprob_of_its_context(
    schema: object,
    jump: bool,
    kind: str,
    prompt: tuple[int, ...],
    sampling: Sampling,
    limit: int,
    on_limit: str,
    seed: int,
) -> None:
    """Forced, drawn, healed and last ones, with and without prompt, cut by a limit, in a crowd of two to a slot."""
    asked = request(
        schema,
        prompts=(prompt,),
        n=5,
        jump_forward=jump,
        logprobs_from=kind,
        sampling=sampling,
        max_tokens=limit,
        on_limit=on_limit,
    )
    for row in answers(asked, max_running=2, seed=seed):
        choice = choice_of(row)
        assert choice.logprobs is not None
        check(choice.logprobs, expected_logprobs(row, LOGITS, kind == "masked"), choice.token_ids, 3)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_asking_changes_no_text(schema: object) -> None:
    """The same tokens are drawn with and without log-probabilities and diagnostics."""
    plain = answers(request(schema, logprobs=None, n=8))
    asked = answers(request(schema, n=8, diagnostics=True, logprobs_from="masked"))
    assert [row.token_ids for row in plain] == [row.token_ids for row in asked]
    assert [row.stop_reason for row in plain] == [row.stop_reason for row in asked]
    assert [None] * 8 == [choice_of(row).logprobs for row in plain]


def test_masked_has_bias_and_penalties_and_raw_has_not() -> None:
    """As the draw began with them, forced tokens counted."""
    sampling = Sampling(presence_penalty=0.5, frequency_penalty=0.25, logit_bias=((9, 1.5), (10, -100.0)))
    for kind in ("raw", "masked"):
        for row in answers(request(SCHEMAS[4], n=8, sampling=sampling, logprobs_from=kind)):
            choice = choice_of(row)
            check(choice.logprobs or (), expected_logprobs(row, LOGITS, kind == "masked"), choice.token_ids, 3)


def test_masked_is_of_the_schema_alone() -> None:
    """What only the limit forbade is an alternative still, before the token that closed the text in time."""

    def insisting(_context: tuple[int, ...]) -> list[float]:
        return [8.0 if token == 9 else 0.0 for token in range(len(TOY))]

    asked = request(SCHEMAS[4], max_tokens=3, sampling=Sampling(temperature=0), logprobs_from="masked")
    (row,) = answers(asked, insisting)
    choice = choice_of(row)
    assert (True, True) == (choice.complete, choice.closed_early)
    assert choice.logprobs is not None
    assert 9 == choice.logprobs[-1].alternatives[0][0] != choice.token_ids[-1]
    check(choice.logprobs, expected_logprobs(row, insisting, masked=True), choice.token_ids, 3)


def test_masked_adds_up_over_the_allowed_tokens() -> None:
    """At temperature 0 and with top-k 1 too: the mask comes before truncation, and alternatives are legal ones."""
    for sampling in (Sampling(temperature=0), Sampling(top_k=1), Sampling(temperature=5, top_p=0.1)):
        for row in answers(
            request(SCHEMAS[2], sampling=sampling, logprobs_from="masked", logprobs=20, jump_forward=False)
        ):
            for one, allowed in zip(row.logprobs, masks_along(row), strict=True):
                assert allowed == {token for token, _ in one.alternatives}
                assert math.fsum(math.exp(value) for _, value in one.alternatives) == pytest.approx(1, abs=1e-5)


def test_prompt_logprobs_are_parallel_to_the_prompt() -> None:
    """The first is None; also of a prompt of one token, of none, and without an answer; raw whatever is asked."""
    for prompt in ((), (9,), (9, 10, 11, 9, 12)):
        for limit in (0, 5):
            asked = request(None, prompts=(prompt,), max_tokens=limit, prompt_logprobs=True, logprobs_from="masked")
            (row,) = answers(asked)
            choice = choice_of(row)
            assert choice.prompt_logprobs is not None
            assert [None, *prompt[1:]][: len(prompt)] == [one and one.token_id for one in choice.prompt_logprobs]
            for at in range(1, len(prompt)):
                one = choice.prompt_logprobs[at]
                assert one is not None
                assert float(plain_logprobs(LOGITS(prompt[:at]))[prompt[at]]) == pytest.approx(one.logprob, abs=1e-5)
            assert (limit if limit else 0) >= len(choice.token_ids) == len(choice.logprobs or ())


def test_a_long_prompt_is_fed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step has more inner positions than there is room for; the figures are the same."""
    prompt = tuple(9 + at % 5 for at in range(57))
    asked = request(SCHEMAS[0], prompts=(prompt,), n=2, prompt_logprobs=True)
    whole = [choice_of(row) for row in answers(asked)]
    monkeypatch.setattr("engine.recorder.MOST_LOGITS", 32 * 8 * 2)
    model = ToyModel(len(TOY), LOGITS)
    rows = rows_for(asked, TOY)
    decode(decoder_for(TOY, model), rows)
    assert max(len(ids) for step in model.fed for ids in step) <= 8
    pieces = [choice_of(row) for row in rows]
    assert [one.token_ids for one in whole] == [one.token_ids for one in pieces]
    assert [one.prompt_logprobs for one in whole] == [one.prompt_logprobs for one in pieces]
    assert [one.logprobs for one in whole] == [one.logprobs for one in pieces]


def test_only_rows_that_want_them_ask_for_inner_logits() -> None:
    """A batch of rows that want none has no inner positions; one row that does has its own forced tokens' alone."""
    asked: list[int] = []

    class Watching(ToyModel):
        """Notes how many inner positions each batch has."""

        def forward(self, batch: Batch) -> np.ndarray:
            """As the toy model."""
            asked.append(len(batch.inner))
            return super().forward(batch)

    model = Watching(len(TOY), LOGITS)
    decode(decoder_for(TOY, model), rows_for(request(SCHEMAS[0], logprobs=None, n=4), TOY))
    assert {0} == set(asked)
    asked.clear()
    few = [*rows_for(request(SCHEMAS[0], logprobs=None, n=4), TOY), *rows_for(request(SCHEMAS[0]), TOY)]
    decode(decoder_for(TOY, model), few)
    assert few[-1].forced_tokens >= sum(asked) > 0


def test_a_cancelled_row_leaves_no_record_behind() -> None:
    """The slot of a row that was dropped while it owed something serves the next one."""
    decoder = decoder_for(TOY, ToyModel(len(TOY), LOGITS), max_running=1)
    (gone,) = rows_for(request(SCHEMAS[3], prompts=((),)), TOY)
    decoder.scheduler.add([gone])
    assert [] == decoder.step()
    assert gone.over
    decoder.scheduler.drop(gone.job)
    (plain,) = rows_for(request(SCHEMAS[0], logprobs=None), TOY)
    (row,) = rows_for(request(SCHEMAS[3]), TOY)
    assert [plain, row] == decode(decoder, [plain, row])
    assert (0, len(row.token_ids)) == (len(plain.logprobs), len(row.logprobs))


def test_a_token_drawn_after_its_step_is_scored_all_the_same() -> None:
    """A row that had to wait between draw and advance: the logits it was drawn from were kept for it."""
    recorder = Recorder(TOY, drawable_words(TOY))
    (row,) = rows_for(request(None), TOY)
    recorder.open(row)
    assert (3, False, False) == recorder.plan(row, 3, 32)
    recorder.score([row], Outputs(np.zeros((1, len(TOY)), np.float32)))  # nothing is drawn in this step
    row.token_ids.append(9)
    row.pending[:] = [9]
    recorder.score_late(row, Outputs(LOGITS((9, 10, 11)).astype(np.float32)[None]))  # type: ignore[union-attr]
    exact = float(plain_logprobs(LOGITS((9, 10, 11)))[9])
    assert [exact] == pytest.approx([one.logprob for one in row.logprobs], abs=1e-5)
    assert (1, False, False) == recorder.plan(row, 1, 32)


def test_a_step_that_breaks_off_fails_a_listening_row_too() -> None:
    """It is over, and owes something: it is failed with the others, and leaves."""
    calls = 0

    def logits(context: tuple[int, ...]) -> object:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise RuntimeError("a bug")
        return LOGITS(context)

    decoder = decoder_for(TOY, ToyModel(len(TOY), logits))  # type: ignore[arg-type]
    (row,) = rows_for(request(SCHEMAS[3], prompts=((),)), TOY)
    decoder.scheduler.add([row])
    assert [] == decoder.step()
    assert row.over
    with pytest.raises(RuntimeError):
        decoder.step()
    error = EngineFailedError("a bug")
    assert [row] == decoder.abandon(error)
    assert (error, True) == (row.error, decoder.scheduler.idle)


def test_a_mask_that_cannot_be_made_fails_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema that outgrows its limits inside forced text, where only masked log-probabilities ask for a mask."""
    error = SchemaTooComplexError([Finding("#", "", "too many states")])

    broken, fine = (rows_for(request(SCHEMAS[0], logprobs_from="masked"), TOY)[0] for _ in range(2))
    real = Recorder._step

    def step(recorder: Recorder, record: Record, token_id: int) -> tuple[np.ndarray, str]:
        if record.row is broken:
            raise error
        return real(recorder, record, token_id)

    monkeypatch.setattr(Recorder, "_step", step)
    decode(decoder_for(TOY, ToyModel(len(TOY), LOGITS)), [broken, fine])
    assert (error, None) == (broken.error, fine.error)
    assert len(fine.logprobs) == len(fine.token_ids)


def article() -> Source:
    """A record with forced text between its fields."""
    return schema_source(
        {
            "type": "object",
            "properties": {
                "title": {"type": "string", "maxLength": 12},
                "level": {"enum": ["初級", "中級"]},
                "tags": {"type": "array", "items": {"type": "string", "maxLength": 6}, "minItems": 1, "maxItems": 2},
            },
            "required": ["title", "level", "tags"],
        }
    )


@pytest.mark.parametrize("name", ["katagami-char", "katagami-bpe"])
def test_raw_logprobs_are_those_of_the_same_tokens_fed_one_by_one(name: str) -> None:
    """Texts of the shipped models with jump-forward: the model alone, fed token by token, says the same of each."""
    loaded: LoadedModel = load_model(name)
    asked = Request(((), tuple(loaded.tokenizer.encode("初級"))), 90, n=3, source=article(), logprobs=2)
    vocabulary = loaded.tokenizer.vocabulary
    rows = rows_for(asked, vocabulary)
    decode(Decoder(loaded.model, vocabulary, loaded.tokenizer.encode_bytes, 4), rows)
    assert sum(row.forced_tokens for row in rows) > 20
    for row in rows:
        loaded.model.allocate(1)
        before, prompt = [], asked.prompts[row.index // asked.n]
        for chunk in (list(prompt), *([token] for token in row.token_ids)):
            batch = Batch(np.array(chunk, np.int32), np.array([0, len(chunk)], np.int32), np.zeros(1, np.int32))
            before.append(plain_logprobs(loaded.model.forward(batch)[0, : len(vocabulary)]))
        alone = [float(scores[token]) for scores, token in zip(before, row.token_ids, strict=False)]
        assert alone == pytest.approx([one.logprob for one in row.logprobs], abs=1e-4)


def test_a_forced_token_may_be_unlikely() -> None:
    """Its raw log-probability is the model's, not 0; the masked one is 0 where it was the only one."""
    rows = [rows_for(request({"const": "ba"}, logprobs_from=kind), CHARACTERS)[0] for kind in ("raw", "masked")]
    letter = CHARACTERS.token_bytes.index(b"a")
    decode(decoder_for(CHARACTERS, ToyModel(len(CHARACTERS), logits_of(len(CHARACTERS), {letter: 9.0}))), rows)
    raw, masked = rows
    assert raw.forced_tokens == len(raw.token_ids) == len(raw.logprobs) == 4
    assert [-9, -9, 0, -9] == pytest.approx([one.logprob for one in raw.logprobs], abs=0.1)
    assert [0.0] * 4 == [one.logprob for one in masked.logprobs]
    assert [letter] * 4 == [one.alternatives[0][0] for one in raw.logprobs]
