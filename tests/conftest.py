"""What tests of all packages share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """The folder `shared` beside the repository: field reports and suites that are not part of it."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}: its cases are run where it is")
    return folder
