"""The log: text for people, or JSON for machines, one object a line; each exchange is one line.

In: log records. Out: lines on standard error. What a client sent (prompts, schemas, texts) is never in it, unless the
server was told so; API keys never are, only their names. Cost: a line for each request.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

from app.errors import CLIENT_GONE_STATUS, code_of
from app.exchange import Exchange

TEXT_FORM = "%(asctime)s %(levelname)s %(name)s %(message)s"
FIELDS = "katagami_fields"  # attribute of a record: what its JSON object has beside the usual

log = logging.getLogger("katagami")


class JsonLines(logging.Formatter):
    """A record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = {"time": time, "level": record.levelname.lower(), "logger": record.name}
        own: dict[str, Any] | None = getattr(record, FIELDS, None)
        told: dict[str, Any] = fields | ({"message": record.getMessage()} if own is None else own)
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


def set_up_log(level: str, form: str) -> None:
    """Send all records of this level and above to standard error, as `text` or as `json`."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(TEXT_FORM))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


def log_exchange(exchange: Exchange) -> None:
    """One line for a request and its answer."""
    status = exchange.status or CLIENT_GONE_STATUS
    elapsed_ms = 1000 * exchange.elapsed_s
    body = "" if exchange.body is None else f", body {json.dumps(_text(exchange.body), ensure_ascii=False)}"
    log.info(
        "%s %d in %.0f ms, from %s%s",
        *(exchange.name, status, elapsed_ms, exchange.client, body),
        extra={FIELDS: exchange_fields(exchange, status, elapsed_ms)},
    )


def exchange_fields(exchange: Exchange, status: int, elapsed_ms: float) -> dict[str, Any]:
    """What the JSON line of an exchange holds; null where there was none of it."""
    result = exchange.result
    schema = result.schema if result else None
    fields = {
        "event": "exchange",
        "request_id": exchange.request_id,
        "key": exchange.key_name,
        "client": exchange.client,
        "method": exchange.method,
        "path": exchange.path,
        "route": exchange.route,
        "status": status,
        "duration_ms": round(elapsed_ms, 3),
        "model": exchange.model,
        "schema_hash": schema.schema_hash if schema else None,
        "cache": schema.cache if schema else None,
        "prompt_tokens": result.prompt_tokens if result else None,
        "completion_tokens": result.completion_tokens if result else None,
        "error": code_of(exchange.error) if exchange.error else None,
    }
    return fields if exchange.body is None else fields | {"body": _text(exchange.body)}


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace")
