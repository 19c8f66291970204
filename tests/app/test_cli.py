"""The command line: what it prints, and how it says what is wrong."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from app.cli import train
from app.version import VERSION
from tests.app.conftest import Run

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["id"]}


@pytest.fixture
def schema_file(tmp_path: Path) -> str:
    """A file with a small schema."""
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA), "utf-8")
    return str(path)


@pytest.mark.parametrize("command", ["serve", "compile", "generate", "train"])
def test_help_teaches(katagami: Run, command: str) -> None:
    """Each command's help has a line that can be copied."""
    status, out, _ = katagami(command, "--help")
    assert 0 == status
    assert re.search(rf"^ *(echo .*\| )?katagami {command} ", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["compile"], "--regex"),
        (["compile", "/nowhere/schema.json"], "/nowhere/schema.json: No such file"),
        (["compile", "--regex", "(?=a)"], "look-ahead"),
        (["compile", "--regex", "("], "("),
        (["compile", "--regex", "a", "--vocabulary", "nosuch"], "katagami-char"),
        (["compile", "--regex", "a", "--vocabulary", "/nowhere/tokenizer.json"], "/nowhere/tokenizer.json"),
        (["compile", "--regex", "a", "--stage", "grammar", "--dot"], "--dot"),
        (["compile", "--regex", "a", "--dot"], "--stage report is text; add --stage nfa, dfa or min"),
        (["generate", "--regex", "a", "--model", "nosuch"], "katagami-char"),
        (["generate", "--regex", "a", "--schema", "-"], "not both"),
        (["serve", "--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
        (["serve", "--port", "99999"], "--port: must be at most 65535, not 99999"),
        (["serve", "--port", "-1"], "--port: must be at least 0, not -1"),
        (["serve", "--max-running", "0"], "--max-running: must be at least 1, not 0"),
        (["serve", "--compile-timeout", "0"], "--compile-timeout: must be greater than 0, not 0"),
        (["serve", "--grace", "inf"], "--grace: must be a finite number"),
        (["serve", "--cors-origin", "http://page/"], "--cors-origin: must be * or scheme://host:port in small letters"),
    ],
)
def test_errors_are_one_line(katagami: Run, arguments: list[str], reason: str) -> None:
    """What is wrong is one line on standard error, and the exit code is 2."""
    status, out, err = katagami(*arguments)
    assert (2, "", 1) == (status, out, err.count("\n"))
    assert err.startswith("katagami: ")
    assert reason in err


@pytest.mark.parametrize("text", ["{", "[]", "5", "[" * 100_000, '{"a": 1, "a": 2}', '{"minimum": NaN}', "\ufeff{}"])
def test_files_that_are_no_schema(katagami: Run, tmp_path: Path, text: str) -> None:
    """A file that is not JSON, or no schema, is told by its name."""
    path = tmp_path / "bad.json"
    path.write_text(text, "utf-8")
    status, _, err = katagami("compile", str(path))
    assert (2, 1) == (status, err.count("\n"))
    assert "bad.json" in err


def test_bytes_that_are_no_text(katagami: Run, tmp_path: Path) -> None:
    """A file that is not UTF-8 is told by its name and the byte at fault."""
    path = tmp_path / "bad.json"
    path.write_bytes(b'{"title": "caf\xe9"}')
    status, _, err = katagami("generate", "--schema", str(path))
    assert (2, 1) == (status, err.count("\n"))
    assert "bad.json is not UTF-8: byte 0xe9 at position 14" in err


def test_every_finding_is_told(katagami: Run, tmp_path: Path) -> None:
    """A schema that cannot be enforced is told with all its findings, a line each, the place first."""
    path = tmp_path / "schema.json"
    path.write_text('{"properties": {"a": {"$dynamicRef": "#a"}, "b": {"$dynamicRef": "#b"}}}', "utf-8")
    for arguments in (["compile", str(path)], ["generate", "--schema", str(path)]):
        status, out, err = katagami(*arguments)
        first, second = err.splitlines()
        assert (2, "") == (status, out)
        assert first.startswith("katagami: #/properties/a/$dynamicRef: ")
        assert second.startswith("katagami: #/properties/b/$dynamicRef: ")


def test_not_strict(katagami: Run, tmp_path: Path) -> None:
    """With `--no-strict` what cannot be enforced is a warning on standard error, and the rest is enforced."""
    path = tmp_path / "schema.json"
    path.write_text('{"type": "string", "maxLength": 2, "pattern": "(?=a)b"}', "utf-8")
    assert 2 == katagami("generate", "--schema", str(path), "--strict")[0]
    status, out, err = katagami("generate", "--schema", str(path), "--count", "70", "--no-strict")
    records = [json.loads(line) for line in out.splitlines()]
    assert (0, 70) == (status, len(records))
    assert all(isinstance(record, str) and len(record) <= 2 for record in records)
    assert 1 == err.count("\n")
    assert err.startswith("katagami: warning: #/pattern: look-ahead")
    for stage in ("grammar", "nfa", "min"):
        assert err == katagami("compile", str(path), "--no-strict", "--stage", stage)[2]
    assert "look-ahead" in katagami("compile", str(path), "--no-strict")[1]


def test_version(katagami: Run) -> None:
    """The version, and nothing else."""
    assert (0, f"katagami {VERSION}\n", "") == katagami("--version")


def test_unknown_variable_and_unwritable_home(
    katagami: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Both are warnings at the start of the server, which goes on."""
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("KATAGAMI_MAX_RUNING", "3")
    katagami("serve", "--port", "0", "--model", "nosuch", "--home", str(file))
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "KATAGAMI_MAX_RUNING is not a setting; the nearest is KATAGAMI_MAX_RUNNING" == warnings[0]
    assert f"{file}/schemas cannot be written" in warnings[1]
    assert "--home" in warnings[1]


def test_bad_setting(katagami: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that cannot be read is told by its name."""
    monkeypatch.setenv("KATAGAMI_PORT", "many")
    status, _, err = katagami("serve")
    assert (2, 1) == (status, err.count("\n"))
    assert 'KATAGAMI_PORT: must be an integer, not the string "many"' in err


def test_serve_with_an_unknown_model(katagami: Run, caplog: pytest.LogCaptureFixture) -> None:
    """A server without a model to serve ends with 2 and says why."""
    status, out, _ = katagami("serve", "--port", "0", "--model", "nosuch")
    assert (2, "") == (status, out)
    assert "no model is named 'nosuch'" in caplog.text


def test_compile_report(katagami: Run, schema_file: str) -> None:
    """The report has the size of the automaton and a shortest document."""
    status, out, _ = katagami("compile", schema_file)
    assert 0 == status
    assert '{"id": 0}' in out
    assert re.search(r"states after minimisation +│ +\d+", out)


@pytest.mark.parametrize("n", [4, 8])
def test_compile_minimal_automaton(katagami: Run, n: int) -> None:
    """The n-th letter from the end takes 2^(n + 1) states, however it is written."""
    _, out, _ = katagami("compile", "--regex", f"(a|b)*a(a|b){{{n}}}", "--stage", "min")
    assert f"states {2 ** (n + 1)} " in out


@pytest.mark.parametrize("stage", ["grammar", "nfa", "dfa", "min"])
def test_compile_stages(katagami: Run, schema_file: str, stage: str) -> None:
    """Each stage is shown as text, and the automata as drawings."""
    assert (0, "") == katagami("compile", schema_file, "--stage", stage)[::2]
    if stage != "grammar":
        assert katagami("compile", schema_file, "--stage", stage, "--dot")[1].startswith("digraph")


def test_compile_recursion(katagami: Run, tmp_path: Path) -> None:
    """An automaton without an end is not drawn; the message says what can be shown instead."""
    path = tmp_path / "schema.json"
    path.write_text('{"type": "array", "items": {"$ref": "#"}}', "utf-8")
    status, _, err = katagami("compile", str(path), "--stage", "dfa")
    assert 2 == status
    assert "--stage nfa" in err


def test_generate(katagami: Run, schema_file: str) -> None:
    """One record a line, as many as asked for, over several batches; the same seed gives the same ones."""
    status, out, err = katagami("generate", "--schema", schema_file, "--count", "70", "--seed", "5")
    records = [json.loads(line) for line in out.splitlines()]
    assert (0, "", 70) == (status, err, len(records))
    assert all(list(record) == ["id"] and 0 <= record["id"] <= 99 for record in records)
    assert out == katagami("generate", "--schema", schema_file, "--count", "70", "--seed", "5")[1]
    assert out != katagami("generate", "--schema", schema_file, "--count", "70", "--seed", "6")[1]


def test_generate_reads_standard_input(katagami: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`-` is standard input."""
    path = tmp_path / "in.json"
    path.write_text('{"const": 7}', "utf-8")
    with path.open() as text:
        monkeypatch.setattr(sys, "stdin", text)
        assert (0, "7\n", "") == katagami("generate", "--schema", "-")


def test_generate_incomplete(katagami: Run, tmp_path: Path) -> None:
    """Records that the budget cut, since no document fits, are counted on standard error, and the exit code is 1."""
    path = tmp_path / "schema.json"
    path.write_text('{"enum": ["aaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"]}', "utf-8")
    status, out, err = katagami("generate", "--schema", str(path), "--count", "70", "--max-tokens", "4", "--seed", "1")
    assert (1, 70) == (status, len(out.splitlines()))
    assert "katagami: 70 of 70 records are incomplete: --max-tokens 4" in err
    status, out, err = katagami("generate", "--schema", str(path), "--count", "70", "--max-tokens", "12", "--seed", "1")
    assert (0, '"aaaaaaaa"\n' * 70, "") == (status, out, err)
    assert "exit code" in katagami("generate", "--help")[1]


def test_generate_stats(katagami: Run, schema_file: str) -> None:
    """The statistics go to standard error, and jump-forward saves model calls."""
    calls = []
    for flag in ("--jump-forward", "--no-jump-forward"):
        _, out, err = katagami("generate", "--schema", schema_file, "--count", "20", "--stats", "--seed", "1", flag)
        assert 20 == len(out.splitlines())
        assert "20 of 20" in err
        match = re.search(r"model calls per record +│ +([\d.]+)", err)
        calls.append(float(match[1]) if match else 0.0)
    assert calls[0] < calls[1]


def test_train(katagami: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The options reach the training, and what it measured is shown."""
    asked: list[Any] = []

    def record(*arguments: Any, **options: Any) -> dict[str, dict[str, Any]]:
        asked.append((arguments, options))
        return {"katagami-char": {"loss": 0.75}}

    monkeypatch.setattr(train, "train_embedded", record)
    status, out, _ = katagami("train", "--output", str(tmp_path), "--seed", "3", "--model", "char", "--steps", "9")
    assert [((tmp_path, 3, ("char",)), {"resume": True, "steps": 9})] == asked
    assert 0 == status
    assert "0.75" in out
