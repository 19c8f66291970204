"""What the compiler found in a schema, as JSON.

In: findings. Out: plain JSON values. Cost: linear in them.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas_cache import Finding


def errors_json(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Findings that are errors, each with a way out."""
    return [{"pointer": f.pointer, "keyword": f.keyword, "reason": f.reason, "hint": f.hint} for f in findings]


def warnings_json(findings: Iterable[Finding]) -> list[dict[str, str]]:
    """Findings that are warnings."""
    return [{"pointer": f.pointer, "keyword": f.keyword, "reason": f.reason} for f in findings]
