"""A request's fields reach the engine, and its result reaches the client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from engine import SchemaUse
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
    options = {"on_limit": "truncate", "method": "mask", "diagnostics": False, "allow_refusal": False}
    options |= {"key_order": "declared", "report_closed_as": "length", "logprobs": "raw", "schema_in_prompt": False}
    assert 200 == post(response_format={"type": "json_object"}, structured_options=options).status_code


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
    assert [] == post(response_format=schema_format(SCHEMA), max_tokens=9).json()["structured"]["warnings"]


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
