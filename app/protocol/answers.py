"""The answer of `POST /v1/completions`: the engine's `Result` to body and headers.

In: what was asked, what came back, and the judge's word on each complete text. Out: plain JSON values. Cost: linear in
the text.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from typing import Any

from app.proof import judge
from app.protocol.completions import Completion
from app.version import VERSION
from engine import Choice, Result, SchemaUse
from schemas_cache import Finding

FINISH_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "refusal": "content_filter"}  # all others: "length"


def completion_body(asked: Completion, result: Result) -> dict[str, Any]:
    """The response's JSON."""
    prompt_tokens, completion_tokens = result.prompt_tokens, result.completion_tokens
    return {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": asked.model.name,
        "system_fingerprint": system_fingerprint(asked.model.name),
        "choices": _choices(asked, result),
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        "structured": _schema_part(asked, result),
    }


def completion_headers(asked: Completion, result: Result) -> dict[str, str]:
    """The response's own headers: where the time went, and which schema was used."""
    use, timings = result.schema, result.timings
    compile_ms = use.compile_ms if use else 0.0
    parts = (("queue", timings.queue_ms), ("compile", compile_ms), ("prefill", timings.prefill_ms))
    headers = {"server-timing": ", ".join(f"{name};dur={value_ms:.3f}" for name, value_ms in parts)}
    if use:
        headers |= {"x-schema-hash": use.schema_hash, "x-schema-cache": use.cache}
        warnings = _warnings(asked, result, use)
        headers |= {"x-schema-warnings": str(len(warnings))} if warnings else {}
    return headers


def system_fingerprint(model_name: str) -> str:
    """Names what a seed's text depends on: the version and the model."""
    return "fp_" + hashlib.sha256(f"{VERSION} {model_name}".encode()).hexdigest()[:12]


def _choices(asked: Completion, result: Result) -> list[dict[str, Any]]:
    source = asked.request.source
    is_valid = judge(source) if source else None
    bodies = []
    for choice in result.choices:
        valid = is_valid(choice.text) if is_valid and choice.complete else None
        bodies.append(_choice_body(choice, result.schema, valid))
    return bodies


def _choice_body(choice: Choice, use: SchemaUse | None, valid: bool | None) -> dict[str, Any]:
    part = None
    if use:
        part = {"enforced": use.enforced, "complete": choice.complete, "valid": valid, "closed_early": False}
    return {
        "index": choice.index,
        "text": choice.text,
        "logprobs": None,
        "finish_reason": FINISH_REASONS.get(choice.stop_reason, "length"),
        "stop_reason": choice.stop_reason,
        "stop_sequence": choice.stop_sequence,
        "structured": part,
    }


def _schema_part(asked: Completion, result: Result) -> dict[str, Any] | None:
    use = result.schema
    if use is None:
        return None
    found = _warnings(asked, result, use)
    return {
        "schema_hash": use.schema_hash,
        "cache": use.cache,
        "compile_ms": round(use.compile_ms, 3),
        "minimum_tokens": use.minimum_tokens,
        "warnings": [{"pointer": f.pointer, "keyword": f.keyword, "reason": f.reason} for f in found],
    }


def _warnings(asked: Completion, result: Result, use: SchemaUse) -> tuple[Finding, ...]:
    """What the compiler dropped, and whether the budget was too small for any document."""
    limit, least = asked.request.max_tokens, use.minimum_tokens
    if limit >= least or all(choice.complete for choice in result.choices):
        return use.warnings
    reason = f"max_tokens {limit} is below {least}, the tokens of the shortest document, so the text was truncated"
    return (*use.warnings, Finding("#", "max_tokens", reason))
