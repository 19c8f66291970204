"""A server that is started again finds what it has compiled and learnt, and goes without a disk where it has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.end_to_end.conftest import Start

SCHEMAS: list[Any] = [
    {"type": "object", "properties": {f"field{n}": {"type": "string", "maxLength": 3 + n}}, "required": [f"field{n}"]}
    for n in range(10)
]


def ask(client: httpx.Client, schema: Any) -> tuple[str, str]:
    """One completion: its text, and where its tables came from."""
    wanted = {"type": "json_schema", "json_schema": {"name": "test", "schema": schema, "strict": True}}
    body = {"model": "katagami-bpe", "prompt": "", "response_format": wanted, "temperature": 0, "max_tokens": 64}
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    return told["choices"][0]["text"], told["structured"]["cache"]


def ask_all(url: str) -> tuple[list[str], list[str]]:
    """Texts and tiers of all schemas."""
    with httpx.Client(base_url=url, timeout=60) as client:
        texts, tiers = zip(*(ask(client, schema) for schema in SCHEMAS), strict=True)
    return list(texts), list(tiers)


def test_a_restart_is_warm(start_server: Start, tmp_path: Path) -> None:
    """The first request of each known schema after a restart is from disk, and says the same as before it."""
    with start_server(tmp_path) as server:
        texts, tiers = ask_all(server.url)
        assert tiers == ["miss"] * len(SCHEMAS)
        assert ask_all(server.url) == (texts, ["memory"] * len(SCHEMAS))
    with start_server(tmp_path) as server:
        assert ask_all(server.url) == (texts, ["disk"] * len(SCHEMAS))
        assert ask_all(server.url) == (texts, ["memory"] * len(SCHEMAS))


def test_two_servers_share_a_folder(start_server: Start, tmp_path: Path) -> None:
    """What one server has compiled the other finds on disk while both run."""
    with start_server(tmp_path) as first, start_server(tmp_path, "--model", "katagami-bpe") as second:
        texts, _ = ask_all(first.url)
        assert ask_all(second.url) == (texts, ["disk"] * len(SCHEMAS))


@pytest.mark.parametrize("what", ["tables", "rows", "schemas"])
def test_a_server_whose_cache_is_deleted_goes_on(start_server: Start, tmp_path: Path, what: str) -> None:
    """A part of the cache, or all of it, turned into a file while the server is down: no request fails."""
    with start_server(tmp_path) as server:
        texts, _ = ask_all(server.url)
    (place,) = tmp_path.rglob(what)
    place.rename(tmp_path / "away")
    place.write_text("not a folder")
    with start_server(tmp_path) as server:
        again, tiers = ask_all(server.url)
    assert again == texts
    assert set(tiers) == ({"disk"} if what == "rows" else {"miss"})
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_limits_of_the_cache_are_flags(start_server: Start, tmp_path: Path) -> None:
    """With the smallest limits everything is answered, and the folder stays small."""
    flags = ("--cache-size-limit", str(1 << 20), "--cache-memory-limit", str(1 << 20))
    with start_server(tmp_path, *flags) as server:
        texts, _ = ask_all(server.url)
        assert ask_all(server.url)[0] == texts
    files = [path for path in (tmp_path / "schemas").rglob("*") if path.is_file()]
    assert 0 < sum(path.stat().st_size for path in files) < 4 << 20
