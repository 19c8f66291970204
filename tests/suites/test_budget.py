"""Token limits on real schemas: whole as a suite, the article's in every run."""

from __future__ import annotations

import pytest

from tests.suites import budget, maskbench

HAS_SHARED = pytest.mark.skipif(
    not maskbench.FILE.exists(), reason="the folder `shared` with the suites is not beside the repository"
)


def check(runs: dict[str, list[budget.Report]]) -> None:
    """No fault, and each kind of outcome occurs."""
    budget.print_reports(runs)
    for reports in runs.values():
        assert [] == [(report.id, fault) for report in reports for fault in report.faults]
        for kind in ("below the minimum: cut", "closed early", "as without a limit"):
            assert sum(report.counts[kind] for report in reports) > 0


def test_the_article_s_record_at_every_limit() -> None:
    """Both shipped models, from one below the minimum to one above the natural length."""
    check(budget.judge_article())


@HAS_SHARED
@pytest.mark.suite
@pytest.mark.timeout(3600)
def test_schemas_of_the_real_world() -> None:
    """300 schemas of MaskBench on SmolLM2's vocabulary."""
    check({"maskbench": budget.judge_maskbench(300, jobs=2)})
