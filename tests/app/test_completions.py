"""A request's fields reach the engine, and its result reaches the client."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.main import create_app
from app.settings import Settings
from engine import Diagnostics, FieldMass, SchemaUse, TokenLogprobs, Worst
from schemas_cache import Finding


def schema_format(schema: object, **members: Any) -> dict[str, Any]:
    """`response_format` for this schema."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema} | members}


SCHEMA = {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["b"]}


def test_answer_without_a_schema(post: Any) -> None:
    """All members of the contract are there, and `structured` is null."""
    body = post().json()
    choice = {"index": 0, "text": "", "logprobs": None, "finish_reason": "stop", "stop_reason": "end_turn"}
    usage = {
        "prompt_tokens": 1,
        "completion_tokens": 7,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    assert [choice | {"stop_sequence": None, "structured": None}] == body["choices"]
    assert ("text_completion", "tiny", usage) == (body["object"], body["model"], body["usage"])
    assert body["structured"] is None
    assert body["id"].startswith("cmpl-")
    assert body["system_fingerprint"].startswith("fp_")


def test_answer_with_a_schema(post: Any, engine: Any, make_choice: Any) -> None:
    """The schema's part says where it came from, the choice's part what the text is."""
    engine.answer = lambda index: make_choice(index, '{"b": 1}')
    response = post(response_format=schema_format(SCHEMA))
    body = response.json()
    shared = {"schema_hash": "ab" * 32, "cache": "miss", "compile_ms": 12.5, "minimum_tokens": 9, "warnings": []}
    assert shared == body["structured"]
    own = {"enforced": "full", "complete": True, "valid": True, "closed_early": False}
    assert own == body["choices"][0]["structured"]
    assert ("ab" * 32, "miss") == (response.headers["x-schema-hash"], response.headers["x-schema-cache"])
    assert "queue;dur=1.000, compile;dur=12.500, prefill;dur=2.000" == response.headers["server-timing"]
    assert "x-schema-warnings" not in response.headers


def test_defaults(post: Any, engine: Any) -> None:
    """What is not said is 512 tokens, one choice, the plain distribution, and no source."""
    post()
    name, request = engine.requests[0]
    assert ("tiny", 512, 1, None) == (name, request.max_tokens, request.n, request.source)
    assert (1.0, 1.0, 0, 0.0, None, ()) == (
        request.sampling.temperature,
        request.sampling.top_p,
        request.sampling.top_k,
        request.sampling.min_p,
        request.sampling.seed,
        request.sampling.stop,
    )


def test_fields_reach_the_engine(post: Any, engine: Any) -> None:
    """Every field that is used arrives; integers may be written as 3.0."""
    sampling = {"temperature": 0, "top_p": 0.5, "top_k": 3.0, "min_p": 0.1, "seed": 5, "stop": "x"}
    post(prompt=["ab", "c"], max_tokens=4.0, n=2, best_of=2, **sampling)
    request = engine.requests[0][1]
    assert (((0, 1), (2,)), 4, 2) == (request.prompts, request.max_tokens, request.n)
    got = request.sampling
    assert (0.0, 0.5, 3, 0.1, 5, ("x",)) == (got.temperature, got.top_p, got.top_k, got.min_p, got.seed, got.stop)
    assert isinstance(request.max_tokens, int)


@pytest.mark.parametrize("huge", [2**63, 10**40, 1e300])
def test_integers_beyond_the_machine(post: Any, engine: Any, huge: float) -> None:
    """More than all tokens, and than the context, are all of them."""
    post(top_k=huge, max_tokens=huge)
    request, model = engine.requests[0][1], engine.models["tiny"]
    assert len(model.tokenizer.vocabulary) == request.sampling.top_k
    assert model.model.context_length == request.max_tokens


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("abc", ((0, 1, 2),)),
        ("", ((),)),
        (None, ((),)),
        ([1, 2.0, 3], ((1, 2, 3),)),
        ([[1], [2, 3]], ((1,), (2, 3))),
        (["a", ""], ((0,), ())),
    ],
)
def test_prompt_forms(post: Any, engine: Any, prompt: object, ids: object) -> None:
    """Text, texts, ids and lists of ids are prompts; null is the empty one."""
    assert 200 == post(prompt=prompt).status_code
    assert ids == engine.requests[0][1].prompts


@pytest.mark.parametrize(("prompt", "is_text"), [("abc", True), (["a", "b"], True), ([1, 2], False), ([[1]], False)])
def test_only_text_is_healed(post: Any, engine: Any, prompt: object, is_text: bool) -> None:
    """Text may end inside a token; token ids are what the model is meant to see."""
    post(prompt=prompt)
    assert is_text == engine.requests[0][1].heal_prompt


def test_texts_begin_as_the_model_has_it(post: Any, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that all texts begin with comes before text, and not before ids, which are taken as they are."""
    monkeypatch.setattr(engine.models["tiny"].tokenizer, "begin_ids", (7,))
    post(prompt=["a", ""])
    post(prompt=[0])
    assert [((7, 0), (7,)), ((0,),)] == [request.prompts for _, request in engine.requests]


def test_missing_prompt(client: TestClient) -> None:
    """A prompt that is absent, and not null, is missing."""
    response = client.post("/v1/completions", json={"model": "tiny"})
    assert ("missing_required_parameter", "prompt") == tuple(response.json()["error"][key] for key in ("code", "param"))


def test_choices_are_in_order(post: Any) -> None:
    """Two prompts and two choices each are four choices, counted through."""
    assert [0, 1, 2, 3] == [choice["index"] for choice in post(prompt=["a", "b"], n=2).json()["choices"]]


def test_null_equals_absent(post: Any, engine: Any) -> None:
    """Null changes nothing, whatever the field, at every level."""
    names = "max_tokens temperature top_p top_k min_p n best_of seed stop stream stream_options logprobs echo suffix "
    names += "logit_bias presence_penalty frequency_penalty structured_options guided_json"
    options = {"whitespace": None, "on_limit": None, "compile_timeout": None}
    named = {"name": "answer", "schema": True, "strict": None, "description": None}
    given = {"type": "json_schema", "json_schema": named, "regex": None}
    response = post(**dict.fromkeys(names.split()), response_format=given)
    assert 200 == response.status_code
    assert 200 == post(structured_options=options).status_code
    assert 512 == engine.requests[0][1].max_tokens


def test_ignored_fields(post: Any) -> None:
    """The vendors' hints are accepted, whatever is in them."""
    names = "user metadata store service_tier safety_identifier prompt_cache_key verbosity reasoning_effort reasoning "
    names += "prediction truncation include inference_geo speed cache_control diagnostics user_profile_id workspace_id"
    assert 200 == post(**dict.fromkeys(names.split(), "anything")).status_code


def test_values_that_equal_absence(post: Any) -> None:
    """False, zero and empty are fine for features that are not there."""
    fields = {"stream": False, "echo": False, "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}}
    assert 200 == post(**fields).status_code
    options = {"method": "mask", "allow_refusal": False, "schema_in_prompt": False}
    assert 200 == post(response_format={"type": "json_object"}, structured_options=options).status_code


def test_penalties_and_bias_reach_the_engine(post: Any, engine: Any) -> None:
    """Ids of a bias are strings, since they are keys of an object; the engine has numbers."""
    post(presence_penalty=-2, frequency_penalty=0.5, logit_bias={"3": -100, "0": 1.5})
    sampling = engine.requests[0][1].sampling
    assert (-2.0, 0.5, ((3, -100.0), (0, 1.5))) == (
        sampling.presence_penalty,
        sampling.frequency_penalty,
        sampling.logit_bias,
    )


def test_options_reach_the_engine(post: Any, engine: Any) -> None:
    """What becomes of the budget, and what is to be known of the text; close and raw where nothing is said."""
    options = {"on_limit": "error", "diagnostics": True, "logprobs": "masked"}
    post(response_format=schema_format(SCHEMA), structured_options=options, logprobs=0)
    post(response_format=schema_format(SCHEMA))
    asked, plain = (request for _, request in engine.requests)
    assert ("error", True, "masked", 0) == (asked.on_limit, asked.diagnostics, asked.logprobs_from, asked.logprobs)
    assert ("close", False, "raw", None) == (plain.on_limit, plain.diagnostics, plain.logprobs_from, plain.logprobs)


def test_log_probabilities_need_no_schema(post: Any, engine: Any) -> None:
    """Which distribution they come from may be said for free text too."""
    assert 200 == post(structured_options={"logprobs": "masked"}, logprobs=20).status_code
    assert (20, "masked") == (engine.requests[0][1].logprobs, engine.requests[0][1].logprobs_from)


def test_closed_early(post: Any, engine: Any, make_choice: Any) -> None:
    """A document that was closed to fit is one of length, unless the request has it otherwise; it stays marked."""
    engine.answer = lambda index: make_choice(index, "{}", stop_reason="max_tokens", closed_early=True)
    reasons = []
    for options in ({}, {"report_closed_as": "stop"}):
        choice = post(response_format={"type": "json_object"}, structured_options=options).json()["choices"][0]
        reasons.append(choice["finish_reason"])
        assert ("max_tokens", True) == (choice["stop_reason"], choice["structured"]["closed_early"])
    assert ["length", "stop"] == reasons


def test_truncated_text_is_never_reported_as_closed(post: Any, engine: Any, make_choice: Any) -> None:
    """What was cut is one of length, whatever the request would like to hear."""
    engine.answer = lambda index: make_choice(index, "{", stop_reason="max_tokens", complete=False)
    options = {"report_closed_as": "stop"}
    response = post(response_format={"type": "json_object"}, structured_options=options)
    assert "length" == response.json()["choices"][0]["finish_reason"]


def test_diagnostics(post: Any, engine: Any, make_choice: Any) -> None:
    """All members of the contract, tokens as text: one without bytes by its name, half a character as bytes."""
    names = {token: index for index, token in enumerate(engine.models["tiny"].tokenizer.vocabulary.token_bytes)}
    worst = Worst(2, "/b", wanted_id=len(names), got_id=names[b"\xc3"], allowed_mass=0.25)
    bent = Diagnostics(5, 2, 1, 0.75, 0.25, worst, (FieldMass("/b", 0.5, 0.25, 1, True),))
    engine.answer = lambda index: make_choice(index, "{}", diagnostics=bent)
    choice = post(response_format={"type": "json_object"}, structured_options={"diagnostics": True}).json()["choices"][
        0
    ]
    assert {
        "enforced": "full",
        "complete": True,
        "valid": True,
        "closed_early": False,
        "tokens": {"total": 5, "forced": 2, "intervened": 1},
        "allowed_mass": {"mean": 0.75, "min": 0.25},
        "worst": {
            "token_index": 2,
            "pointer": "/b",
            "wanted": "<|end|>",
            "got": "bytes:\\xc3",
            "allowed_mass": 0.25,
        },
        "fields": [
            {
                "pointer": "/b",
                "allowed_mass": {"mean": 0.5, "min": 0.25},
                "intervened": 1,
                "ended_by_limit": True,
            }
        ],
    } == choice["structured"]


def test_nothing_bent(post: Any, engine: Any, make_choice: Any) -> None:
    """Where the mask forbade nothing there is no worst place."""
    engine.answer = lambda index: make_choice(index, "{}", diagnostics=Diagnostics(5, 2, 0, 1.0, 1.0, None, ()))
    choice = post(response_format={"type": "json_object"}, structured_options={"diagnostics": True}).json()["choices"][
        0
    ]
    assert (None, []) == (choice["structured"]["worst"], choice["structured"]["fields"])


def test_echo(post: Any, engine: Any, make_choice: Any) -> None:
    """The prompt comes first, as it was given, or as its ids spell it."""
    engine.answer = lambda index: make_choice(index, "x")
    assert ["A-x", "A-x", "cx", "cx"] == [
        choice["text"] for choice in post(prompt=["A-", "c"], n=2, echo=True).json()["choices"]
    ]
    assert "abx" == post(prompt=[0, 1], echo=True).json()["choices"][0]["text"]
    assert not engine.requests[0][1].prompt_logprobs


def known(token_id: int, *alternatives: int) -> TokenLogprobs:
    """Of each token as much as its number says."""
    return TokenLogprobs(token_id, -float(token_id), tuple((other, -float(other)) for other in alternatives))


def test_log_probabilities(post: Any, engine: Any, make_choice: Any) -> None:
    """Four parallel lists; the token itself is among the alternatives, and offsets count characters."""
    first, second = (
        len(engine.models["tiny"].tokenizer.vocabulary) - 4,
        len(engine.models["tiny"].tokenizer.vocabulary) - 3,
    )
    logprobs = (known(0, 1), known(first), known(second, second + 2), known(2))
    engine.answer = lambda index: make_choice(index, "aéc", logprobs=logprobs)
    assert {
        "tokens": ["a", "bytes:\\xc3", "bytes:\\xa9", "c"],
        "token_logprobs": [0.0, -float(first), -float(second), -2.0],
        "top_logprobs": [
            {"b": -1.0, "a": 0.0},
            {"bytes:\\xc3": -float(first)},
            {"<|end|>": -float(second + 2), "bytes:\\xa9": -float(second)},
            {"c": -2.0},
        ],
        "text_offset": [0, 1, 1, 2],
    } == post(logprobs=1).json()["choices"][0]["logprobs"]


def test_log_probabilities_of_the_prompt(post: Any, engine: Any, make_choice: Any) -> None:
    """With the prompt repeated, its tokens come first, and of the very first one nothing is known."""
    engine.answer = lambda index: make_choice(index, "c", logprobs=(known(2),), prompt_logprobs=(None, known(1)))
    logprobs = post(prompt="ab", logprobs=0, echo=True).json()["choices"][0]["logprobs"]
    assert engine.requests[0][1].prompt_logprobs
    assert (["a", "b", "c"], [None, -1.0, -2.0], [0, 1, 2]) == (
        logprobs["tokens"],
        logprobs["token_logprobs"],
        logprobs["text_offset"],
    )
    assert [None, {"b": -1.0}, {"c": -2.0}] == logprobs["top_logprobs"]


def test_cached_tokens(post: Any, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the model had seen before is told."""
    plain = engine._result
    monkeypatch.setattr(engine, "_result", lambda request: replace(plain(request), cached_tokens=1))
    assert 1 == post().json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_structured_output_switched_off(engine: Any, tmp_path: Path) -> None:
    """A server may be told to have no formats: it says so, and goes on with free text."""
    app = create_app(Settings(home=tmp_path, structured_output=False), engine)
    with TestClient(app) as client:
        while not app.state.gate.loaded_at:
            time.sleep(0.001)
        body = {"model": "tiny", "prompt": "a"}
        refused = client.post("/v1/completions", json=body | {"response_format": {"type": "json_object"}})
        assert (400, "unsupported_parameter") == (refused.status_code, refused.json()["error"]["code"])
        assert "switched off" in refused.json()["error"]["message"]
        for fields in ({}, {"response_format": {"type": "text"}}):
            assert 200 == client.post("/v1/completions", json=body | fields).status_code


def test_seed_may_be_negative(post: Any, engine: Any) -> None:
    """Every 64-bit seed reaches the engine as a number of its own, none of them negative."""
    for seed in (-1, -(2**63), 2**63 - 1):
        post(seed=seed)
    seeds = [request.sampling.seed for _, request in engine.requests]
    assert [2**64 - 1, 2**63, 2**63 - 1] == seeds


def test_max_tokens_is_capped_by_the_context(post: Any, engine: Any) -> None:
    """A budget beyond all bounds is the context's length."""
    post(max_tokens=10**30)
    assert 1000 == engine.requests[0][1].max_tokens


def test_prewarm(post: Any, engine: Any, make_choice: Any) -> None:
    """`max_tokens: 0` reaches the engine, and its empty text ends at the token limit."""
    engine.answer = lambda index: make_choice(index, stop_reason="max_tokens", complete=False)
    choice = post(max_tokens=0, response_format=schema_format(SCHEMA)).json()["choices"][0]
    assert ("", "length", "max_tokens") == (choice["text"], choice["finish_reason"], choice["stop_reason"])
    assert 0 == engine.requests[0][1].max_tokens


def test_property_order_survives(client: TestClient, engine: Any) -> None:
    """The schema reaches the engine as it was written: order of keys, big integers, 1.0 and 1 apart."""
    text = '{"properties": {"z": {"maximum": 123456789012345678901234567890}, "a": {"const": 1.0}, "m": {"const": 1}}}'
    form = f'{{"type": "json_schema", "json_schema": {{"schema": {text}, "name": "x"}}}}'
    body = f'{{"response_format": {form}, "prompt": "a", "model": "tiny"}}'
    client.post("/v1/completions", content=body.encode(), headers={"content-type": "application/json"})
    assert text == json.dumps(engine.requests[0][1].source.content)


@pytest.mark.parametrize(
    ("response_format", "kind", "content"),
    [
        ({"type": "json_object"}, "json_object", None),
        ({"type": "regex", "regex": "a+"}, "regex", "a+"),
        ({"type": "choice", "choice": ["b", "a"]}, "choice", ("b", "a")),
        (schema_format(False), "json_schema", False),
        (schema_format({"required": None}), "json_schema", {"required": None}),
    ],
)
def test_formats(post: Any, engine: Any, response_format: object, kind: str, content: object) -> None:
    """Each format becomes a source of its kind; what is inside a schema is left alone."""
    post(response_format=response_format)
    source = engine.requests[0][1].source
    assert (kind, content) == (source.kind, source.content)


def test_schema_options(post: Any, engine: Any) -> None:
    """Strictness and the options that shape the language are part of the source; the time limit goes beside it."""
    options = {"whitespace": "compact", "additional_properties": "open", "key_order": "any", "compile_timeout": 1.5}
    post(response_format=schema_format(SCHEMA, strict=False), structured_options=options)
    request = engine.requests[0][1]
    got = request.source.options
    assert (False, "compact", "open", "any") == (
        got.strict,
        got.whitespace,
        got.additional_properties,
        got.key_order,
    )
    assert 1.5 == request.compile_timeout_s


@pytest.mark.parametrize(
    ("response_format", "text", "valid"),
    [
        (schema_format(SCHEMA), '{"b": 1}', True),
        (schema_format(SCHEMA), '{"b": 1.5}', False),
        (schema_format(SCHEMA), '{"b": 1', False),
        (schema_format({"type": "integer", "maximum": 10**30}), str(10**30 + 1), False),
        (schema_format({"type": "number"}), "1e999", True),
        (schema_format({"$schema": "https://example.com/unknown", "type": "integer"}), "1", True),
        (schema_format({"items": [{"const": 1}], "$schema": "http://json-schema.org/draft-07/schema#"}), "[2]", False),
        (schema_format({"$ref": "http://127.0.0.1:9/x"}), "1", None),
        ({"type": "json_object"}, "{}", True),
        ({"type": "json_object"}, "[]", False),
        ({"type": "regex", "regex": "a|ab"}, "ab", True),
        ({"type": "regex", "regex": "a"}, "ab", False),
        ({"type": "regex", "regex": "a"}, "a\n", False),
        ({"type": "regex", "regex": "\\d"}, "٣", False),
        ({"type": "choice", "choice": ["a", "b"]}, "b", True),
        ({"type": "choice", "choice": ["a", "b"]}, "c", False),
    ],
)
def test_valid(post: Any, engine: Any, make_choice: Any, response_format: object, text: str, valid: object) -> None:
    """A judge that knows nothing of the compiler says whether a complete text is valid."""
    engine.answer = lambda index: make_choice(index, text)
    assert valid is post(response_format=response_format).json()["choices"][0]["structured"]["valid"]


def test_text_beyond_the_judge(post: Any, engine: Any, make_choice: Any) -> None:
    """A text that the judge cannot read is neither valid nor invalid."""
    engine.answer = lambda index: make_choice(index, "[" * 3000 + "]" * 3000)
    choice = post(response_format=schema_format(True)).json()["choices"][0]
    assert choice["structured"]["valid"] is None


def test_truncated_text_is_not_judged(post: Any, engine: Any, make_choice: Any) -> None:
    """What is incomplete has no verdict."""
    engine.answer = lambda index: make_choice(index, '{"b"', stop_reason="max_tokens", complete=False)
    choice = post(response_format=schema_format(SCHEMA)).json()["choices"][0]
    assert (False, None) == (choice["structured"]["complete"], choice["structured"]["valid"])


def test_warning_below_the_minimum(post: Any, engine: Any, make_choice: Any) -> None:
    """A truncated text under a budget that no document fits has a warning that names the minimum."""
    engine.answer = lambda index: make_choice(index, '{"b', stop_reason="max_tokens", complete=False)
    response = post(response_format=schema_format(SCHEMA), max_tokens=3)
    (warning,) = response.json()["structured"]["warnings"]
    assert {"pointer", "keyword", "reason"} == set(warning)
    assert "max_tokens 3 is below 9" in warning["reason"]
    assert "1" == response.headers["x-schema-warnings"]
    for enough in (9, 0):  # without a budget only the schema is prepared
        body = post(response_format=schema_format(SCHEMA), max_tokens=enough).json()
        assert [] == body["structured"]["warnings"]


def test_warning_where_the_context_leaves_no_room(post: Any, engine: Any, make_choice: Any) -> None:
    """The same where the prompt takes the context."""
    stop_reason = "model_context_window_exceeded"
    engine.answer = lambda index: make_choice(index, "{", stop_reason=stop_reason, complete=False)
    response = post(prompt="a" * 995, response_format=schema_format(SCHEMA))
    (warning,) = response.json()["structured"]["warnings"]
    assert "room of 5 tokens is below 9" in warning["reason"]


def test_partial_enforcement_is_told(post: Any, engine: Any) -> None:
    """What a lax request dropped is listed, counted in a header, and each choice says `partial`."""
    engine.use = SchemaUse("cd" * 32, "disk", 1.0, 2, (Finding("#", "not", "dropped"),), "partial")
    response = post(response_format=schema_format(SCHEMA, strict=False))
    assert [{"pointer": "#", "keyword": "not", "reason": "dropped"}] == response.json()["structured"]["warnings"]
    assert "1" == response.headers["x-schema-warnings"]
    assert "partial" == response.json()["choices"][0]["structured"]["enforced"]


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
    ],
)
def test_why_it_ended(post: Any, engine: Any, make_choice: Any, stop_reason: str, finish_reason: str) -> None:
    """The engine's reason is told in both vocabularies."""
    engine.answer = lambda index: make_choice(index, stop_reason=stop_reason, stop_sequence="x")
    choice = post().json()["choices"][0]
    assert (finish_reason, stop_reason, "x") == tuple(
        choice[key] for key in ("finish_reason", "stop_reason", "stop_sequence")
    )


def test_fingerprint_depends_on_the_model(post: Any) -> None:
    """The same model has the same fingerprint, another one another."""
    first, second, other = (post(model=name).json()["system_fingerprint"] for name in ("tiny", "tiny", "org/tiny"))
    assert first == second
    assert first != other


def test_numbers_without_bound(post: Any, engine: Any, make_choice: Any) -> None:
    """A number of any size is judged, and a failure of the judge would not cost the text."""
    engine.answer = lambda index: make_choice(index, ("1e9999999999999999999", "9" * 5000)[index])
    response = post(n=2, response_format=schema_format({"type": "number"}))
    assert 200 == response.status_code
    assert [True, True] == [choice["structured"]["valid"] for choice in response.json()["choices"]]
