"""What the answers of all generating routes share: the frame, the choices' ends, the proof and the headers.

In: what was asked, what came back, and the judge's word on each complete text. Out: plain JSON values. Cost: linear in
the text. What each route writes in its own way is its `Writer`.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.findings import warnings_json
from app.proof import judge
from app.protocol.generation import Asked
from app.protocol.tokens import token_text
from app.version import VERSION
from engine import Attempts, Choice, Delta, Diagnostics, LoadedModel, Result, SchemaUse
from schemas_cache import Finding


class Writer(Protocol):
    """How a route writes one choice, whole or in pieces; one for each request, since pieces are counted through."""

    id_prefix: str
    kind: str  # `object` of a whole answer
    chunk_kind: str  # `object` of a piece
    finish_reasons: Mapping[str, str]  # by stop reason; all others: "length"

    def whole(self, choice: Choice) -> dict[str, Any]:
        """The members that hold the text of a whole choice."""

    def opening(self, index: int) -> dict[str, Any] | None:
        """The same of the piece before any text, where there is one."""

    def piece(self, delta: Delta) -> dict[str, Any] | None:
        """The same of a piece, where there is anything to show."""

    def ending(self) -> dict[str, Any]:
        """The same of the last piece, which has no text."""


@dataclass(frozen=True, slots=True)
class Frame:
    """What all chunks of one answer repeat."""

    id: str
    created: int  # Unix time
    model: str

    def body(self, kind: str, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The frame around these choices."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": system_fingerprint(self.model),
            "choices": list(choices),
        }


def new_frame(asked: Asked, writer: Writer) -> Frame:
    """The frame of a new answer."""
    return Frame(f"{writer.id_prefix}-{uuid.uuid4().hex}", int(time.time()), asked.model.name)


def answer_body(asked: Asked, writer: Writer, result: Result) -> dict[str, Any]:
    """The response's JSON; judges the texts, so it belongs in a worker thread."""
    is_valid = judge(asked.request.source) if asked.request.source else None
    choices = []
    for choice in result.choices:
        valid = is_valid(choice.text) if is_valid and choice.complete else None
        whole = {"index": choice.index} | writer.whole(choice)
        choices.append(whole | ending_members(asked, writer, choice, result.schema, valid))
    body = new_frame(asked, writer).body(writer.kind, choices)
    known = schema_members(asked, result.schema, _all_complete(result))
    return body | {"usage": usage_body(result), "structured": known}


def answer_headers(asked: Asked, result: Result) -> dict[str, str]:
    """The response's own headers: where the time went, and which schema was used."""
    timings_ms = {"queue": result.timings.queue_ms, "prefill": result.timings.prefill_ms}
    return schema_headers(asked, result.schema, _all_complete(result), timings_ms)


def schema_headers(
    asked: Asked, use: SchemaUse | None, complete: bool, timings_ms: Mapping[str, float]
) -> dict[str, str]:
    """What is known of the schema and of the time it took, with other timings beside it."""
    known_ms = dict(timings_ms) | {"compile": use.compile_ms if use else 0.0}
    in_order = [(name, known_ms[name]) for name in ("queue", "compile", "prefill") if name in known_ms]
    headers = {"server-timing": ", ".join(f"{name};dur={value_ms:.3f}" for name, value_ms in in_order)}
    if use:
        headers |= {"x-schema-hash": use.schema_hash, "x-schema-cache": use.cache}
        warnings = _warnings(asked, use, complete)
        headers |= {"x-schema-warnings": str(len(warnings))} if warnings else {}
    return headers


def system_fingerprint(model_name: str) -> str:
    """Names what a seed's text depends on: the version and the model."""
    return "fp_" + hashlib.sha256(f"{VERSION} {model_name}".encode()).hexdigest()[:12]


def usage_body(result: Result) -> dict[str, Any]:
    """The tokens that were read and written."""
    return {
        "prompt_tokens": result.prompt_tokens,
        "completion_tokens": result.completion_tokens,
        "total_tokens": result.prompt_tokens + result.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": result.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def ending_members(
    asked: Asked, writer: Writer, choice: Choice, use: SchemaUse | None, valid: bool | None
) -> dict[str, Any]:
    """Why a choice ended, and what is known of its text."""
    closed_as_stop = choice.closed_early and asked.report_closed_as == "stop"
    part: dict[str, Any] | None = None
    if use:
        part = {
            "enforced": use.enforced,
            "complete": choice.complete,
            "valid": valid,
            "closed_early": choice.closed_early,
        }
        part |= _diagnostics(choice.diagnostics, asked.model) if choice.diagnostics else {}
        part |= _attempts(choice.attempts) if choice.attempts else {}
    return {
        "finish_reason": "stop" if closed_as_stop else writer.finish_reasons.get(choice.stop_reason, "length"),
        "stop_reason": choice.stop_reason,
        "stop_sequence": choice.stop_sequence,
        "structured": part,
    }


def schema_members(asked: Asked, use: SchemaUse | None, complete: bool) -> dict[str, Any] | None:
    """What is known of the schema; `complete` says whether all texts are whole documents."""
    if use is None:
        return None
    return {
        "schema_hash": use.schema_hash,
        "cache": use.cache,
        "compile_ms": round(use.compile_ms, 3),
        "minimum_tokens": use.minimum_tokens,
        "warnings": warnings_json(_warnings(asked, use, complete)),
    }


def _all_complete(result: Result) -> bool:
    return all(choice.complete for choice in result.choices)


def _warnings(asked: Asked, use: SchemaUse, complete: bool) -> tuple[Finding, ...]:
    """What the compiler dropped, and whether the budget was too small for any document."""
    least, limit = use.minimum_tokens, asked.request.max_tokens
    room = asked.model.model.context_length - max(map(len, asked.request.prompts))
    if complete or limit == 0 or min(limit, room) >= least:
        return use.warnings
    told = f"max_tokens {limit}" if limit <= room else f"the context's room of {room} tokens"
    reason = f"{told} is below {least}, the tokens of the shortest document, so the text was truncated"
    return (*use.warnings, Finding("#", "max_tokens", reason))


def _attempts(attempts: Attempts) -> dict[str, Any]:
    """What a text that was drawn freely and judged has cost."""
    cost = {
        "judged": attempts.judged,
        "accepted": attempts.accepted,
        "acceptance_rate": attempts.acceptance_rate,
        "tokens": attempts.tokens,
        "model_calls": attempts.model_calls,
    }
    return {"attempts": attempts.made, "retry": cost}


def _diagnostics(bent: Diagnostics, model: LoadedModel) -> dict[str, Any]:
    """How far the mask bent the text."""
    worst = bent.worst
    return {
        "tokens": {"total": bent.total, "forced": bent.forced, "intervened": bent.intervened},
        "allowed_mass": {"mean": bent.mean_mass, "min": bent.min_mass},
        "worst": worst
        and {
            "token_index": worst.token_index,
            "pointer": worst.pointer,
            "wanted": token_text(model, worst.wanted_id),
            "got": token_text(model, worst.got_id),
            "allowed_mass": worst.allowed_mass,
        },
        "fields": [
            {
                "pointer": place.pointer,
                "allowed_mass": {"mean": place.mean_mass, "min": place.min_mass},
                "intervened": place.intervened,
                "ended_by_limit": place.ended_by_limit,
            }
            for place in bent.fields
        ],
    }
