"""What came of a measurement: plain values, raw, as they go into the JSON file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one server with one number of clients.

    Attributes
    ----------
    turns_ms : tuple of float
        Milliseconds per record of each turn; turn i of all servers had the same prompts.
    right : Mapping
        Field -> how many records have in it what the prompt says.
    ratios : Mapping
        Other server -> median over the turns of this server's time by the other's; ours has them.
    stages_s : Mapping
        Seconds of steps by stage; only ours says.
    """

    server: str
    clients: int
    turns_ms: tuple[float, ...]
    records: int
    valid: int
    prompt_tokens: int
    completion_tokens: int
    right: Mapping[str, int]
    elapsed_s: float
    ratios: Mapping[str, float] = field(default_factory=dict)
    stages_s: Mapping[str, float] = field(default_factory=dict)

    @property
    def ms_per_record(self) -> float:
        """The median of the turns."""
        return median(self.turns_ms)


@dataclass(frozen=True, slots=True)
class FreeText:
    """Text without a schema: tokens per second of one server with one number of clients, medians over turns."""

    server: str
    clients: int
    decode_tokens_per_s: float
    prefill_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Report:
    """One measurement."""

    machine: str
    servers: Mapping[str, str]  # name -> address and model
    records: tuple[Records, ...]
    free: tuple[FreeText, ...]
