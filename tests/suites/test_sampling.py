"""Random schemas: 20,000 outputs as a suite, a sample in every run."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.suites.judging import Verdict
from tests.suites.random_schemas import random_schema
from tests.suites.random_values import words
from tests.suites.sampling import cases, judge_all, report, totals
from tests.suites.validators import Ruling, Validators

SCHEMAS, SAMPLE = 2_200, 130
LEAST_OUTPUTS = 20_000
LEAST_COMPILED = 0.8
KEYWORDS = """
    $ref additionalProperties allOf anyOf const contains dependentRequired dependentSchemas else enum exclusiveMaximum
    exclusiveMinimum format if items maxContains maxItems maxLength maxProperties maximum minContains minItems minLength
    minProperties minimum multipleOf not oneOf pattern patternProperties prefixItems properties propertyNames required
    then type unevaluatedItems unevaluatedProperties uniqueItems
"""


def check_all(verdicts: list[Verdict], folder: Path) -> None:
    """Nothing too loose, too strict without a rule, slow or broken; the validators agree; all was looked at."""
    report(verdicts, folder)
    assert [] == [verdict.id for verdict in verdicts if verdict.outcome not in ("right", "refused")]
    figures = totals(verdicts)
    assert figures["values about which the validators differ"] == 0
    assert figures["compiled"] + figures["unsatisfiable"] >= LEAST_COMPILED * len(verdicts)
    assert all(figures[name] for name in ("masks by brute force", "texts by the slow matcher", "valid values accepted"))


def test_a_sample_of_random_schemas(tmp_path: Path) -> None:
    """The first hundred or so: outputs, values and referees."""
    check_all(judge_all(cases(SAMPLE)), tmp_path)


@pytest.mark.suite
@pytest.mark.timeout(3600)
def test_twenty_thousand_outputs(tmp_path: Path) -> None:
    """All outputs valid by two validators, all valid values accepted or their refusal explained, all referees agree."""
    verdicts = judge_all(cases(SCHEMAS))
    check_all(verdicts, tmp_path)
    assert sum(verdict.documents for verdict in verdicts) >= LEAST_OUTPUTS


def test_the_schemas_use_every_keyword() -> None:
    """In a hundred schemas each keyword comes up, and equal seeds give equal schemas."""
    schemas = [random_schema(Random(seed)) for seed in range(100)]
    assert set() == set(KEYWORDS.split()) - {word for word, _ in words(schemas)}
    assert schemas == [random_schema(Random(seed)) for seed in range(100)]


@pytest.mark.parametrize(
    ("ruling", "schema", "text"),
    [
        (Ruling(True), {"multipleOf": 0.5}, "1.5"),
        (Ruling(False), {"multipleOf": 0.5}, "1.25"),
        (Ruling(True, rounded=True), {"exclusiveMaximum": 0.3}, "0.29999999999999999999"),
        (Ruling(False, rounded=True), {"maximum": 0.3}, "0.30000000000000000001"),
        (Ruling(True), {"type": "integer"}, "1.0"),
        (Ruling(False), {"pattern": "^a$"}, '"a\\n"'),
        (Ruling(False), {"format": "email"}, '"a@"'),
        (Ruling(True), {"format": "email"}, "1"),
    ],
)
def test_rulings(ruling: Ruling, schema: object, text: str) -> None:
    """Numbers are what is written; patterns and formats what their standards say."""
    assert ruling == Validators(schema).rule(text)
