"""Schedule, forward, mask, sample, advance: batches of sequences on made-up logits."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import EngineFailedError, RowDeadError
from engine.request import Request, Sampling
from engine.sequence import Sequence, choice_of
from schemas_cache import Finding, Matcher, SchemaTooComplexError, Source, Vocabulary, fill_masks, regex_source
from schemas_cache import schema_source as of_schema
from tests.toy import (
    CHARACTERS,
    END,
    SPECIAL,
    TOY,
    GreedyTokenizer,
    ToyModel,
    decode,
    decoder_for,
    random_logits,
    rows_for,
    scripted,
)
from tests.toy import given as logits_of

SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": [1, 12]}}, "required": ["a", "b"]},
    {"enum": ["a", "ab", "abc"]},
    {"type": "array", "items": {"enum": [1, 2]}, "minItems": 1, "maxItems": 3},
    {"const": {"a": [True, False]}},
    {"type": "string", "maxLength": 4},
]


def request(source: Source | None, **fields: object) -> Request:
    """One request for short answers to the empty prompt."""
    return Request(**{"prompts": ((),), "max_tokens": 60, "source": source, **fields})  # type: ignore[arg-type]


def texts(rows: list[Sequence]) -> list[str]:
    """Text of each."""
    return [choice_of(row).text for row in rows]


@pytest.mark.parametrize("vocabulary", [TOY, CHARACTERS], ids=["toy", "characters"])
@pytest.mark.parametrize("jump_forward", [True, False])
def test_mixed_batch_gives_each_row_its_own_schema(vocabulary: Vocabulary, jump_forward: bool) -> None:
    """Rows of five schemas and free rows, more than there are slots: every document is valid for its own schema."""
    rows: list[Sequence] = []
    for seed in range(4):
        for schema in SCHEMAS:
            rows += rows_for(request(of_schema(schema), jump_forward=jump_forward), vocabulary, seed)
        rows += rows_for(request(None, max_tokens=7), vocabulary, seed)
    model = ToyModel(len(vocabulary), random_logits(len(vocabulary)))
    over = decode(decoder_for(vocabulary, model, max_running=7), rows)
    assert len(rows) == len(over)
    for number, row in enumerate(rows):
        kind = number % 6
        if kind == 5:
            continue
        assert (row.error, row.stop_reason, row.complete) == (None, "end_turn", True)
        value = json.loads(choice_of(row).text)
        check = [
            lambda v: set(v) == {"a", "b"} and isinstance(v["a"], bool) and v["b"] in (1, 12),
            lambda v: v in ("a", "ab", "abc"),
            lambda v: 1 <= len(v) <= 3 and set(v) <= {1, 2},
            lambda v: v == {"a": [True, False]},
            lambda v: isinstance(v, str) and len(v) <= 4,
        ][kind]
        assert check(value)


def test_text_does_not_depend_on_the_company() -> None:
    """Alone, in a crowd, and joining late: the same seed gives the same text."""
    model = ToyModel(len(TOY), random_logits(len(TOY)))
    one = request(of_schema(SCHEMAS[4]), sampling=Sampling(temperature=1.5))
    (alone,) = decode(decoder_for(TOY, model), rows_for(one, TOY, seed=7))
    (again,) = rows_for(one, TOY, seed=7)
    crowd = [row for seed in range(20) for row in rows_for(request(of_schema(SCHEMAS[2])), TOY, seed)]
    decode(decoder_for(TOY, model, max_running=3), [*crowd[:10], again, *crowd[10:]])
    assert (alone.token_ids, alone.data) == (again.token_ids, again.data)


def test_choices_of_one_request_differ() -> None:
    """The n rows have streams of their own, prompt-major indices, and start from their prompts."""
    many = request(None, prompts=((9,), (10,)), n=3, max_tokens=12)
    rows = rows_for(many, TOY)
    model = ToyModel(len(TOY), logits_of(len(TOY)))
    decode(decoder_for(TOY, model), rows)
    assert [0, 1, 2, 3, 4, 5] == [row.index for row in rows]
    assert [(9,)] * 3 + [(10,)] * 3 == model.fed[0]
    assert len(set(texts(rows))) == 6


def test_forced_tokens_go_to_the_model_as_one_chunk() -> None:
    """Prompt and forced prefix first; then each drawn token together with what it forces; the last ones never."""
    schema = {"type": "object", "properties": {"a": {"enum": ["b", "c"]}}, "required": ["a"]}
    encode = GreedyTokenizer(CHARACTERS).encode
    rows = rows_for(request(of_schema(schema), prompts=((5, 6),)), CHARACTERS)
    model = ToyModel(len(CHARACTERS), logits_of(len(CHARACTERS)))
    (row,) = decode(decoder_for(CHARACTERS, model), rows)
    assert [[(5, 6, *encode('{"a": "'))]] == model.fed
    assert (1, len('{"a": "') + len('"}')) == (row.model_calls, row.forced_tokens)
    assert tuple(encode(choice_of(row).text)) == choice_of(row).token_ids


def test_without_jump_forward_every_token_is_a_model_call() -> None:
    """Also where one token alone is allowed."""
    rows = rows_for(request(of_schema({"const": "abc"}), jump_forward=False), CHARACTERS)
    (row,) = decode(decoder_for(CHARACTERS, ToyModel(len(CHARACTERS), logits_of(len(CHARACTERS)))), rows)
    assert (5, 0, '"abc"') == (row.model_calls, row.forced_tokens, choice_of(row).text)


def test_a_document_that_is_all_forced_needs_no_model() -> None:
    """It is over before the first forward pass; so is one with a limit of zero."""
    model = ToyModel(len(TOY), logits_of(len(TOY)))
    rows = rows_for(request(of_schema(SCHEMAS[3])), TOY) + rows_for(request(None, max_tokens=0), TOY)
    decode(decoder_for(TOY, model), rows)
    assert [] == model.fed
    assert ['{"a": [true, false]}', ""] == texts(rows)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 40), st.sampled_from(SCHEMAS), st.booleans(), st.integers(0, 100))
def test_never_more_tokens_than_allowed(limit: int, schema: dict[str, object], jump: bool, seed: int) -> None:
    """Forced tokens count; what was cut says so, and is the beginning of a valid text."""
    asked = request(of_schema(schema), max_tokens=limit, jump_forward=jump, on_limit="truncate")
    rows = rows_for(asked, TOY, seed)
    (row,) = decode(decoder_for(TOY, ToyModel(len(TOY), random_logits(len(TOY)))), rows)
    assert len(row.token_ids) <= limit
    assert (row.stop_reason == "max_tokens") == (not row.complete)
    if row.complete:
        json.loads(choice_of(row).text)
    else:
        assert len(row.token_ids) == limit


def test_context_full_has_its_own_name() -> None:
    """The context ends the text before the token limit does."""
    rows = rows_for(request(None, prompts=((9,) * 9_998,)), TOY)
    (row,) = decode(decoder_for(TOY, ToyModel(len(TOY), logits_of(len(TOY), {9: 50.0}))), rows)
    assert ("model_context_window_exceeded", (9, 9)) == (row.stop_reason, choice_of(row).token_ids)


def test_special_tokens_and_surplus_outputs_are_never_drawn() -> None:
    """Free rows and bound rows: no token without bytes but the end token, nothing beyond the vocabulary."""
    width = len(TOY) + 40
    model = ToyModel(width, logits_of(width, {SPECIAL: 80.0, len(TOY): 90.0, width - 1: 99.0}))
    rows = rows_for(request(None, n=3), TOY) + rows_for(request(of_schema(SCHEMAS[4]), n=3), TOY)
    decode(decoder_for(TOY, model), rows)
    for row in rows:
        assert all(token_id < len(TOY) and token_id != SPECIAL for token_id in row.token_ids)
        assert row.error is None


def test_a_free_row_ends_at_the_end_token() -> None:
    """The end token is not part of the answer."""
    rows = rows_for(request(None), TOY)
    (row,) = decode(decoder_for(TOY, ToyModel(len(TOY), scripted(len(TOY), [9, 10, END]))), rows)
    assert ("ab", (9, 10), "end_turn", True) == (
        choice_of(row).text,
        choice_of(row).token_ids,
        row.stop_reason,
        row.complete,
    )


def test_a_stop_string_ends_a_row() -> None:
    """Over token borders; the model's text ends before it."""
    rows = rows_for(request(None, sampling=Sampling(stop=("bc",))), TOY)
    (row,) = decode(decoder_for(TOY, ToyModel(len(TOY), scripted(len(TOY), [9, 10, 11, 9]))), rows)
    assert ("a", "stop_sequence", "bc") == (choice_of(row).text, row.stop_reason, row.stop_sequence)


# The second character of the pattern is in no token: some bytes could continue, no token can.
LACKING = Vocabulary([b"", b"a", b"b"], [0])


def test_a_dead_row_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask of zeros fails its row; no token is taken in its place, and the neighbours finish."""
    dead, alive = rows_for(request(regex_source("[ab]{3}"), n=2), LACKING)
    monkeypatch.setattr(
        "engine.step.fill_masks",
        lambda matchers, out: [
            np.copyto(row, 0 if matcher is dead.matcher else matcher.mask())
            for matcher, row in zip(matchers, out, strict=True)
        ],
    )
    decode(decoder_for(LACKING, ToyModel(3, logits_of(3))), [dead, alive])
    assert isinstance(dead.error, RowDeadError)
    assert [] == dead.token_ids
    assert (None, 3) == (alive.error, len(alive.token_ids))


def test_a_mask_that_cannot_be_made_fails_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema that outgrows its limits while its mask is worked out takes nobody with it."""
    broken, fine = rows_for(request(regex_source("[ab]{3}"), n=2), LACKING)
    error = SchemaTooComplexError([Finding("#", "", "too many states")])

    def fill(matchers: list[Matcher], out: np.ndarray) -> None:
        if broken.matcher in matchers:
            raise error
        fill_masks(matchers, out)

    monkeypatch.setattr("engine.step.fill_masks", fill)
    decode(decoder_for(LACKING, ToyModel(3, logits_of(3))), [broken, fine])
    assert (error, []) == (broken.error, broken.token_ids)
    assert (None, 3) == (fine.error, len(fine.token_ids))


def test_no_token_left_in_an_accepting_state_is_the_end() -> None:
    """Without end tokens, a text that may end and cannot go on is complete."""
    vocabulary = Vocabulary([b"a"], [])
    rows = rows_for(request(regex_source("a(b)?"), jump_forward=False), vocabulary)
    (row,) = decode(decoder_for(vocabulary, ToyModel(1, logits_of(1))), rows)
    assert (None, "end_turn", True, "a") == (row.error, row.stop_reason, row.complete, choice_of(row).text)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_fail_their_row_alone(bad: float) -> None:
    """The row whose logits are broken ends with an engine error; the other goes on."""

    def logits(context: tuple[int, ...]) -> list[float]:
        return [bad if context[:1] == (9,) else 0.0] * len(TOY)

    rows = rows_for(request(None, prompts=((9,), (10,)), max_tokens=5), TOY)
    decode(decoder_for(TOY, ToyModel(len(TOY), logits)), rows)
    assert isinstance(rows[0].error, EngineFailedError)
    assert rows[1].error is None


def test_a_bug_in_one_row_ends_that_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever advancing one row raises becomes its own error."""
    broken, fine = rows_for(request(regex_source("[ab]{3}"), n=2), LACKING)
    real = type(broken.matcher).advance

    def advance(matcher: object, token_id: int) -> None:
        if matcher is broken.matcher:
            raise KeyError("a bug")
        real(matcher, token_id)  # type: ignore[arg-type]

    monkeypatch.setattr(type(broken.matcher), "advance", advance)
    decode(decoder_for(LACKING, ToyModel(3, logits_of(3))), [broken, fine])
    assert isinstance(broken.error, EngineFailedError)
    assert (None, 3) == (fine.error, len(fine.token_ids))


def test_abandon_fails_what_runs_and_frees_the_slots() -> None:
    """After a step broke off, those in it are failed; those in line take their slots."""
    broken = True

    def logits(context: tuple[int, ...]) -> list[float]:
        if broken:
            raise RuntimeError("a bug")
        return [0.0] * len(TOY)

    decoder = decoder_for(TOY, ToyModel(len(TOY), logits), max_running=2)
    rows = rows_for(request(None, n=3, max_tokens=3), TOY)
    decoder.scheduler.add(rows)
    with pytest.raises(RuntimeError):
        decoder.step()
    error = EngineFailedError("a bug")
    assert rows[:2] == decoder.abandon(error)
    broken = False
    assert [rows[2]] == decode(decoder, [])
    assert [error, error, None] == [row.error for row in rows]


def test_a_model_narrower_than_the_vocabulary_is_refused() -> None:
    """Some tokens would have no logits."""
    with pytest.raises(ValueError, match="29 outputs for 31 tokens"):
        decoder_for(TOY, ToyModel(29, logits_of(29)))


def test_counters_add_up() -> None:
    """Rows of all passes are the model calls; sampled and forced tokens are all tokens."""
    model = ToyModel(len(TOY), random_logits(len(TOY)))
    decoder = decoder_for(TOY, model, max_running=3)
    rows = [row for schema in SCHEMAS for row in rows_for(request(of_schema(schema), prompts=((9, 9),)), TOY)]
    decode(decoder, rows)
    counters = decoder.counters
    assert sum(row.model_calls for row in rows) == counters.rows == sum(map(len, model.fed))
    assert sum(len(row.token_ids) for row in rows) == counters.sampled_tokens + counters.forced_tokens
    assert len(model.fed) == counters.steps


def test_interventions_are_counted() -> None:
    """Each draw whose best token the schema forbids counts, whatever the free rows beside it draw."""
    unwanted, wanted = (CHARACTERS.token_bytes.index(byte) for byte in (b"a", b"1"))
    for best, expected in ((unwanted, 3), (wanted, 0)):
        decoder = decoder_for(CHARACTERS, ToyModel(len(CHARACTERS), logits_of(len(CHARACTERS), {best: 50.0})))
        rows = rows_for(request(regex_source("[0-9]{3}")), CHARACTERS)
        decode(decoder, rows + rows_for(request(None, max_tokens=5), CHARACTERS))
        assert expected == decoder.counters.interventions
