"""What is known of one request and its answer, gathered on the way and told by the log and the metrics at the end.

In: facts, each from the stage that learns it first. Out: `Exchange`, one a request. Cost: a dataclass.
"""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass, field
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.types import Scope

from app.words import clip
from engine import Result

SANE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")  # of a proxy in front; anything else gets an id of ours
MAX_PATH = 200  # characters in the log
UNMATCHED = "unmatched"  # the route of a path that there is not; the path itself would make labels without end


@dataclass(slots=True)
class Exchange:
    """One request and its answer.

    Attributes
    ----------
    status : int or None
        None while no answer has begun.
    key_name : str or None
        Which API key let it in.
    body : bytes or None
        What the client sent, only where the log shall have it.
    schema_field : str
        Where the route's bodies have their schema; errors of the schema name it.
    model, result, error
        What the engine was asked and gave, or what went wrong instead.
    """

    request_id: str
    method: str
    path: str  # quoted, on one line whatever it holds
    client: str
    begun_s: float = field(default_factory=time.perf_counter)
    route: str = UNMATCHED
    status: int | None = None
    key_name: str | None = None
    body: bytes | None = None
    schema_field: str = "response_format"
    model: str | None = None
    result: Result | None = None
    error: BaseException | None = None

    @property
    def name(self) -> str:
        """How the log names it: request id, method and path."""
        return f"{self.request_id} {self.method} {self.path}"

    @property
    def elapsed_s(self) -> float:
        """Seconds since its head was there."""
        return time.perf_counter() - self.begun_s


def begin_exchange(scope: Scope) -> Exchange:
    """Make the exchange of a request, named as a proxy in front named it, else anew."""
    given = Headers(scope=scope).get("x-request-id", "")
    exchange = Exchange(
        request_id=given if SANE_ID.fullmatch(given) else f"req_{uuid.uuid4().hex}",
        method=scope["method"],
        path=clip(quote(scope["path"]), MAX_PATH),
        client=(scope.get("client") or ("unknown",))[0],
    )
    scope.setdefault("state", {})["exchange"] = exchange
    return exchange


def exchange_of(scope: Scope) -> Exchange:
    """The exchange that `begin_exchange` made."""
    exchange: Exchange = scope["state"]["exchange"]
    return exchange
