"""What the pages in docs/ claim about this project: schemas are compiled, names are looked up."""

from __future__ import annotations

import json
import random
import re
from itertools import chain
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from app.errors import TABLE
from app.openapi.answers import ANSWERS
from app.openapi.document import build_document
from app.protocol.structured import StructuredOptions
from app.settings import Settings
from schemas_cache import CompiledSchema, SchemaError, Vocabulary, compile_schema
from schemas_cache.limits import COMPILE_TIMEOUT_S

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BYTES = Vocabulary([*(bytes([byte]) for byte in range(256)), b""], [256])
SCHEMA_ERRORS: tuple[type[SchemaError], ...] = (SchemaError, *SchemaError.__subclasses__())
CODES = {error.code for error in SCHEMA_ERRORS} | {"unknown_parameter"}
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def rows(page: str, head: str) -> list[list[str]]:
    """Cells of the table whose head begins with this."""
    lines = (DOCS / page).read_text("utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {head} |"))
    body = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        body.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return body


SCHEMAS = rows("limits.md", "in the vendor's documentation")
ENFORCED = [json.loads(row[3].strip("| `")) for row in SCHEMAS if row[2] == "enforced"]
REFUSED = [json.loads(row[3].strip("| `")) for row in SCHEMAS if row[2].startswith("refused by name")]


def walked(compiled: CompiledSchema, draws: random.Random) -> str:
    """A text drawn under the masks, each allowed byte alike; a long one is ended by the shortest way."""
    matcher, data = compiled.matcher(), bytearray()
    while not matcher.finished and len(data) < 200:
        mask = matcher.mask()
        allowed = [token for token in range(257) if mask[token // 32] >> (token % 32) & 1]
        token = draws.choice(allowed)
        if token == 256:
            return data.decode()
        matcher.advance(token)
        data += BYTES.token_bytes[token]
    return bytes(data + matcher.shortest()).decode()


def test_each_row_says_what_becomes_of_its_schema() -> None:
    """Nothing but enforced or refused by name."""
    assert len(SCHEMAS) == len(ENFORCED) + len(REFUSED) == 9


@pytest.mark.parametrize("schema", ENFORCED, ids=json.dumps)
def test_enforced_schemas_are_enforced(schema: dict[str, Any]) -> None:
    """In full, without a warning; whatever the masks let through satisfies the schema."""
    compiled, draws = compile_schema(schema, BYTES), random.Random(1)
    assert ("full", ()) == (compiled.enforced, compiled.warnings)
    validator = jsonschema_rs.validator_for(schema)
    texts = [walked(compiled, draws) for _ in range(40)]
    assert [] == [text for text in texts if not validator.is_valid(json.loads(text))]
    assert len(set(texts)) > 1 or "const" in schema


def test_case_is_kept() -> None:
    """Values that differ in case only are three values, and each of them is written."""
    compiled, draws = compile_schema({"enum": ["Yes", "yes", "YES"]}, BYTES), random.Random(1)
    assert {'"Yes"', '"yes"', '"YES"'} == {walked(compiled, draws) for _ in range(60)}


@pytest.mark.parametrize("schema", REFUSED, ids=json.dumps)
def test_refused_schemas_are_refused_by_name(schema: dict[str, Any]) -> None:
    """With a finding that says where and why; a limit is told with its figure."""
    with pytest.raises(SchemaError) as caught:
        compile_schema(schema, BYTES)
    finding = caught.value.findings[0]
    assert finding.reason
    assert ("fetched" in str(finding)) == ("$ref" in schema)
    assert (re.search(r"\d+ bytes, and the limit is \d+", str(finding)) is None) == ("$ref" in schema)


def test_keys_come_in_the_order_of_properties() -> None:
    """As declared by default; in every order where that is asked for."""
    schema = {"type": "object", "properties": {"b": {"const": 1}, "a": {"const": 2}}, "required": ["a", "b"]}
    draws = random.Random(1)
    declared, free = (compile_schema(schema, BYTES, key_order=order) for order in ("declared", "any"))
    assert {'{"b": 1, "a": 2}'} == {walked(declared, draws) for _ in range(20)}
    assert {'{"b": 1, "a": 2}', '{"a": 2, "b": 1}'} == {walked(free, draws) for _ in range(40)}


def test_no_whitespace_mode_allows_blanks_without_bound() -> None:
    """Thirty blanks behind a colon are too many everywhere."""
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    for mode in ("spaced", "compact", "flexible", "pretty"):
        matcher = compile_schema(schema, BYTES, whitespace=mode).matcher()
        blanks = [b'{"a":' + b" " * count for count in range(30)]
        assert not all(matcher.allows_bytes(data) for data in blanks)


def test_a_compile_may_take_a_minute_unless_the_server_says_otherwise() -> None:
    """Both defaults are the page's figure."""
    assert 60 == COMPILE_TIMEOUT_S == Settings().compile_timeout_s
    assert "60 s unless the server is set otherwise" in (DOCS / "limits.md").read_text("utf-8")


@pytest.mark.parametrize("page", ["limits.md", "troubleshooting.md"])
def test_options_on_the_pages_exist(page: str) -> None:
    """`name: "value"` in backticks is a member of `structured_options`, and the value is one that it takes."""
    text = (DOCS / page).read_text("utf-8")
    used = re.findall(r'`(\w+): "(\w+)"`', text)
    assert used
    for name, value in used:
        StructuredOptions.model_validate({name: value})


@pytest.mark.parametrize("page", ["limits.md", "troubleshooting.md"])
def test_names_on_the_pages_exist(page: str) -> None:
    """Names with an underscore in backticks are error codes, fields of requests or members of answers."""
    text = (DOCS / page).read_text("utf-8")
    names = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text))
    assert names
    known = {answer.code for answer in TABLE.values()} | CODES | words_of(ANSWERS) | words_of(build_document(("m",)))
    assert set() == names - known


def words_of(value: object) -> set[str]:
    """All keys and texts in a JSON value."""
    if isinstance(value, dict):
        return set(map(str, value)).union(*map(words_of, value.values()))
    if isinstance(value, list | tuple):
        return set(chain.from_iterable(map(words_of, value)))
    return {value} if isinstance(value, str) else set()


@pytest.mark.parametrize("page", ["article.md", "limits.md", "troubleshooting.md"])
def test_links_lead_somewhere(page: str) -> None:
    """Files are there, and have the headings that are linked to."""
    for target, anchor in LINK.findall((DOCS / page).read_text("utf-8")):
        path = DOCS / (target or page)
        assert path.exists(), target
        if anchor:
            headings = HEADING.findall(path.read_text("utf-8"))
            assert anchor in [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", ["../README.md", "limits.md", "troubleshooting.md", "article.md"])
def test_readers_are_told_that_values_are_not_guaranteed(page: str) -> None:
    """Where people read of the guarantee they read of its end."""
    text = " ".join((DOCS / page).read_text("utf-8").split())
    assert re.search(r"not guarantee|not promise is the values|not keep its values|are not guaranteed", text)
