"""The official SDK against a real server, by the rows of the contract's list of client calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

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


def test_prewarm(client: openai.OpenAI) -> None:
    """No tokens asked for: the schema is compiled, and the text is empty."""
    choice = complete(client, max_tokens=0).choices[0]
    assert ("", "length") == (choice.text, choice.finish_reason)


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
        ({"stream": True}, "unsupported_parameter", "stream"),
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
