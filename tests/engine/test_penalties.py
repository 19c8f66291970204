"""Bias and penalties: OpenAI's formula against a plain count, what counts, bans, and their place before the mask."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.penalties import BANNED, Penalties, is_penalised, offset_of
from engine.request import Request, Sampling
from engine.sequence import Job, Sequence, choice_of, sequences_of
from schemas_cache import schema_source
from tests.toy import CHARACTERS, TOY, GreedyTokenizer, ToyModel, decode, decoder_for, rows_for, scripted
from tests.toy import given as logits_of

WIDTH = 64
penalties = st.floats(-2, 2).map(lambda value: round(value, 2))
biases = st.dictionaries(st.integers(0, WIDTH - 1), st.integers(-100, 100).map(float), max_size=4)
settings_of = st.builds(
    lambda presence, frequency, bias: Sampling(
        presence_penalty=presence, frequency_penalty=frequency, logit_bias=tuple(bias.items())
    ),
    penalties | st.just(0.0),
    penalties | st.just(0.0),
    biases,
)
texts = st.lists(st.integers(0, WIDTH - 1), max_size=30)


def plain_offset(sampling: Sampling, generated: list[int]) -> list[float]:
    """The formula, token by token: mu - c * alpha_frequency - [c > 0] * alpha_presence plus the bias."""
    counts, bias = Counter(generated), dict(sampling.logit_bias)
    return [
        (BANNED if bias.get(token, 0) <= -100 else bias.get(token, 0.0))
        - counts[token] * sampling.frequency_penalty
        - (counts[token] > 0) * sampling.presence_penalty
        for token in range(WIDTH)
    ]


def row_of(slot: int) -> Sequence:
    """A sequence in a slot, without tokens."""
    job = Job(Request(((),), 10), Future(), 0, submitted_s=0.0)
    (row,) = sequences_of(job, 100)
    row.slot = slot
    return row


@given(settings_of, texts)
def test_offset_is_the_formula(sampling: Sampling, generated: list[int]) -> None:
    """For any settings and text."""
    expected = plain_offset(sampling, generated)
    np.testing.assert_allclose(expected, offset_of(sampling, generated, WIDTH), rtol=1e-6, atol=1e-5)


@settings(max_examples=50)
@given(st.lists(st.tuples(settings_of, st.lists(texts, min_size=1, max_size=4)), min_size=1, max_size=4))
def test_a_batch_gets_the_formula_row_by_row(rows: list[tuple[Sampling, list[list[int]]]]) -> None:
    """Texts that grow by any number of tokens between draws, slots in another order, slots used a second time."""
    table = Penalties(len(rows), WIDTH)
    sequences = [row_of(slot) for slot in range(len(rows))]
    for repetition in range(2):
        for row, (sampling, _) in zip(sequences, rows, strict=True):
            row.token_ids.clear()
            table.open(row.slot, sampling if repetition else Sampling(frequency_penalty=1.5, logit_bias=((3, 7.0),)))
            row.token_ids += [1, 1, 3]
        table.apply(np.zeros((len(rows), WIDTH), np.float32), sequences)
    for row in sequences:
        row.token_ids.clear()
        table.open(row.slot, rows[row.slot][0])
    order = list(reversed(sequences))
    for step in range(max(len(chunks) for _, chunks in rows)):
        for row in sequences:
            row.token_ids += rows[row.slot][1][step] if step < len(rows[row.slot][1]) else []
        scores = np.ones((len(rows), WIDTH), np.float32)
        table.apply(scores, order)
        for row, found in zip(order, scores, strict=True):
            expected = 1 + np.array(plain_offset(rows[row.slot][0], row.token_ids))
            np.testing.assert_allclose(expected, found, rtol=1e-5, atol=1e-4)


def test_rows_that_use_nothing_are_not_touched() -> None:
    """Their scores stay bit for bit, beside a row that is penalised."""
    table, rows = Penalties(2, WIDTH), [row_of(0), row_of(1)]
    table.open(0, Sampling())
    table.open(1, Sampling(presence_penalty=1))
    rows[1].token_ids.append(5)
    scores = np.random.default_rng(0).normal(size=(2, WIDTH)).astype(np.float32)
    before = scores.copy()
    table.apply(scores, rows)
    np.testing.assert_array_equal(before[0], scores[0])
    assert before[1, 5] - 1 == pytest.approx(scores[1, 5])


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), False),
        (Sampling(temperature=0, top_k=4), False),
        (Sampling(presence_penalty=-0.5), True),
        (Sampling(frequency_penalty=0.1), True),
        (Sampling(logit_bias=((1, 2.0),)), True),
    ],
)
def test_which_settings_change_logits(sampling: Sampling, expected: bool) -> None:
    """Penalties and bias, nothing else."""
    assert expected == is_penalised(sampling)


def greedy(
    source: object, logits: object, jump_forward: bool = True, prompt: tuple[int, ...] = (), **fields: object
) -> str:
    """Text of one greedy row of the toy vocabulary."""
    sampling = Sampling(temperature=0, **fields)  # type: ignore[arg-type]
    request = Request((prompt,), 12, sampling=sampling, source=source, jump_forward=jump_forward)  # type: ignore[arg-type]
    (row,) = decode(decoder_for(TOY, ToyModel(len(TOY), logits)), rows_for(request, TOY))  # type: ignore[arg-type]
    assert row.error is None
    return choice_of(row).text


A, B, C, ONE = 9, 10, 11, 18


def test_frequency_adds_up_and_presence_does_not() -> None:
    """Letters 1 and 2.5 nats apart: frequency 1 goes back to the first one, presence 1 only once."""
    logits = logits_of(len(TOY), {A: 10.0, B: 9.5, C: 7.0})
    assert greedy(None, logits, frequency_penalty=1.0).startswith("abab")
    assert greedy(None, logits, presence_penalty=1.0).startswith("abaaaa")


def test_negative_penalties_favour_what_was_said() -> None:
    """The first token once it stands there."""
    favourite = scripted(len(TOY), [B])
    assert greedy(None, favourite, presence_penalty=-1.0) == "b" * 12


def test_the_prompt_does_not_count() -> None:
    """A prompt full of the favourite changes nothing."""
    logits = logits_of(len(TOY), {A: 10.0, B: 9.5})
    alone = greedy(None, logits, frequency_penalty=1.0)
    assert alone == greedy(None, logits, frequency_penalty=1.0, prompt=(A,) * 20)


@pytest.mark.parametrize("jump_forward", [True, False])
def test_forced_tokens_count(jump_forward: bool) -> None:
    """A letter that the schema wrote is penalised as one that was drawn: jump-forward changes nothing."""
    source = schema_source({"enum": ["aa-a", "aa-b"]})
    sampling = Sampling(temperature=0, frequency_penalty=1.0)
    encode = GreedyTokenizer(CHARACTERS).encode
    logits = logits_of(len(CHARACTERS), {encode("a")[0]: 2.5, encode("b")[0]: 0.0})
    request = Request(((),), 12, sampling=sampling, source=source, jump_forward=jump_forward)
    (row,) = decode(decoder_for(CHARACTERS, ToyModel(len(CHARACTERS), logits)), rows_for(request, CHARACTERS))
    assert choice_of(row).text == '"aa-a"'  # 2.5 - 2 > 0
    sampling = Sampling(temperature=0, frequency_penalty=1.5)
    request = Request(((),), 12, sampling=sampling, source=source, jump_forward=jump_forward)
    (row,) = decode(decoder_for(CHARACTERS, ToyModel(len(CHARACTERS), logits)), rows_for(request, CHARACTERS))
    assert choice_of(row).text == '"aa-b"'  # 2.5 - 3 < 0


def test_bias_lifts_no_forbidden_token() -> None:
    """+100 on a token outside the schema changes nothing; on one inside it decides."""
    source = schema_source({"enum": ["a", "b"]})
    logits = logits_of(len(TOY), {A: 1.0})
    assert greedy(source, logits, logit_bias=((C, 100.0),)) == '"a"'
    assert greedy(source, logits, logit_bias=((B, 100.0),), jump_forward=False) == '"b"'


def test_minus_100_bans_whatever_the_model_says() -> None:
    """Even a logit 300 nats above the others is not taken."""
    logits = logits_of(len(TOY), {A: 300.0})
    assert greedy(schema_source({"enum": ["a", "b"]}), logits, logit_bias=((A, -100.0),), jump_forward=False) == '"b"'


def test_a_banned_token_is_taken_where_it_is_the_only_one() -> None:
    """Among banned ones alone, the model's favourite."""
    logits = logits_of(len(TOY), {B: 1.0, C: 300.0})
    bans = tuple((token, -100.0) for token in (A, B, ONE))
    assert greedy(schema_source({"enum": [1]}), logits, logit_bias=bans, jump_forward=False) == "1"
    assert greedy(schema_source({"enum": ["a", "b"]}), logits, logit_bias=bans, jump_forward=False) == '"b"'


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
def test_bans_hold_at_every_temperature(temperature: float) -> None:
    """One token of two is banned: 60 draws are the other one."""
    letter = GreedyTokenizer(CHARACTERS).encode("a")[0]
    sampling = Sampling(temperature=temperature, logit_bias=((letter, -100.0),))
    request = Request(((),), 4, n=60, sampling=sampling, source=schema_source({"enum": ["a", "b"]}), jump_forward=False)
    model = ToyModel(len(CHARACTERS), logits_of(len(CHARACTERS), {letter: 50.0}))
    rows = decode(decoder_for(CHARACTERS, model), rows_for(request, CHARACTERS))
    assert {'"b"'} == {choice_of(row).text for row in rows}
