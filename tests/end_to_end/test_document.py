"""Whatever the served OpenAPI document allows, and what it does not, gets an answer that it documents: schemathesis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig, SchemathesisConfig

from app.openapi import build_document

load_all_checks()
EXAMPLES = 15  # for each operation; several hundred find no more
MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
CONFIG = SchemathesisConfig(
    projects=ProjectsConfig(default=ProjectConfig(generation=GenerationConfig(modes=MODES, allow_x00=True)))
)
SCHEMA = schemathesis.openapi.from_dict(build_document(["katagami-char"]), config=CONFIG)
NAMES = (
    *("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance"),
    *("response_schema_conformance", "negative_data_rejection", "unsupported_method"),
)


@pytest.fixture(scope="module")
def url(start_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that gives no request more than a second, so that long texts do not make the test long."""
    flags = ("--model", "katagami-char", "--request-timeout", "1")
    home: Path = tmp_path_factory.mktemp("home")
    with start_server(home, *flags) as server:
        yield server.url


@SCHEMA.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_documented(case: schemathesis.Case, url: str) -> None:
    """No failure of the server, no status, type, header or body that the document does not know."""
    case.call_and_validate(base_url=url, checks=CHECKS.get_by_names(NAMES), timeout=60)
