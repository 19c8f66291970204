"""MaskBench against the baseline: whole as a suite, a sample in every run."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas_cache.schema.options import KeyOrder
from tests.suites import maskbench
from tests.suites.running import check

pytestmark = pytest.mark.skipif(
    not maskbench.FILE.exists(), reason="the folder `shared` with the suites is not beside the repository"
)
SAMPLE_EVERY = 12
LEAST_RIGHT: dict[KeyOrder, float] = {"declared": 0.94, "any": 0.97}
ORDERS = pytest.mark.parametrize("key_order", LEAST_RIGHT)


@ORDERS
def test_a_sample_is_as_good_as_the_baseline(key_order: KeyOrder, tmp_path: Path) -> None:
    """Each twelfth schema, byte by byte: nothing is too loose, and no schema does worse than the whole suite did."""
    verdicts = maskbench.judge_all(maskbench.read_cases(SAMPLE_EVERY), key_order, tokens=False)
    check(f"maskbench {key_order}", verdicts, tmp_path)


@pytest.mark.suite
@pytest.mark.timeout(3600)
@ORDERS
def test_the_whole_suite(key_order: KeyOrder, tmp_path: Path) -> None:
    """All schemas by tokens of SmolLM2: none too loose, enough right, none worse than before."""
    verdicts = maskbench.judge_all(maskbench.read_cases(), key_order, tokens=True)
    check(f"maskbench {key_order}", verdicts, tmp_path, LEAST_RIGHT[key_order])
