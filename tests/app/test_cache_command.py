"""`katagami cache`: what it lists, what it removes, and that what it warms is found by a server."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine import load_model
from schemas_cache import SchemaCache, schema_source
from tests.app.conftest import Run

INTEGER = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["id"]}
TEXT = {"type": "string", "maxLength": 20}


@pytest.fixture
def run(katagami: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `katagami cache` with these arguments."""
    monkeypatch.setenv("KATAGAMI_HOME", str(tmp_path / "home"))
    return partial(katagami, "cache")


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two files with schemas."""
    paths = []
    for name, schema in (("integer", INTEGER), ("text", TEXT)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(schema), "utf-8")
        paths.append(str(path))
    return paths


def listed(run: Run) -> list[dict[str, Any]]:
    """What `list` says to machines."""
    status, out, err = run("list", "--json")
    assert (status, err) == (0, "")
    entries: list[dict[str, Any]] = json.loads(out)
    return entries


@pytest.mark.parametrize("command", ["list", "stats", "clear", "warm"])
def test_help_teaches(run: Run, command: str) -> None:
    """Each command's help has a line that can be copied."""
    status, out, _ = run(command, "--help")
    assert status == 0
    assert f" katagami cache {command}" in out


def test_an_empty_cache(run: Run) -> None:
    """Before anything was compiled there is nothing, and that is no error."""
    assert listed(run) == []
    status, out, _ = run("clear")
    assert (status, out) == (0, "removed 0 entries\n")


def test_what_is_warmed_is_listed(run: Run, files: list[str]) -> None:
    """Two schemas for two models are four entries, newest first, each with what it is."""
    status, out, _ = run("warm", *files, "--model", "katagami-char", "--model", "katagami-bpe", "--json")
    reports = json.loads(out)
    assert (status, [report["was"] for report in reports]) == (0, ["miss"] * 4)
    entries = listed(run)
    assert [(entry["schema_hash"], entry["models"]) for entry in reversed(entries)] == [
        (report["schema_hash"], [report["model"]]) for report in reports
    ]
    assert all(entry["states"] >= report["states"] for entry, report in zip(reversed(entries), reports, strict=True))
    _, table, _ = run("list")
    assert all(entry["schema_hash"][:12] in table for entry in entries)


def test_a_first_request_after_warming_learns_nothing(run: Run, files: list[str], tmp_path: Path) -> None:
    """A server that starts on a warmed folder finds the tables and every mask row of a document."""
    run("warm", *files, "--model", "katagami-bpe")
    tokenizer = load_model("katagami-bpe").tokenizer
    cache = SchemaCache(tmp_path / "home" / "schemas")
    for schema, text in ((INTEGER, '{"id": 42}'), (TEXT, '"three words here"')):
        lookup = cache.get(schema_source(schema), tokenizer.vocabulary)
        matcher = lookup.compiled.matcher()
        for token_id in tokenizer.encode(text):
            matcher.mask()
            matcher.advance(token_id)
        matcher.mask()
        assert (lookup.tier, lookup.compiled.rows_computed) == ("disk", 0)
    cache.close()


def test_a_time_of_making_outlives_a_restart(run: Run, files: list[str], tmp_path: Path) -> None:
    """An entry that is read and written again later was made when it was made."""
    run("warm", files[0], "--model", "katagami-bpe")
    (before,) = listed(run)
    cache = SchemaCache(tmp_path / "home" / "schemas")
    compiled = cache.get(schema_source(INTEGER), load_model("katagami-bpe").tokenizer.vocabulary).compiled
    compiled.tokens.automaton.expansions += 1
    cache.close()
    (after,) = listed(run)
    assert before["created_s"] == after["created_s"]
    assert before["last_used_s"] < after["last_used_s"]


def test_one_schema_is_removed_for_all_models(run: Run, files: list[str]) -> None:
    """`clear` with the begin of a hash removes its entries and leaves the others."""
    _, out, _ = run("warm", *files, "--model", "katagami-char", "--model", "katagami-bpe", "--json")
    first, second = json.loads(out)[0]["schema_hash"], json.loads(out)[2]["schema_hash"]
    assert run("clear", first[:12].upper()) == (0, "removed 2 entries\n", "")
    assert {entry["schema_hash"] for entry in listed(run)} == {second}
    assert run("clear", "--json") == (0, '{\n  "removed": 2\n}\n', "")
    assert listed(run) == []


@pytest.mark.parametrize("begin", ["ffffffffffff", ""])
def test_a_hash_that_is_not_there(run: Run, files: list[str], begin: str) -> None:
    """One line, exit code 2, and nothing is removed."""
    run("warm", files[0], "--model", "katagami-char")
    status, out, err = run("clear", begin)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert len(listed(run)) == 1


def test_a_refused_schema_does_not_keep_the_others_out(run: Run, files: list[str], tmp_path: Path) -> None:
    """What cannot be compiled is said with its file, the rest is warmed, and the exit code tells."""
    refused = tmp_path / "refused.json"
    refused.write_text('{"type": "string", "pattern": "("}', "utf-8")
    status, out, err = run("warm", str(refused), files[0], "--model", "katagami-char")
    assert status == 2
    assert f"katagami: {refused}: " in err
    assert files[0] in out
    assert len(listed(run)) == 1


def test_figures(run: Run, files: list[str]) -> None:
    """`stats` counts schemas, entries and bytes, and clearing brings them to nothing."""
    run("warm", *files, "--model", "katagami-char")
    figures = json.loads(run("stats", "--json")[1])
    assert (figures["schemas"], figures["entries"], figures["vocabularies"]) == (2, 2, 1)
    assert figures["tables_bytes"] > figures["rows_bytes"] > 0
    run("clear")
    figures = json.loads(run("stats", "--json")[1])
    assert (figures["entries"], figures["rows_bytes"]) == (0, 0)
    _, table, _ = run("stats")
    assert "rows bytes" in table
