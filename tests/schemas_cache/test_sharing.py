"""Eight processes on one folder: no error, no wrong mask, and every schema is compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.schemas_cache.sharing import share, small_schemas


@pytest.mark.timeout(150)
def test_eight_processes_share_a_folder(tmp_path: Path) -> None:
    """For three seconds eight processes ask for forty schemas in different orders, and walk through them."""
    report = share(tmp_path, small_schemas(40), seconds=3, processes=8)
    assert report.complaints == ""
    assert set(report.compiles.values()) == {1}
    assert len(report.compiles) == report.tiers["miss"] <= 40
    assert report.tiers["disk"] > 40
    assert report.checked > 0
