"""Token limits: complete wherever there is room for a document, and marked where the limit had a say."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import Future
from random import Random
from typing import Any

import numpy as np
import pytest

from engine.budget import check_room, same_text
from engine.errors import BudgetBelowMinimumError
from engine.models.registry import load_model
from engine.request import OnLimit, Request, Sampling
from engine.sequence import Job, Sequence, choice_of, sequences_of
from engine.step import Decoder
from schemas_cache import (
    Lookup,
    SchemaError,
    Source,
    Vocabulary,
    choice_source,
    compile_source,
    json_object_source,
    regex_source,
    schema_source,
)
from tests.suites.random_schemas import random_schema
from tests.suites.sampling import BPE, BYTES, OPTIONS
from tests.toy import (
    CHARACTERS,
    TOY,
    GreedyTokenizer,
    Logits,
    ToyModel,
    decode,
    decoder_for,
    given,
    random_logits,
    rows_for,
)

RECORD = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 30}, "b": {"type": "array", "items": {"enum": [1, 12]}}},
    "required": ["a", "b"],
}


def request(source: Source, max_tokens: int, **fields: Any) -> Request:
    """For one document."""
    return Request(**{"prompts": ((),), "max_tokens": max_tokens, "source": source, **fields})


def run(asked: Request, vocabulary: Vocabulary, logits: Logits, seed: int = 0) -> Sequence:
    """Decode one row with the greedy tokenizer."""
    return run_all(asked, vocabulary, logits, seed)[0]


def run_all(asked: Request, vocabulary: Vocabulary, logits: Logits, seed: int = 0) -> list[Sequence]:
    """Decode the rows of one request, with as many slots."""
    rows = rows_for(asked, vocabulary, seed)
    encode = GreedyTokenizer(vocabulary).encode_bytes
    decode(Decoder(ToyModel(len(vocabulary), logits), vocabulary, encode, len(rows)), rows)
    return rows


def favour(text: str, vocabulary: Vocabulary = CHARACTERS) -> Logits:
    """Wants to write this text, whatever stands there, character for character."""
    ids = GreedyTokenizer(vocabulary).encode(text)
    return lambda context: given(
        len(vocabulary), {ids[len(context)] if len(context) < len(ids) else vocabulary.end_ids[0]: 50.0}
    )(context)


@pytest.mark.parametrize("jump_forward", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("vocabulary", [BPE, BYTES, TOY], ids=["bpe", "bytes", "holes"])
def test_complete_from_the_minimum_on(vocabulary: Vocabulary, temperature: float, jump_forward: bool) -> None:
    """Random schemas, random logits: at each limit from `minimum_tokens` on the text is a whole document."""
    for seed in range(12):
        source = schema_source(random_schema(Random(seed)), OPTIONS[seed % len(OPTIONS)])
        try:
            minimum = compile_source(source, vocabulary).minimum_tokens
        except SchemaError:
            continue
        for limit in {minimum, minimum + 1, minimum + 3, minimum + 10} - {0} if minimum < 60 else ():
            asked = request(source, limit, jump_forward=jump_forward, sampling=Sampling(temperature))
            row = run(asked, vocabulary, random_logits(len(vocabulary), seed), seed)
            assert row.error is None
            assert row.complete
            assert len(row.token_ids) <= limit
            json.loads(choice_of(row).text)


@pytest.mark.parametrize("jump_forward", [True, False])
@pytest.mark.parametrize("model", ["katagami-char", "katagami-bpe"])
def test_the_shipped_models_attain_the_minimum(model: str, jump_forward: bool) -> None:
    """At a limit of `minimum_tokens` a record has exactly so many tokens; with one fewer it is cut."""
    loaded, source = load_model(model), schema_source(RECORD)
    compiled = compile_source(source, loaded.tokenizer.vocabulary)
    rows = []
    for limit in (compiled.minimum_tokens, compiled.minimum_tokens - 1):
        job = Job(request(source, limit, jump_forward=jump_forward), Future(), 0, 0.0, Lookup(compiled, "miss", 0.0))
        rows += sequences_of(job, 1000)
    decoder = Decoder(loaded.model, loaded.tokenizer.vocabulary, loaded.tokenizer.encode_bytes, 2)
    decode(decoder, rows)
    assert [(compiled.minimum_tokens, True), (compiled.minimum_tokens - 1, False)] == [
        (len(row.token_ids), row.complete) for row in rows
    ]


@pytest.mark.parametrize(
    "source",
    [
        regex_source("a+(bc){2,}"),
        choice_source(["a", "abcabc", "bbbbbbbbbb"]),
        json_object_source(),
        schema_source(RECORD),
    ],
    ids=["regex", "choice", "json_object", "json_schema"],
)
@pytest.mark.parametrize("jump_forward", [True, False])
def test_every_kind_of_source_is_closed(source: Source, jump_forward: bool) -> None:
    """At each limit from the minimum on, several answers at once."""
    minimum = compile_source(source, CHARACTERS).minimum_tokens
    for limit in range(minimum, minimum + 12):
        asked = request(source, limit, n=3, jump_forward=jump_forward)
        rows = run_all(asked, CHARACTERS, random_logits(len(CHARACTERS)), limit)
        assert [True] * 3 == [row.complete and len(row.token_ids) <= limit for row in rows]


@pytest.mark.parametrize("jump_forward", [True, False])
def test_a_text_that_ends_in_time_says_nothing_of_a_limit(jump_forward: bool) -> None:
    """The limit is the length of what the model wants to write: it is written, and ended by itself."""
    text = '{"a": "abcabcabc", "b": [1, 12]}'
    asked = request(schema_source(RECORD), len(text), jump_forward=jump_forward, sampling=Sampling(0))
    choice = choice_of(run(asked, CHARACTERS, favour(text)))
    assert (text, "end_turn", False, True) == (choice.text, choice.stop_reason, choice.closed_early, choice.complete)


@pytest.mark.parametrize("jump_forward", [True, False])
@pytest.mark.parametrize("fewer", range(1, 14))
def test_a_text_that_would_be_too_long_is_ended_and_says_so(fewer: int, jump_forward: bool) -> None:
    """It is what the model wants up to the place where it has to turn to the end."""
    text = '{"a": "abcabcabc", "b": [1, 12]}'
    asked = request(schema_source(RECORD), len(text) - fewer, jump_forward=jump_forward, sampling=Sampling(0))
    choice = choice_of(run(asked, CHARACTERS, favour(text)))
    assert ("max_tokens", True, True) == (choice.stop_reason, choice.closed_early, choice.complete)
    assert set(json.loads(choice.text)) == {"a", "b"}
    assert text[:8] == choice.text[:8]


def test_a_small_context_is_a_limit_like_any_other() -> None:
    """What is left of the context is the budget; the ending has its own name."""
    rows = rows_for(request(schema_source(RECORD), 500, sampling=Sampling(0)), CHARACTERS)
    (row,) = sequences_of(rows[0].job, context_length=25)
    decode(decoder_for(CHARACTERS, ToyModel(len(CHARACTERS), favour('{"a": "' + "a" * 30))), [row])
    assert ("model_context_window_exceeded", True, True) == (row.stop_reason, row.complete, row.closed_early)


def test_truncate_leaves_the_mask_alone() -> None:
    """The text is the beginning of what comes without a limit, token for token."""
    logits = random_logits(len(CHARACTERS))
    whole = run(request(schema_source(RECORD), 500, on_limit="truncate"), CHARACTERS, logits)
    for limit in range(1, len(whole.token_ids)):
        cut = run(request(schema_source(RECORD), limit, on_limit="truncate"), CHARACTERS, logits)
        assert whole.token_ids[:limit] == cut.token_ids
        assert ("max_tokens", False, False) == (cut.stop_reason, cut.complete, cut.closed_early)


def test_below_the_minimum_the_text_is_cut() -> None:
    """As under `truncate`: not even the shortest document fits."""
    minimum = compile_source(schema_source(RECORD), CHARACTERS).minimum_tokens
    logits = random_logits(len(CHARACTERS))
    for limit in range(1, minimum):
        rows = [
            run(request(schema_source(RECORD), limit, on_limit=on_limit), CHARACTERS, logits)
            for on_limit in ("close", "truncate")
        ]
        assert rows[0].token_ids == rows[1].token_ids
        assert not rows[0].complete
        assert not rows[0].closed_early


@pytest.mark.parametrize(("on_limit", "max_tokens"), [("close", 5), ("truncate", 5), ("error", 18), ("error", 0)])
def test_only_error_refuses(on_limit: OnLimit, max_tokens: int) -> None:
    """A request that asks to be cut or closed is taken whatever its limit, and a prewarm too."""
    job = rows_for(request(schema_source(RECORD), max_tokens, on_limit=on_limit), CHARACTERS)[0].job
    check_room(job, context_length=1000)
    assert 18 == job.lookup.compiled.minimum_tokens  # type: ignore[union-attr]


def test_error_refuses_what_has_no_room_for_a_document() -> None:
    """The least room of all prompts counts, and the figures are in the error."""
    asked = request(schema_source(RECORD), 18, on_limit="error", prompts=((9,), (9, 10)))
    job = rows_for(asked, CHARACTERS)[0].job
    check_room(job, context_length=20)
    with pytest.raises(BudgetBelowMinimumError) as caught:
        check_room(job, context_length=19)
    assert (17, 18) == (caught.value.max_tokens, caught.value.minimum_tokens)


def test_a_forced_chunk_is_not_taken_where_it_costs_too_much() -> None:
    """Its canonical tokens are two more than the fewest: near the limit the text is drawn under the mask instead."""
    vocabulary = Vocabulary([b"", b"a", b"b", b"ab", b"abab", b"x"], [0])

    def single_letters(data: bytes) -> list[int]:
        return [1 + b"ab".index(byte) for byte in data if byte in b"ab"]

    def tokens(limit: int) -> list[int]:
        rows = rows_for(request(regex_source("ababx*"), limit, sampling=Sampling(0)), vocabulary)
        model = ToyModel(len(vocabulary), given(len(vocabulary), {5: 9.0}))
        (row,) = decode(Decoder(model, vocabulary, single_letters, 1), rows)
        assert row.complete
        assert not row.closed_early
        return row.token_ids[: 4 if limit > 3 else 2]

    assert [1, 2, 1, 2] == tokens(8)
    assert [4] == tokens(1)
    assert [3, 3] == tokens(2)


def test_what_is_drawn_near_the_limit_has_the_narrowed_distribution() -> None:
    """Shares of many draws: the model's own, divided by what the limit leaves of them."""
    vocabulary = Vocabulary([b"", b"a", b"b", b"c", b"dd", b"e"], [0])
    logits = {1: 1.0, 2: 0.0, 3: 2.0, 4: 0.5}
    asked = request(regex_source("a|b|ce{3}|dde{4}"), 2, n=4000)
    rows = run_all(asked, vocabulary, given(len(vocabulary), logits))
    shares = Counter(row.token_ids[0] for row in rows)
    weights = {token_id: np.exp(logits[token_id]) for token_id in (1, 2)}
    for token_id, weight in weights.items():
        assert abs(shares[token_id] / 4000 - weight / sum(weights.values())) < 0.03
    refused = float(np.exp(logits[3]) + np.exp(logits[4]))
    closed = sum(row.closed_early for row in rows) / 4000
    assert abs(closed - refused / (refused + sum(weights.values()))) < 0.03


def test_another_cut_of_the_same_text_is_not_a_text_closed_early() -> None:
    """`{` and `{"` begin the same text where the quotation mark is forced; `a` and `ab` do not where `a` may end."""
    forced = compile_source(schema_source(RECORD), TOY).matcher()
    assert same_text(forced, b"{", b'{"')
    assert same_text(forced, b'{"', b"{")
    free = compile_source(regex_source("ab*"), TOY).matcher()
    assert not same_text(free, b"a", b"ab")
    assert not same_text(free, b"a", b"b")


def test_a_stop_string_ends_a_text_that_was_closed_early() -> None:
    """The closing part has the stop string in it; the ending is the stop string's, and the mark stays."""
    asked = request(schema_source(RECORD), 20, sampling=Sampling(0, stop=("]",)))
    row = run(asked, CHARACTERS, favour('{"a": "' + "a" * 30))
    assert ("stop_sequence", True, False) == (row.stop_reason, row.closed_early, row.complete)
