"""Faults that users of other systems reported, about decoding: each driven through the step on made-up logits.

The inputs are the engine cases of the shared field reports; the tests are skipped where that file is not there. The
case about compile errors, which needs no logits, is in test_runner.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.constraint import Walk
from engine.errors import RowDeadError
from engine.forcing import Forcing
from engine.request import Request, Sampling
from engine.sequence import Sequence, choice_of
from schemas_cache import Matcher, Vocabulary, compile_source, fill_masks, schema_source
from tests.toy import GreedyTokenizer, ToyModel, decode, decoder_for, given, rows_for, scripted

FILE = Path(__file__).parents[3] / "shared" / "cases" / "field_reports.json"
CASES: dict[str, Any] = (
    {case["id"]: case for case in json.loads(FILE.read_text("utf-8")) if case["kind"] == "engine"}
    if FILE.is_file()
    else {}
)
pytestmark = pytest.mark.skipif(not CASES, reason=f"{FILE} is not there")

MASK_CASES = (
    "e-mask-wider-than-vocabulary",
    "e-end-token-is-favourite",
    "e-no-fallback-to-token-zero",
    "e-accepting-is-not-finished",
    "e-complete-without-end-token",
    "e-mask-before-truncation",
    "e-penalties-and-structure",
)


def vocabulary_of(case: dict[str, Any]) -> Vocabulary:
    """The case's tokens."""
    return Vocabulary([bytes.fromhex(data) for data in case["vocab"]], case["eos"])


def matcher_of(case: dict[str, Any]) -> Matcher:
    """At the start of the case's schema."""
    return compile_source(schema_source(case["schema"]), vocabulary_of(case)).matcher()


def model_of(case: dict[str, Any], logits: dict[str, float] | None = None) -> ToyModel:
    """Favours what the case says, or these."""
    width = case.get("logits_width", len(case["vocab"]))
    favoured = case.get("logits", {}) if logits is None else logits
    return ToyModel(width, given(width, {int(token): value for token, value in favoured.items()}))


def request_of(schema: Any, jump_forward: bool = True, n: int = 1, **sampling: Any) -> Request:
    """One document of a schema; None is free text. `max_tokens` may be among the settings."""
    most = sampling.pop("max_tokens", 32)
    source = None if schema is None else schema_source(schema)
    return Request(((),), most, n, Sampling(**sampling), source, jump_forward=jump_forward)


def run(case: dict[str, Any], model: ToyModel, request: Request) -> list[Sequence]:
    """Decode to the end; every token of an answer was allowed by its mask where it was taken."""
    rows = rows_for(request, vocabulary_of(case))
    decode(decoder_for(vocabulary_of(case), model), rows)
    for row in rows:
        if row.error is None and row.job.lookup is not None:
            fresh = row.job.lookup.compiled.matcher()
            for token_id in row.token_ids:
                fresh.advance(token_id)
    return rows


@pytest.mark.parametrize("name", MASK_CASES)
def test_masks_at_the_probed_places(name: str) -> None:
    """After each script the listed tokens are allowed, and the listed others are not."""
    case = CASES[name]
    for probe in case["probes"]:
        matcher = matcher_of(case)
        for token_id in probe["after"]:
            matcher.advance(token_id)
        mask = np.zeros((1, (len(case["vocab"]) + 31) // 32), np.uint32)
        fill_masks([matcher], mask)
        allowed = set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist())
        assert set(probe["allow"]) <= allowed
        assert not set(probe["forbid"]) & allowed


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("bound", [True, False])
def test_surplus_outputs_are_never_drawn(bound: bool, temperature: float) -> None:
    """The largest logits lie beyond the vocabulary: a legal token is drawn, for free rows too."""
    case = CASES["e-mask-wider-than-vocabulary"]
    request = request_of(case["schema"] if bound else None, temperature=temperature, n=4)
    for row in run(case, model_of(case), request):
        assert row.error is None
        assert all(token_id < len(case["vocab"]) for token_id in row.token_ids)


@pytest.mark.parametrize("jump_forward", [True, False])
def test_end_token_as_favourite_does_not_end_an_open_document(jump_forward: bool) -> None:
    """The end token has the largest logit throughout, and the document is complete."""
    case = CASES["e-end-token-is-favourite"]
    (row,) = run(case, model_of(case), request_of(case["schema"], jump_forward, temperature=0))
    assert (case["result"], "end_turn", True) == (choice_of(row).text, row.stop_reason, row.complete)


@pytest.mark.parametrize("jump_forward", [True, False])
def test_token_zero_is_no_fallback(jump_forward: bool) -> None:
    """With and without a preference for token 0, it stands only where the schema lets it."""
    case = CASES["e-no-fallback-to-token-zero"]
    for logits in case["logits_cases"]:
        for row in run(case, model_of(case, logits), request_of(case["schema"], jump_forward, n=5)):
            assert row.error is None
            assert set(json.loads(choice_of(row).text)["what"]) <= {"!", "x"}


def test_all_masked_is_an_error_and_not_token_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """When everything is masked, the request fails; nothing is appended."""
    case = CASES["e-no-fallback-to-token-zero"]
    monkeypatch.setattr("engine.step.fill_masks", lambda _matchers, out: out.fill(0))
    (row,) = run(case, model_of(case), request_of(case["schema"], jump_forward=False))
    assert isinstance(row.error, RowDeadError)
    assert [] == row.token_ids


def test_accepting_is_not_finished() -> None:
    """An open-ended value goes on as long as the model wants, and ends when it says so."""
    case = CASES["e-accepting-is-not-finished"]
    vocabulary = vocabulary_of(case)
    rows = rows_for(request_of(case["schema"], temperature=0), vocabulary)
    decode(decoder_for(vocabulary, ToyModel(len(vocabulary), scripted(len(vocabulary), case["script"]))), rows)
    assert case["result"] == choice_of(rows[0]).text
    rows = rows_for(request_of(case["schema"], temperature=0), vocabulary)
    decode(decoder_for(vocabulary, ToyModel(len(vocabulary), scripted(len(vocabulary), [1, 0]))), rows)
    assert choice_of(rows[0]).text == "1"


@pytest.mark.parametrize("jump_forward", [True, False])
def test_complete_without_an_end_token(jump_forward: bool) -> None:
    """The document ends right after its last token; the model is not asked once more."""
    case = CASES["e-complete-without-end-token"]
    (row,) = run(case, model_of(case), request_of(case["schema"], jump_forward))
    assert (case["result"], "end_turn", True) == (choice_of(row).text, row.stop_reason, row.complete)
    assert (0 if jump_forward else 3) == row.model_calls


@pytest.mark.parametrize("jump_forward", [True, False])
def test_mask_comes_before_truncation(jump_forward: bool) -> None:
    """Whatever the setting, the model's favourites outside the schema leave the choice to legal tokens."""
    case = CASES["e-mask-before-truncation"]
    for sampling in case["sampling"]:
        for row in run(case, model_of(case), request_of(case["schema"], jump_forward, n=8, **sampling)):
            assert row.error is None
            assert json.loads(choice_of(row).text) in case["schema"]["enum"]


@pytest.mark.parametrize("jump_forward", [True, False])
def test_reported_probabilities_add_up_over_the_legal_tokens(jump_forward: bool) -> None:
    """Whatever the setting, those of the legal tokens are reported, no others, and they sum to 1."""
    case = CASES["e-mask-before-truncation"]
    wanted = {"logprobs": len(case["vocab"]), "logprobs_from": "masked"}
    for sampling in case["sampling"]:
        request = replace(request_of(case["schema"], jump_forward, n=8, **sampling), **wanted)
        for row in run(case, model_of(case), request):
            matcher = matcher_of(case)
            for token_id, logprobs in zip(row.token_ids, row.logprobs, strict=True):
                chances = {token: math.exp(value) for token, value in logprobs.alternatives}
                assert {token for token in range(len(case["vocab"])) if matcher.allows(token)} == set(chances)
                assert math.fsum(chances.values()) == pytest.approx(1, abs=1e-6)
                matcher.advance(token_id)


@pytest.mark.parametrize("jump_forward", [True, False])
@pytest.mark.parametrize("temperature", [0, 1])
def test_penalties_leave_the_structure_alone(jump_forward: bool, temperature: float) -> None:
    """Separators, quotes and values that repeat are written though they are penalised or banned."""
    case = CASES["e-penalties-and-structure"]
    for sampling in case["sampling"]:
        bias = tuple((int(token), value) for token, value in sampling.get("logit_bias", {}).items())
        settings = {**sampling, "logit_bias": bias, "temperature": temperature}
        (row,) = run(case, model_of(case), request_of(case["schema"], jump_forward, **settings))
        assert (None, case["result"], True) == (row.error, choice_of(row).text, row.complete)


@pytest.mark.parametrize("jump_forward", [True, False])
def test_blanks_as_favourites_do_not_hold_up_the_document(jump_forward: bool) -> None:
    """Line breaks and blanks have the largest logits, and the document is complete within the limit."""
    case = CASES["e-whitespace-favourite"]
    for sampling in case["sampling"]:
        (row,) = run(case, model_of(case), request_of(case["schema"], jump_forward, **sampling))
        assert case["value"] == json.loads(choice_of(row).text)
        assert row.stop_reason == "end_turn"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_free_row_beside_bound_rows(order: tuple[int, ...]) -> None:
    """Each row is drawn from its own mask, the free one from untouched logits, in every order of the three."""
    case = CASES["e-free-row-beside-bound-row"]
    vocabulary = vocabulary_of(case)
    rows = [
        rows_for(request_of(case["schemas"][number], jump_forward=False, temperature=0), vocabulary)[0]
        for number in order
    ]
    decoder = decoder_for(vocabulary, model_of(case))
    decoder.scheduler.add(rows)
    decoder.step()
    for number, row in zip(order, rows, strict=True):
        assert row.token_ids[0] in case["first_token"][number]


def test_forks_go_their_own_ways() -> None:
    """A matcher copied after a script: each copy takes its own ids, and its text is what they spell."""
    case = CASES["e-fork-for-choices"]
    vocabulary, matcher = vocabulary_of(case), matcher_of(case)
    for token_id in case["script"]:
        matcher.advance(token_id)
    for ids, result in zip(case["forks"], case["result"], strict=True):
        copy = matcher.fork()
        for token_id in ids:
            assert copy.allows(token_id)
            copy.advance(token_id)
        assert copy.finished
        assert result == b"".join(vocabulary.token_bytes[i] for i in [*case["script"], *ids]).decode()


@pytest.mark.parametrize("jump_forward", [True, False])
def test_choices_drawn_together_keep_matcher_and_text_together(jump_forward: bool) -> None:
    """Many choices of one request: each text is the decoded tokens, and a document."""
    case = CASES["e-fork-for-choices"]
    for row in run(case, model_of(case), request_of(case["schema"], jump_forward, n=20)):
        assert 0 <= json.loads(choice_of(row).text)["n"] <= 99


def test_forced_text_is_retokenised() -> None:
    """The same text with and without jump-forward at temperature 0, the open quote included."""
    case = CASES["e-forced-text-retokenised"]
    texts = []
    for jump_forward in (True, False):
        (row,) = run(case, model_of(case), request_of(case["schema"], jump_forward, temperature=0))
        assert row.error is None
        texts.append(choice_of(row).text)
    assert texts[0] == texts[1]


@pytest.mark.parametrize("jump_forward", [True, False])
@pytest.mark.parametrize("schema", ["schema", "schema_also"])
@pytest.mark.parametrize("favourite", [{}, {"4": 21.0}, {"6": 21.0}])
def test_digits_as_favourites_do_not_use_up_the_limit(
    favourite: dict[str, float], schema: str, jump_forward: bool
) -> None:
    """Digits, a point, an exponent have the largest logits: the document is whole, and what was ended in time says so.

    Exponents, and the zeros after the point of an integer, have a cap of their own; those of other numbers have none.
    """
    case = CASES["e-digits-favourite"]
    for sampling in case["sampling"]:
        model = model_of(case, case["logits"] | favourite)
        (row,) = run(case, model, request_of(case[schema], jump_forward, **sampling))
        assert row.error is None
        assert set(json.loads(choice_of(row).text)) == {"xp"}
        assert row.complete
        assert ("max_tokens" if row.closed_early else "end_turn") == row.stop_reason
        assert row.closed_early or favourite
        assert len(row.token_ids) <= sampling["max_tokens"]


def test_of_a_draft_the_legal_beginning_is_kept() -> None:
    """A fork takes what is legal of the draft; taken back it is where it was, and the text goes on as one by one."""
    case = CASES["e-drafts-are-checked"]
    vocabulary, matcher = vocabulary_of(case), matcher_of(case)
    before, fork, kept = matcher.mask().copy(), matcher.fork(), []
    for token_id in case["draft"]:
        if not fork.allows(token_id):
            break
        fork.advance(token_id)
        kept.append(token_id)
    assert case["draft"][: case["keep"]] == kept
    wanted = ToyModel(len(vocabulary), scripted(len(vocabulary), case["draft"]))
    request = request_of(case["schema"], jump_forward=False, temperature=0)
    (one_by_one,) = run(case, wanted, request)
    assert kept == one_by_one.token_ids[: len(kept)]
    assert fork.allows(one_by_one.token_ids[len(kept)])
    (row,) = rows_for(request, vocabulary)
    walk = Walk(vocabulary, Forcing(vocabulary, GreedyTokenizer(vocabulary).encode_bytes))
    for token_id in kept:
        walk.advance(row, token_id)
    decode(decoder_for(vocabulary, ToyModel(len(vocabulary), scripted(len(vocabulary), case["draft"]))), [row])
    assert one_by_one.token_ids == row.token_ids
    fork.rollback(len(kept))
    np.testing.assert_array_equal(before, fork.mask())
