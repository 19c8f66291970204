"""Schemas with valid and invalid documents, in the official suite's form, and cases from the field."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import pytest

from schemas_cache.errors import SchemaError
from schemas_cache.schema import SchemaOptions
from tests.schemas_cache.schema.documents import OPEN, accepts, grammar

ROOT = Path(__file__).parents[3]
FIELD_REPORTS = ROOT.parent / "shared" / "cases" / "field_reports.json"
GROUPS = [
    pytest.param(group, id=f"{path.stem}: {group['description']}")
    for path in sorted((ROOT / "tests" / "data" / "schemas").glob("*.json"))
    for group in json.loads(path.read_text(encoding="utf-8"))
]
LATER_KEYWORDS = {
    *("s-pattern-lookahead",),
}


@pytest.mark.parametrize("group", GROUPS)
def test_accepts_exactly_the_valid_documents(group: dict[str, Any]) -> None:
    """A document as `json.dumps` writes it is in the language exactly if it is valid."""
    rules = grammar(group["schema"])
    verdicts = {json.dumps(test["data"], ensure_ascii=False): test["valid"] for test in group["tests"]}
    assert verdicts == {text: accepts(rules, text) for text in verdicts}


@pytest.mark.parametrize("group", GROUPS)
def test_cases_agree_with_another_validator(group: dict[str, Any]) -> None:
    """The verdicts in the data are the standard's."""
    validator: Any = jsonschema.Draft202012Validator(group["schema"])
    if '"format"' in json.dumps(group["schema"]):  # `jsonschema` alone knows few of them
        validator = jsonschema_rs.Draft202012Validator(group["schema"], validate_formats=True)
    assert [test["valid"] for test in group["tests"]] == [validator.is_valid(test["data"]) for test in group["tests"]]


def _field_reports() -> list[Any]:
    if not FIELD_REPORTS.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason="../shared/cases/field_reports.json is not here"))]
    cases = json.loads(FIELD_REPORTS.read_text(encoding="utf-8"))
    return [pytest.param(case, id=case["id"]) for case in cases if case["kind"] == "schema"]


@pytest.mark.parametrize("case", _field_reports())
def test_field_report(case: dict[str, Any]) -> None:
    """Each case is right, or refused where its keywords are not enforced yet."""
    options = OPEN if case.get("assumes_open_objects") else SchemaOptions()
    if case["id"] in LATER_KEYWORDS:
        with pytest.raises(SchemaError, match=r"cannot be enforced|look-ahead"):
            grammar(case["schema"], options)
        return
    rules = grammar(case["schema"], options)
    rejected = [text["text"] if isinstance(text, dict) else text for text in case["reject"]]
    accepted = [text for text in case["accept"] if isinstance(text, str)]
    assert (accepted, []) == (
        [text for text in accepted if accepts(rules, text)],
        [text for text in rejected if accepts(rules, text)],
    )
