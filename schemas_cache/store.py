"""Compiled schemas, each compiled once: from memory, else from disk, else anew.

In: a source and a vocabulary. Out: `Lookup`, the compiled schema with the tier that it came from and the time that this
cost. Cost: a dictionary lookup from memory; a few milliseconds from disk; a compile otherwise.

The key is SHA-256 over the source's digest (content without annotations, and options), the vocabulary's fingerprint and
the format version. Limits are no part of it: they decide whether tables are made, not what they say.

*Single flight.* Callers that ask for one key at the same time share one compile. Within a process they wait for the
first one's result and get the same tables or the same error. Across processes they wait for a lock in the folder, which
its holder keeps until the tables are on disk. A process that dies frees the lock at once; for one that hangs the others
wait no longer than half the time allowed, then they compile for themselves with what is left. Errors are not kept: the
next call tries again.

Rejected: handing compiles to a pool, as the callers are threads of one already; holding one lock over all tiers, which
would serialise hits.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from schemas_cache.codec import CorruptEntryError
from schemas_cache.compile import CompiledSchema, compile_source
from schemas_cache.disk import DiskTier
from schemas_cache.entries import cache_key, rows_key, tables_from
from schemas_cache.errors import CompileTimeoutError, Finding
from schemas_cache.limits import DEFAULT_LIMITS, Limits
from schemas_cache.schema.options import AdditionalProperties, KeyOrder, SchemaOptions, Whitespace
from schemas_cache.source import Source, schema_source
from schemas_cache.vocabulary import Vocabulary
from schemas_cache.write_behind import WRITE_DELAY_S, Entry, MemoryTier, WriteBehind, known_rows

MEMORY_ENTRIES = 256  # more schemas than one server sees in a day, usually
MEMORY_BYTES = 1 << 30  # as written to disk; most take well under a megabyte
LOCK_SHARE = 0.5  # of the time allowed, for waiting for another process


Tier = Literal["memory", "disk", "miss"]

logger = logging.getLogger(__name__)


class CompileFunction(Protocol):
    """What `compile_source` is to the cache."""

    def __call__(self, source: Source, vocabulary: Vocabulary, *, limits: Limits) -> CompiledSchema:
        """Compile, or raise `SchemaError`."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A compiled schema and where it came from.

    Attributes
    ----------
    compiled : CompiledSchema
    tier : str
        Where the tables came from: `memory`; `disk`; or `miss`, a compile. A caller who waited for another's compile in
        this process says `miss` too, since it paid for one; one who waited for another process's says `disk`.
    compile_ms : float
        What this call took, in milliseconds, waiting included.
    """

    compiled: CompiledSchema
    tier: Tier
    compile_ms: float


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A lookup under way, and how long its leader may compile."""

    timeout_s: float
    result: Future[tuple[CompiledSchema, Tier]] = field(default_factory=Future)


class SchemaCache:
    """Compiled schemas in memory and on disk; safe from several threads, and from several processes on one folder.

    Trouble with the disk (no permission, full, damaged, another program's files) costs a compile and one warning in the
    log, never an error. Learnt mask rows are written behind and merged with those of other processes. Make it after
    forking, not before. `close` it, or leave that to the exit of the interpreter.

    Parameters
    ----------
    folder : Path or None
        Where tables are kept; None for memory only.
    limits : Limits
        For every compile; `timeout_s` of `get` may only shorten it.
    memory_entries, memory_bytes : int
        Bounds of the memory tier; bytes as written to disk, none without a folder. The latest entry always stays.
    write_delay_s : float
        How long learnt rows may wait to be written.
    compile_function, load_function : callable
        What compiles, and what reads dumped tables; for those who wrap either, and for tests.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        limits: Limits = DEFAULT_LIMITS,
        memory_entries: int = MEMORY_ENTRIES,
        memory_bytes: int = MEMORY_BYTES,
        write_delay_s: float = WRITE_DELAY_S,
        compile_function: CompileFunction = compile_source,
        load_function: Callable[[bytes, Source, Vocabulary], CompiledSchema] = CompiledSchema.load,
    ) -> None:
        self.limits = limits
        self._compile, self._load = compile_function, load_function
        self._memory = MemoryTier(memory_entries, memory_bytes)
        self._flights: dict[str, Flight] = {}
        self._boarding = threading.Lock()  # over "in memory, else in flight, else a new flight"
        self._disk: DiskTier | None = None
        self._writer: WriteBehind | None = None
        if folder is not None:
            self._disk = DiskTier(folder)
            self._writer = WriteBehind(self._memory, self._disk, write_delay_s)
            self._close = weakref.finalize(self, self._writer.close)

    def get(self, source: Source, vocabulary: Vocabulary, timeout_s: float | None = None) -> Lookup:
        """Return the compiled schema, from the nearest tier that has it.

        Parameters
        ----------
        source : Source
            What to enforce.
        vocabulary : Vocabulary
            The tokens to enforce it with.
        timeout_s : float, optional
            How long compiling may take, if shorter than the limit.

        Raises
        ------
        SchemaError
            As `compile_source`; `CompileTimeoutError` also where waiting for another caller's compile took longer.
        """
        start_s = time.monotonic()
        longest_s = self.limits.compile_timeout_s
        allowed_s = longest_s if timeout_s is None else min(timeout_s, longest_s)
        key = cache_key(source, vocabulary)
        while True:
            left_s = allowed_s - (time.monotonic() - start_s)
            boarded, leads = self._board(key, left_s)
            found: tuple[CompiledSchema, Tier] | None
            if isinstance(boarded, Entry):
                found = boarded.compiled, "memory"
            elif leads:
                found = self._lead(key, boarded, source, vocabulary)
            else:
                found = _follow(boarded, left_s, allowed_s)
            if found is not None:
                return Lookup(*found, compile_ms=(time.monotonic() - start_s) * 1000)

    def compile_schema(
        self,
        schema: dict[str, Any] | bool,
        vocabulary: Vocabulary,
        *,
        strict: bool = True,
        whitespace: Whitespace = "spaced",
        additional_properties: AdditionalProperties = "closed",
        key_order: KeyOrder = "declared",
    ) -> CompiledSchema:
        """Return a compiled JSON Schema; see `SchemaOptions` for the options and `get` for the errors."""
        options = SchemaOptions(strict, whitespace, additional_properties, key_order)
        return self.get(schema_source(schema, options), vocabulary).compiled

    def flush(self) -> None:
        """Write everything that is not on disk yet; returns when it is."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Write everything and leave the disk alone from now on; the memory tier goes on."""
        if self._writer is not None:
            self._close()

    def _board(self, key: str, timeout_s: float) -> tuple[Entry | Flight, bool]:
        """Return the entry in memory, else the flight to it; and whether the caller has to lead the flight."""
        with self._boarding:
            boarded = self._memory.get(key) or self._flights.get(key)
            if boarded is not None:
                return boarded, False
            flight = self._flights[key] = Flight(timeout_s)
            return flight, True

    def _lead(self, key: str, flight: Flight, source: Source, vocabulary: Vocabulary) -> tuple[CompiledSchema, Tier]:
        """Load or compile for everybody on the flight."""
        try:
            entry = self._from_disk(key, source, vocabulary) or self._from_compile(key, flight, source, vocabulary)
        except BaseException as error:
            with self._boarding:
                del self._flights[key]
            if isinstance(error, Exception):
                flight.result.set_exception(error)
            else:  # an interrupt is this thread's own: the others start again
                flight.result.cancel()
            raise
        tier: Tier = "miss" if entry.tables_generation < 0 else "disk"
        with self._boarding:
            evicted = self._memory.put(entry)
            del self._flights[key]
        flight.result.set_result((entry.compiled, tier))
        self._submit([entry, *evicted])
        return entry.compiled, tier

    def _from_disk(self, key: str, source: Source, vocabulary: Vocabulary) -> Entry | None:
        """Load tables and learnt rows; a corrupt entry is deleted, so that it is written anew."""
        stored = None if self._disk is None else self._disk.get(key)
        if self._disk is None or stored is None:
            return None
        try:
            compiled = self._load(tables_from(stored, key), source, vocabulary)
        except CorruptEntryError as error:
            logger.warning("schema cache: entry %s is corrupt and will be replaced: %s", key, error)
            self._disk.delete(key)
            return None
        entry = Entry(key, compiled, tables_generation=compiled.generation)
        self._add_known_rows(entry)
        entry.rows_generation = compiled.generation
        return entry

    def _from_compile(self, key: str, flight: Flight, source: Source, vocabulary: Vocabulary) -> Entry:
        """Compile, unless another process has while this one waited for the lock."""
        start_s = time.monotonic()
        with ExitStack() as holding:
            hold = None if self._disk is None else self._disk.lock(key, LOCK_SHARE * flight.timeout_s)
            if hold is not None:
                holding.enter_context(hold)
            loaded = self._from_disk(key, source, vocabulary)
            if loaded is not None:
                return loaded
            left_s = flight.timeout_s - (time.monotonic() - start_s)
            compiled = self._compile(source, vocabulary, limits=replace(self.limits, compile_timeout_s=left_s))
            entry = Entry(key, compiled, hold=holding.pop_all())
        self._add_known_rows(entry)
        return entry

    def _add_known_rows(self, entry: Entry) -> None:
        """Give an entry the rows that were learnt before; they outlive tables that were evicted."""
        stored = None if self._disk is None else self._disk.get(rows_key(entry.key))
        rows = known_rows(stored, entry)
        if rows:
            entry.compiled.add_rows(rows)

    def _submit(self, entries: list[Entry]) -> None:
        """Have entries written behind."""
        if self._writer is not None:
            for entry in entries:
                self._writer.submit(entry)


def _follow(flight: Flight, left_s: float, allowed_s: float) -> tuple[CompiledSchema, Tier] | None:
    """Wait for another caller's result; None where it gave up on grounds that do not hold for this one."""
    try:
        return flight.result.result(max(left_s, 0.0))
    except CancelledError:
        return None
    except CompileTimeoutError:
        if flight.timeout_s >= left_s:
            raise
        return None
    except TimeoutError:
        reason = f"compiling took longer than {allowed_s:g} s"
        raise CompileTimeoutError([Finding("#", "", reason, "allow more time, or simplify the schema")]) from None
