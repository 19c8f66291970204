"""Single flight: callers that ask for one schema at the same time share one look-up.

In: keys. Out: the entry in memory; or a `Flight` to it, which the first caller leads and the others wait for. Cost: a
lock and a dictionary look-up. A flight ends in memory, so that whoever comes later finds the entry there.
"""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Literal

from schemas_cache.compile import CompiledSchema
from schemas_cache.errors import CompileTimeoutError, Finding
from schemas_cache.memory import Entry, MemoryTier

Tier = Literal["memory", "disk", "miss"]


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A look-up under way, and how long its leader may compile."""

    key: str
    timeout_s: float
    result: Future[tuple[CompiledSchema, Tier]] = field(default_factory=Future)

    def follow(self, left_s: float, allowed_s: float) -> tuple[CompiledSchema, Tier] | None:
        """Wait for the leader's result; None where it gave up on grounds that do not hold for this caller.

        Raises
        ------
        SchemaError
            The leader's; `CompileTimeoutError` also where nothing came within `left_s` of the `allowed_s` seconds.
        """
        try:
            return self.result.result(max(left_s, 0.0))
        except CancelledError:
            return None
        except CompileTimeoutError:
            if self.timeout_s >= left_s:
                raise
            return None
        except TimeoutError:
            reason = f"compiling took longer than {allowed_s:g} s"
            raise CompileTimeoutError([Finding("#", "", reason, "allow more time, or simplify the schema")]) from None


class Flights:
    """Look-ups under way; safe from several threads.

    Parameters
    ----------
    memory : MemoryTier
        Where they end.
    """

    def __init__(self, memory: MemoryTier) -> None:
        self._memory = memory
        self._under_way: dict[str, Flight] = {}  # by key
        self._boarding = threading.Lock()  # over "in memory, else in flight, else a new flight"

    def board(self, key: str, timeout_s: float) -> tuple[Entry | Flight, bool]:
        """Return the entry in memory, else the flight to it; and whether the caller has to lead the flight."""
        with self._boarding:
            boarded = self._memory.get(key) or self._under_way.get(key)
            if boarded is not None:
                return boarded, False
            flight = self._under_way[key] = Flight(key, timeout_s)
            return flight, True

    def land(self, flight: Flight, entry: Entry, tier: Tier) -> list[Entry]:
        """Give everybody on the flight its entry; those that had to leave memory for it."""
        with self._boarding:
            evicted = self._memory.put(entry)
            del self._under_way[flight.key]
        flight.result.set_result((entry.compiled, tier))
        return evicted

    def give_up(self, flight: Flight, error: Exception | None) -> None:
        """End a flight without an entry: everybody on it gets the error, or starts again where there is none."""
        with self._boarding:
            del self._under_way[flight.key]
        if error is None:
            flight.result.cancel()
        else:
            flight.result.set_exception(error)
