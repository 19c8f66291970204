"""The schema routes: reports, compiling ahead, and what is in the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fastapi.testclient import TestClient

ARTICLE = json.loads((Path(__file__).parents[2] / "docs" / "article.json").read_text("utf-8"))
STATES = {"object", "hash", "status", "cache", "compile_ms", "states", "table_bytes", "minimum_tokens", "warnings"}


def validate(client: TestClient, schema: Any, **fields: Any) -> dict[str, Any]:
    """The report on a schema; always 200."""
    response = client.post("/v1/schemas/validate", json={"schema": schema} | fields)
    assert 200 == response.status_code, response.text
    report: dict[str, Any] = response.json()
    assert "schema.report" == report["object"]
    return report


SCHEMAS: list[Any] = [
    ARTICLE,
    True,
    {"type": "string", "pattern": "^[a-z]{2}-[0-9]+$", "minLength": 6},
    {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
    {"type": "object", "properties": {"x": {"enum": ["日本", 'é"\\']}}, "required": ["x"]},
    {"type": "integer", "minimum": 100, "multipleOf": 7},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_shortest_example(real: TestClient, schema: Any) -> None:
    """The example is a document of the schema, in the blanks that were asked for."""
    report = validate(real, schema, whitespace="compact")
    jsonschema.validate(json.loads(report["shortest_example"]), schema, jsonschema.Draft202012Validator)
    assert (True, []) == (report["supported"], report["errors"])
    assert report["shortest_example"] == json.dumps(
        json.loads(report["shortest_example"]), ensure_ascii=False, separators=(",", ":")
    )
    assert 0 < report["minimum_tokens"] <= len(report["shortest_example"].encode())
    assert 0 < report["estimated_states"]


def test_report_knows_the_hash(real: TestClient) -> None:
    """The hash is that of the completions route; annotations do not change it."""
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"const": 1}}}
    body = {"model": "katagami-char", "prompt": "", "response_format": form}
    expected = real.post("/v1/completions", json=body).headers["x-schema-hash"]
    assert expected == validate(real, {"const": 1, "title": "one"})["hash"]


def test_report_on_what_cannot_be_enforced(real: TestClient) -> None:
    """All findings at once, each with its place; there is no example of it."""
    report = validate(real, {"properties": {"a": {"$dynamicRef": "#x"}, "b": {"pattern": "(?=a)"}}})
    assert ["#/properties/a", "#/properties/b"] == [error["pointer"] for error in report["errors"]]
    nothing = {"supported": False, "minimum_tokens": None, "shortest_example": None, "estimated_states": None}
    assert nothing == {key: report[key] for key in nothing}


@pytest.mark.parametrize("schema", [False, {"type": 7}, {"type": "string", "minLength": 10**9}, {"$ref": "#"}])
def test_report_on_other_faults(real: TestClient, schema: Any) -> None:
    """What is malformed, unsatisfiable or too large is a report too."""
    report = validate(real, schema)
    assert report["supported"] is False
    assert report["errors"][0]["reason"]


def test_report_on_what_is_dropped(real: TestClient) -> None:
    """Not strict: what would be dropped is a warning."""
    schema = {"type": "object", "properties": {"a": {"not": {"multipleOf": 3}}}}
    assert validate(real, schema)["supported"] is False
    report = validate(real, schema, strict=False)
    assert (True, "#/properties/a") == (report["supported"], report["warnings"][0]["pointer"])


def test_report_keeps_nothing(real: TestClient) -> None:
    """A schema that was only reported on is not in the cache."""
    schema_hash = validate(real, {"const": "only reported on"})["hash"]
    assert 404 == real.get(f"/v1/schemas/{schema_hash}").status_code


@pytest.mark.parametrize("path", ["/v1/schemas", "/v1/schemas/validate"])
@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "missing_required_parameter", "schema"),
        ({"schema": []}, "invalid_type", "schema"),
        ({"schema": {}, "strict": "yes"}, "invalid_type", "strict"),
        ({"schema": {}, "whitespace": "none"}, "invalid_value", "whitespace"),
        ({"schema": {}, "nosuch": 1}, "unknown_parameter", "nosuch"),
        ({"schema": {}, "model": "nosuch"}, "model_not_found", "model"),
    ],
)
def test_bad_bodies(real: TestClient, path: str, body: dict[str, Any], code: str, param: str) -> None:
    """Field rules are told as on every route."""
    error = real.post(path, json=body).json()["error"]
    assert (code, param) == (error["code"], error["param"])


def test_compiling_ahead(real: TestClient) -> None:
    """The first time it is compiled, then it is known, and the first real request finds it in memory."""
    schema = {"const": "compiled ahead"}
    first, second = (real.post("/v1/schemas", json={"schema": schema}).json() for _ in range(2))
    assert STATES == set(first)
    assert ("schema", "ready", "miss") == (first["object"], first["status"], first["cache"])
    assert "memory" == second["cache"]
    assert 0 < first["states"]
    assert 0 < first["table_bytes"]
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    body = {"model": "katagami-char", "prompt": "", "response_format": form}
    assert "memory" == real.post("/v1/completions", json=body).json()["structured"]["cache"]


def test_compiling_ahead_what_cannot_be(real: TestClient) -> None:
    """Errors are those of all routes; the field at fault is the schema."""
    for wait in (True, False):
        response = real.post("/v1/schemas", json={"schema": {"$dynamicRef": "#x"}, "wait": wait})
        error = response.json()["error"]
        assert (400, "invalid_json_schema", "schema") == (response.status_code, error["code"], error["param"])
        assert "$dynamicRef" == error["errors"][0]["keyword"]


def test_list_retrieve_delete(real: TestClient) -> None:
    """The newest is the first; a deleted one is gone."""
    hashes = [real.post("/v1/schemas", json={"schema": {"const": n}}).json()["hash"] for n in ("old", "new")]
    listed = real.get("/v1/schemas").json()
    assert hashes[::-1] == [schema["hash"] for schema in listed["data"]][:2]
    assert ("list", False) == (listed["object"], listed["has_more"])
    one = real.get(f"/v1/schemas/{hashes[0]}").json()
    assert STATES == set(one)
    assert ("ready", hashes[0]) == (one["status"], one["hash"])
    assert {"hash": hashes[0], "deleted": True} == real.delete(f"/v1/schemas/{hashes[0]}").json()
    for response in (real.get(f"/v1/schemas/{hashes[0]}"), real.delete(f"/v1/schemas/{hashes[0]}")):
        assert (404, "not_found") == (response.status_code, response.json()["error"]["code"])
    assert hashes[0] not in [schema["hash"] for schema in real.get("/v1/schemas").json()["data"]]


def test_not_waiting(client: TestClient, engine: Any) -> None:
    """A compile that takes long goes on behind; it is listed meanwhile, and asking again does not begin it anew."""
    engine.hangs = True
    begun = client.post("/v1/schemas", json={"schema": {"const": 1}, "wait": False}).json()
    again = client.post("/v1/schemas", json={"schema": {"const": 1}, "wait": False}).json()
    assert STATES == set(begun)
    assert begun == again
    assert "compiling" == begun["status"]
    assert begun == client.get(f"/v1/schemas/{begun['hash']}").json()
    assert [begun] == client.get("/v1/schemas").json()["data"]
    assert 1 == len(engine.requests)


def test_not_waiting_for_several_tables(client: TestClient, engine: Any) -> None:
    """A schema is compiled for each model and each set of options; it is listed once."""
    engine.hangs = True
    for fields in ({}, {"model": "org/tiny"}, {"whitespace": "compact"}, {"user": "a"}):
        answer = client.post("/v1/schemas", json={"schema": {"const": 1}, "wait": False} | fields).json()
        assert "compiling" == answer["status"]
    assert ["tiny", "org/tiny", "tiny"] == [model for model, _ in engine.requests]
    assert 1 == len(client.get("/v1/schemas").json()["data"])


def test_not_waiting_for_what_is_there(client: TestClient, engine: Any) -> None:
    """Who does not want to wait need not, where it is ready."""
    answer = client.post("/v1/schemas", json={"schema": {"const": 1}, "wait": False}).json()
    assert ("ready", "miss", 9) == (answer["status"], answer["cache"], answer["minimum_tokens"])
    assert (0, ((),)) == (engine.requests[0][1].max_tokens, engine.requests[0][1].prompts)
