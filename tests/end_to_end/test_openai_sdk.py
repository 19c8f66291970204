"""The official SDK against a real server, by the rows of the contract's list of client calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
import openai
import pytest
from pydantic import BaseModel, Field

MODELS = ("katagami-char", "katagami-bpe")


class Entry(BaseModel):
    """A record like those that the shipped models were trained on."""

    id: Annotated[int, Field(ge=0, le=9999)]
    level: Literal["初級", "上級"]
    draft: bool


def response_format(schema: dict[str, Any] | bool) -> dict[str, Any]:
    """`response_format` for this schema."""
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


FORMAT = response_format(Entry.model_json_schema())


def complete(client: openai.OpenAI, **fields: Any) -> Any:
    """One completion; what the SDK has no argument for goes in `extra`."""
    extra = {"response_format": FORMAT} | fields.pop("extra", {})
    arguments: dict[str, Any] = {"model": "katagami-char", "prompt": "", "max_tokens": 64} | fields
    return client.completions.create(**arguments, extra_body=extra)


@pytest.mark.parametrize("model", MODELS)
def test_schema(client: openai.OpenAI, model: str) -> None:
    """Row 1: the text parses as the model, and the response proves that it was enforced."""
    answer = complete(client, model=model)
    choice = answer.choices[0]
    Entry.model_validate_json(choice.text)
    assert ("stop", "end_turn") == (choice.finish_reason, choice.stop_reason)
    assert {"enforced": "full", "complete": True, "valid": True, "closed_early": False} == choice.structured
    assert answer.structured["cache"] in ("memory", "disk", "miss")
    assert answer._request_id.startswith("req_")


def test_cache_tiers(start_server: Any, tmp_path: Path) -> None:
    """Row 2: the first call compiles, the second finds it in memory, the first after a restart on disk."""
    tiers = []
    for calls in (2, 2):
        with start_server(tmp_path) as server, openai.OpenAI(base_url=f"{server.url}/v1", api_key="local") as client:
            tiers += [complete(client).structured["cache"] for _ in range(calls)]
    assert ["miss", "memory", "disk", "memory"] == tiers


def test_budget_below_the_minimum(client: openai.OpenAI) -> None:
    """Row 3: the text is cut, says so, and a warning names the minimum."""
    answer = complete(client, max_tokens=3)
    choice = answer.choices[0]
    assert ("length", "max_tokens", False) == (
        choice.finish_reason,
        choice.stop_reason,
        choice.structured["complete"],
    )
    assert choice.structured["valid"] is None
    (warning,) = answer.structured["warnings"]
    assert str(answer.structured["minimum_tokens"]) in warning["reason"]


def test_budget_between_the_minimum_and_the_natural_length(caller: Any) -> None:
    """Row 4: closed in time by default, and marked; cut where the request wants it so."""

    def ask(**options: str) -> Any:
        extra = {"response_format": FORMAT, "structured_options": options}
        return caller.call(
            "completions.create", model="katagami-char", prompt="", temperature=0, max_tokens=budget, extra_body=extra
        )

    budget = 64
    natural = ask()
    budget = natural.usage.completion_tokens - 1
    closed, cut = ask(), ask(on_limit="truncate")
    assert natural.structured["minimum_tokens"] <= budget
    Entry.model_validate_json(closed.choices[0].text)
    assert ("length", "max_tokens") == (closed.choices[0].finish_reason, closed.choices[0].stop_reason)
    assert (True, True) == tuple(closed.choices[0].structured[key] for key in ("closed_early", "valid"))
    assert ("length", False, False) == (
        cut.choices[0].finish_reason,
        cut.choices[0].structured["complete"],
        cut.choices[0].structured["closed_early"],
    )
    assert "stop" == ask(report_closed_as="stop").choices[0].finish_reason


def test_refusing_a_budget_below_the_minimum(caller: Any) -> None:
    """Row 5: an error where the request asks for one."""
    extra = {"response_format": FORMAT, "structured_options": {"on_limit": "error"}}
    asked = {"model": "katagami-char", "prompt": "", "max_tokens": 3, "extra_body": extra}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            caller.call("completions.create", **asked, stream=stream)
        assert ("max_tokens_below_minimum", "max_tokens") == (caught.value.code, caught.value.param)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("form", [FORMAT, {"type": "text"}])
def test_log_probabilities(client: openai.OpenAI, model: str, form: dict[str, Any]) -> None:
    """Row 7: parallel lists of finite numbers, whose tokens spell the text; also of what the mask forces."""
    choice = complete(client, model=model, logprobs=2, extra={"response_format": form}).choices[0]
    logprobs = choice.logprobs
    sizes = {len(logprobs.tokens), len(logprobs.token_logprobs), len(logprobs.top_logprobs), len(logprobs.text_offset)}
    assert 1 == len(sizes)
    assert all(-9999 <= value <= 0 for value in logprobs.token_logprobs)
    assert all(2 <= len(known) <= 3 for known in logprobs.top_logprobs)
    spelled = [text for text in logprobs.tokens if not text.startswith("bytes:")]
    assert all(choice.text[at:].startswith(text) for at, text in zip(logprobs.text_offset, spelled, strict=False))


def test_masked_log_probabilities(client: openai.OpenAI) -> None:
    """Of the distribution under the mask: what is forced is certain, and what is forbidden is no alternative."""
    extra = {"response_format": response_format({"const": 7}), "structured_options": {"logprobs": "masked"}}
    logprobs = complete(client, logprobs=5, extra=extra).choices[0].logprobs
    assert ([0.0], [{"7": 0.0}]) == (logprobs.token_logprobs, logprobs.top_logprobs)


def test_scoring_a_text(client: openai.OpenAI) -> None:
    """The prompt's own log-probabilities, without a word added."""
    free = {"response_format": {"type": "text"}}
    scored = complete(client, prompt='"id"', echo=True, logprobs=0, max_tokens=0, extra=free).choices[0]
    assert ('"id"', ['"', "i", "d", '"'], [0, 1, 2, 3]) == (
        scored.text,
        scored.logprobs.tokens,
        scored.logprobs.text_offset,
    )
    assert scored.logprobs.token_logprobs[0] is None
    assert all(value < 0 for value in scored.logprobs.token_logprobs[1:])


def test_bias_and_penalties(client: openai.OpenAI) -> None:
    """A bias forbids tokens of free text, and cannot lift one that the mask forbids."""
    free = {"response_format": {"type": "text"}}
    plain = complete(client, temperature=0, logprobs=0, max_tokens=1, extra=free).choices[0]
    tokens = httpx.post(f"{client.base_url.copy_with(path='/tokenize')}", json={"prompt": plain.text}).json()["tokens"]
    other = complete(client, temperature=0, max_tokens=1, logit_bias={str(tokens[0]): -100}, extra=free).choices[0]
    assert plain.text != other.text
    lifted = complete(
        client, logit_bias={str(tokens[0]): 100}, extra={"response_format": response_format({"const": 7})}
    )
    assert "7" == lifted.choices[0].text


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "extra",
    [
        {"response_format": FORMAT},
        {"response_format": {"type": "regex", "regex": "(é|日本|a)*x"}},
        {"response_format": {"type": "text"}},
        {"response_format": FORMAT, "structured_options": {"on_limit": "truncate"}},
    ],
)
@pytest.mark.parametrize("stop", [None, ['", "d', "日"]])
def test_stream_equals_plain(caller: Any, model: str, extra: dict[str, Any], stop: Any) -> None:
    """Row 8: at temperature 0 the joined pieces are the text, with the same end; the last chunk has the usage."""
    asked = {"model": model, "prompt": "id", "max_tokens": 30, "temperature": 0, "stop": stop, "extra_body": extra}
    plain = caller.call("completions.create", **asked)
    chunks = caller.call("completions.create", **asked, stream=True, stream_options={"include_usage": True})
    *pieces, end, last = chunks
    assert plain.choices[0].text == "".join(chunk.choices[0].text for chunk in pieces)
    for name in ("finish_reason", "stop_reason", "stop_sequence", "structured"):
        assert getattr(plain.choices[0], name) == getattr(end.choices[0], name)
    assert ([], plain.usage) == (last.choices, last.usage)
    assert {None} == {chunk.usage for chunk in [*pieces, end]}
    assert 1 == len({chunk.id for chunk in chunks})
    assert "\ufffd" not in "".join(chunk.choices[0].text for chunk in pieces)


def test_streamed_log_probabilities(client: openai.OpenAI) -> None:
    """Joined they are those of the plain answer, offsets too, the prompt's included."""
    for extra, echo in (({"response_format": FORMAT}, False), ({"response_format": {"type": "text"}}, True)):
        asked = {"prompt": "id", "logprobs": 1, "temperature": 0, "max_tokens": 20, "echo": echo, "extra": extra}
        plain = complete(client, **asked).choices[0]
        chunks = [chunk.choices[0] for chunk in complete(client, **asked, stream=True)]
        assert plain.text == "".join(chunk.text for chunk in chunks)
        for name in ("tokens", "text_offset"):
            known = [item for chunk in chunks if chunk.logprobs for item in getattr(chunk.logprobs, name)]
            assert getattr(plain.logprobs, name) == known


def test_prewarm(client: openai.OpenAI) -> None:
    """No tokens asked for: the schema is compiled, and the text is empty."""
    choice = complete(client, max_tokens=0).choices[0]
    assert ("", "length") == (choice.text, choice.finish_reason)


@pytest.mark.parametrize(("extra", "echo"), [({}, False), ({"response_format": {"type": "text"}}, True)])
def test_prewarm_in_pieces(client: openai.OpenAI, extra: dict[str, Any], echo: bool) -> None:
    """Streamed, each choice has its ending all the same."""
    chunks = list(complete(client, prompt=["a", "b"], max_tokens=0, stream=True, echo=echo, extra=extra))
    ends = [chunk.choices[0] for chunk in chunks if chunk.choices[0].finish_reason]
    assert [(0, "length", "max_tokens"), (1, "length", "max_tokens")] == [
        (choice.index, choice.finish_reason, choice.stop_reason) for choice in ends
    ]
    assert ("ab" if echo else "") == "".join(chunk.choices[0].text for chunk in chunks)


def test_prompts_and_choices(client: openai.OpenAI) -> None:
    """Row 6: two prompts with two choices each come back in order; token ids are a prompt too."""
    answer = complete(client, prompt=["a", "b"], n=2)
    assert [0, 1, 2, 3] == [choice.index for choice in answer.choices]
    for choice in answer.choices:
        Entry.model_validate_json(choice.text)
    assert 3 == complete(client, prompt=[1, 2, 3]).usage.prompt_tokens


def test_raw_response_headers(client: openai.OpenAI) -> None:
    """Row 9: the headers are readable through the SDK."""
    arguments: dict[str, Any] = {"model": "katagami-char", "prompt": "", "max_tokens": 64}
    raw = client.completions.with_raw_response.create(**arguments, extra_body={"response_format": FORMAT})
    assert raw.headers["x-request-id"] == raw.headers["request-id"]
    assert raw.parse().structured["cache"] == raw.headers["x-schema-cache"]
    assert {"queue", "compile", "prefill"} == {part.split(";")[0] for part in raw.headers["server-timing"].split(", ")}
    with client.completions.with_streaming_response.create(**arguments) as response:
        assert response.headers["x-request-id"].startswith("req_")
    streamed = client.completions.with_raw_response.create(
        **arguments, stream=True, extra_body={"response_format": FORMAT}
    )
    assert streamed.headers["x-request-id"] == streamed.headers["request-id"]
    assert ("memory", raw.headers["x-schema-hash"]) == (
        streamed.headers["x-schema-cache"],
        streamed.headers["x-schema-hash"],
    )
    assert streamed.headers["server-timing"].startswith("compile;dur=")
    list(streamed.parse())


def test_models(client: openai.OpenAI) -> None:
    """Row 17: both shipped models are listed and retrieved; another is not found."""
    assert list(MODELS) == [model.id for model in client.models.list()]
    assert "katagami-bpe" == client.models.retrieve("katagami-bpe").id
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("x/y")
    assert "model_not_found" == caught.value.code


def test_unsupported_keyword(client: openai.OpenAI) -> None:
    """Row 19: a keyword that cannot be enforced is refused by name and place."""
    schema = {"type": "object", "properties": {"a": {"$dynamicRef": "#node"}}}
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, extra={"response_format": response_format(schema)})
    error = caught.value
    assert ("invalid_json_schema", "response_format") == (error.code, error.param)
    assert "#/properties/a" == error.body["errors"][0]["pointer"]  # type: ignore[index]
    assert "$dynamicRef" in str(error)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"temperature": 9}, "invalid_value", "temperature"),
        ({"extra": {"guided_json": {}}}, "unknown_parameter", "guided_json"),
        ({"extra": {"response_format": {"type": "json_schema", "schema": {}}}}, "unknown_parameter", None),
        ({"suffix": "x"}, "unsupported_parameter", "suffix"),
        ({"extra": {"tools": []}}, "unknown_parameter", "tools"),
        ({"extra": {"response_format": {"type": "regex", "regex": "(?=a)"}}}, "invalid_json_schema", "response_format"),
        ({"extra": {"response_format": {"type": "regex", "regex": "("}}}, "invalid_json_schema", "response_format"),
        ({"extra": {"response_format": response_format({"pattern": "("})}}, "invalid_json_schema", "response_format"),
        ({"extra": {"response_format": response_format({"type": 7})}}, "invalid_json_schema", "response_format"),
        ({"extra": {"response_format": response_format(False)}}, "unsatisfiable_schema", "response_format"),
    ],
)
def test_bad_requests(client: openai.OpenAI, fields: dict[str, Any], code: str, param: str | None) -> None:
    """Row 21: a bad request is `BadRequestError` with its code and field, and the next one is served."""
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, **fields)
    assert code == caught.value.code
    assert param is None or param == caught.value.param
    assert complete(client).choices[0].structured["valid"]


def test_formats_beside_schemas(client: openai.OpenAI) -> None:
    """Any object, a regular expression and choices are enforced and judged too."""
    formats = [
        {"type": "regex", "regex": "[0-9]{4}-[0-9]{2}"},
        {"type": "choice", "choice": ["初級", "上級"]},
    ]
    for given in formats:
        choice = complete(client, extra={"response_format": given}).choices[0]
        assert (True, True) == (choice.structured["complete"], choice.structured["valid"])
    free = complete(client, max_tokens=400, extra={"response_format": {"type": "json_object"}}).choices[0]
    assert free.structured["valid"] is (True if free.structured["complete"] else None)


def test_free_text(client: openai.OpenAI) -> None:
    """Without a format nothing is enforced, and nothing is claimed."""
    answer = client.completions.create(model="katagami-char", prompt="", max_tokens=8)
    assert answer.structured is None  # type: ignore[attr-defined]


def test_seed(client: openai.OpenAI) -> None:
    """The same seed gives the same text, also a negative one; another seed another text."""
    form = response_format({"type": "string", "minLength": 12, "maxLength": 12})
    texts = [complete(client, seed=seed, extra={"response_format": form}).choices[0].text for seed in (-7, -7, 8)]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]
    assert 12 == len(json.loads(texts[0]))


def test_options_shape_the_text(client: openai.OpenAI) -> None:
    """Whitespace is as asked for."""
    extra = {"structured_options": {"whitespace": "compact"}}
    assert " " not in complete(client, extra=extra).choices[0].text
    assert '", "' not in complete(client, extra=extra).choices[0].text
