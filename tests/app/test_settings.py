"""Settings come from the environment, and the table of them is complete."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from app.settings import Settings, unknown_variables

DOCUMENT = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable sets its field; several models are written with commas."""
    monkeypatch.setenv("KATAGAMI_PORT", "9001")
    monkeypatch.setenv("KATAGAMI_MODEL", "katagami-bpe, ./mine")
    settings = Settings()
    assert (9001, ("katagami-bpe", "./mine")) == (settings.port, settings.model)


def test_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The cache is under the home, which is the platform's cache folder unless it is set."""
    monkeypatch.delenv("KATAGAMI_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "katagami" / "schemas" == Settings().cache_folder
    monkeypatch.setenv("KATAGAMI_HOME", str(tmp_path / "elsewhere"))
    assert tmp_path / "elsewhere" / "schemas" == Settings().cache_folder


def test_unknown_variables() -> None:
    """What looks like a setting and is none is found, with the nearest that is one; others are left alone."""
    names = ["PATH", "KATAGAMI_PORT", "katagami_host", "KATAGAMI_MODELS", "KATAGAMI_XQZ"]
    assert {"KATAGAMI_MODELS": "KATAGAMI_MODEL", "KATAGAMI_XQZ": None} == unknown_variables(names)


def test_log_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written in any case."""
    monkeypatch.setenv("KATAGAMI_LOG_LEVEL", "WARNING")
    assert "warning" == Settings().log_level


@pytest.mark.parametrize("origin", ["*", "null", "http://localhost:5173", "https://a.example, http://[::1]:80"])
def test_origins(monkeypatch: pytest.MonkeyPatch, origin: str) -> None:
    """As browsers write them."""
    monkeypatch.setenv("KATAGAMI_CORS_ORIGIN", origin)
    assert tuple(origin.split(", ")) == Settings().cors_origin
    monkeypatch.setenv("KATAGAMI_CORS_ORIGIN", "")
    assert () == Settings().cors_origin


VALUES_WITHOUT_USE = [
    *[("COMPILE_TIMEOUT_S", "inf"), ("GRACE_S", "nan"), ("LOG_LEVEL", "loud"), ("SEED", "-1")],
    *[("CORS_ORIGIN", origin) for origin in ("http://page/", "page.example", "HTTP://page", "http://", "*,")],
]


@pytest.mark.parametrize(("name", "value"), VALUES_WITHOUT_USE)
def test_values_without_use(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """What could not be meant, as a time without end, or would do nothing, is refused at the start."""
    monkeypatch.setenv(f"KATAGAMI_{name}", value)
    with pytest.raises(ValidationError):
        Settings()


def test_every_setting_is_documented() -> None:
    """docs/configuration.md has a row for each setting and no other."""
    rows = [line.split("`")[1] for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith("| `KATAGAMI_")]
    assert [f"KATAGAMI_{name.upper()}" for name in Settings.model_fields] == rows
