"""The official suite against the baseline: whole as a suite, a sample in every run."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas_cache.schema.options import KeyOrder
from tests.suites import official
from tests.suites.running import check

pytestmark = pytest.mark.skipif(
    not official.FOLDER.exists(), reason="the folder `shared` with the suites is not beside the repository"
)
SAMPLE_EVERY = 3
LEAST_RIGHT = 0.8
ORDERS = pytest.mark.parametrize("key_order", ["declared", "any"])


@ORDERS
def test_a_sample_is_as_good_as_the_baseline(key_order: KeyOrder, tmp_path: Path) -> None:
    """Each third group: nothing is too loose, and no group does worse than the whole suite did."""
    verdicts = official.judge_all(official.read_cases(SAMPLE_EVERY), key_order)
    check(f"official {key_order}", verdicts, tmp_path)


@pytest.mark.suite
@pytest.mark.timeout(3600)
@ORDERS
def test_the_whole_suite(key_order: KeyOrder, tmp_path: Path) -> None:
    """All groups: none too loose, enough right, none worse than before."""
    verdicts = official.judge_all(official.read_cases(), key_order)
    check(f"official {key_order}", verdicts, tmp_path, LEAST_RIGHT)
