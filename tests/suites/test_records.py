"""Records of a model: SmolLM2's as a suite, those of a tiny random one in every run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.bench.serve.server import own_server
from engine.models.models_folder import default_home, find_model
from tests.engine.llama.slow import Sizes
from tests.engine.llama.tiny import make_weights, write_gguf
from tests.suites import records

NAME = "smollm2-135m-instruct"
SIZES = Sizes(layers=2, context=2048)
FEW, MANY = 3, 200


def check(reports: list[records.Report], count: int) -> None:
    """Every schema and temperature came to as many records, all of them valid."""
    records.print_reports(reports)
    assert [] == [(report.kind, fault) for report in reports for fault in report.faults]
    assert {(kind, temperature): count for kind in records.KINDS for temperature in records.TEMPERATURES} == {
        (report.kind, report.temperature): len(report.answers) for report in reports
    }


def test_records_of_a_random_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Llama model from a GGUF file that knows nothing: whatever it wants, the documents are valid."""
    monkeypatch.setenv("KATAGAMI_HOME", str(tmp_path / "home"))
    path = write_gguf(tmp_path / "random.gguf", SIZES, make_weights(SIZES))
    with own_server(str(path)) as url:
        check(asyncio.run(records.ask_all(url, FEW)), FEW)


@pytest.mark.suite
@pytest.mark.timeout(7200)
def test_records_of_smollm2() -> None:
    """200 of each of five schemas, greedy and drawn."""
    if find_model(default_home(), NAME) is None:
        pytest.skip(f"no {NAME} on this machine: `katagami models pull {NAME}` fetches it")
    with own_server(NAME) as url:
        check(asyncio.run(records.ask_all(url, MANY)), MANY)
