"""The command line: what it prints, and how it says what is wrong."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli import main, train

Run = Callable[..., tuple[int, str, str]]
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["id"]}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run `katagami` with these arguments: exit code, standard output, standard error."""
    monkeypatch.setenv("KATAGAMI_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["katagami", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture
def schema_file(tmp_path: Path) -> str:
    """A file with a small schema."""
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA), "utf-8")
    return str(path)


@pytest.mark.parametrize("command", ["serve", "compile", "generate", "train"])
def test_help_teaches(run: Run, command: str) -> None:
    """Each command's help has a line that can be copied."""
    status, out, _ = run(command, "--help")
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
        (["generate", "--regex", "a", "--model", "nosuch"], "katagami-char"),
        (["generate", "--regex", "a", "--schema", "-"], "not both"),
        (["serve", "--host", "192.0.2.1"], "cannot listen on 192.0.2.1"),
    ],
)
def test_errors_are_one_line(run: Run, arguments: list[str], reason: str) -> None:
    """What is wrong is one line on standard error, and the exit code is 2."""
    status, out, err = run(*arguments)
    assert (2, "", 1) == (status, out, err.count("\n"))
    assert err.startswith("katagami: ")
    assert reason in err


@pytest.mark.parametrize("text", ["{", "[]", "5", "[" * 100_000])
def test_files_that_are_no_schema(run: Run, tmp_path: Path, text: str) -> None:
    """A file that is not JSON, or no schema, is told by its name."""
    path = tmp_path / "bad.json"
    path.write_text(text, "utf-8")
    status, _, err = run("compile", str(path))
    assert (2, 1) == (status, err.count("\n"))
    assert "bad.json" in err


def test_every_finding_counts(run: Run, tmp_path: Path) -> None:
    """A schema that cannot be enforced is told with its first finding and how many more there are."""
    path = tmp_path / "schema.json"
    path.write_text('{"properties": {"a": {"$dynamicRef": "#a"}, "b": {"$dynamicRef": "#b"}}}', "utf-8")
    status, _, err = run("compile", str(path))
    assert 2 == status
    assert "#/properties/a" in err
    assert "1 more" in err


def test_bad_setting(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that cannot be read is told by its name."""
    monkeypatch.setenv("KATAGAMI_PORT", "many")
    status, _, err = run("serve")
    assert (2, 1) == (status, err.count("\n"))
    assert "KATAGAMI_PORT" in err


def test_serve_with_an_unknown_model(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """A server without a model to serve ends with 2 and says why."""
    status, out, _ = run("serve", "--port", "0", "--model", "nosuch")
    assert (2, "") == (status, out)
    assert "no model is named 'nosuch'" in caplog.text


def test_compile_report(run: Run, schema_file: str) -> None:
    """The report has the size of the automaton and a shortest document."""
    status, out, _ = run("compile", schema_file)
    assert 0 == status
    assert '{"id": 0}' in out
    assert re.search(r"states after minimisation +│ +\d+", out)


@pytest.mark.parametrize("n", [4, 8])
def test_compile_minimal_automaton(run: Run, n: int) -> None:
    """The n-th letter from the end takes 2^(n + 1) states, however it is written."""
    _, out, _ = run("compile", "--regex", f"(a|b)*a(a|b){{{n}}}", "--stage", "min")
    assert f"states {2 ** (n + 1)} " in out


@pytest.mark.parametrize("stage", ["grammar", "nfa", "dfa", "min"])
def test_compile_stages(run: Run, schema_file: str, stage: str) -> None:
    """Each stage is shown as text, and the automata as drawings."""
    assert (0, "") == run("compile", schema_file, "--stage", stage)[::2]
    if stage != "grammar":
        assert run("compile", schema_file, "--stage", stage, "--dot")[1].startswith("digraph")


def test_compile_recursion(run: Run, tmp_path: Path) -> None:
    """An automaton without an end is not drawn; the message says what can be shown instead."""
    path = tmp_path / "schema.json"
    path.write_text('{"type": "array", "items": {"$ref": "#"}}', "utf-8")
    status, _, err = run("compile", str(path), "--stage", "dfa")
    assert 2 == status
    assert "--stage nfa" in err


def test_generate(run: Run, schema_file: str) -> None:
    """One record a line, as many as asked for, over several batches; the same seed gives the same ones."""
    status, out, err = run("generate", "--schema", schema_file, "--count", "70", "--seed", "5")
    records = [json.loads(line) for line in out.splitlines()]
    assert (0, "", 70) == (status, err, len(records))
    assert all(list(record) == ["id"] and 0 <= record["id"] <= 99 for record in records)
    assert out == run("generate", "--schema", schema_file, "--count", "70", "--seed", "5")[1]
    assert out != run("generate", "--schema", schema_file, "--count", "70", "--seed", "6")[1]


def test_generate_reads_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`-` is standard input."""
    path = tmp_path / "in.json"
    path.write_text('{"const": 7}', "utf-8")
    with path.open() as text:
        monkeypatch.setattr(sys, "stdin", text)
        assert (0, "7\n", "") == run("generate", "--schema", "-")


def test_generate_stats(run: Run, schema_file: str) -> None:
    """The statistics go to standard error, and jump-forward saves model calls."""
    calls = []
    for flag in ("--jump-forward", "--no-jump-forward"):
        _, out, err = run("generate", "--schema", schema_file, "--count", "20", "--stats", "--seed", "1", flag)
        assert 20 == len(out.splitlines())
        assert "20 of 20" in err
        match = re.search(r"model calls per record +│ +([\d.]+)", err)
        calls.append(float(match[1]) if match else 0.0)
    assert calls[0] < calls[1]


def test_train(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The options reach the training, and what it measured is shown."""
    asked: list[Any] = []

    def record(*arguments: Any, **options: Any) -> dict[str, dict[str, Any]]:
        asked.append((arguments, options))
        return {"katagami-char": {"loss": 0.75}}

    monkeypatch.setattr(train, "train_embedded", record)
    status, out, _ = run("train", "--output", str(tmp_path), "--seed", "3", "--model", "char", "--steps", "9")
    assert [((tmp_path, 3, ("char",)), {"resume": True, "steps": 9})] == asked
    assert 0 == status
    assert "0.75" in out
