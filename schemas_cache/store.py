"""Compiled schemas, each compiled once: from memory, else from disk, else anew.

In: a source and a vocabulary. Out: `Lookup`, the compiled schema with the tier that it came from and the time that this
cost. Cost: a dictionary lookup from memory; a few milliseconds from disk; a compile otherwise.

The key is SHA-256 over the source's digest (content without annotations, and options), the vocabulary's fingerprint and
the format version. Limits are no part of it: they decide whether tables are made, not what they say.

Callers that ask for one key at the same time share one compile. Within a process they wait for the first one's result
and get the same tables or the same error (`flights`). Across processes they wait for a lock in the folder, which
its holder keeps until the tables are on disk. A process that dies frees the lock at once; for one that hangs the others
wait no longer than half the time allowed, then they compile for themselves with what is left. Errors are not kept: the
next call tries again.

Rejected: handing compiles to a pool, as the callers are threads of one already; holding one lock over all tiers, which
would serialise hits.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from schemas_cache.codec import Bytes, CorruptEntryError
from schemas_cache.compile import CompiledSchema, compile_source
from schemas_cache.disk import SIZE_LIMIT_BYTES, DiskTier
from schemas_cache.entries import (
    StoredSchema,
    cache_key,
    created_by,
    describe,
    described_by,
    row_name,
    stamp_of,
    tables_from,
)
from schemas_cache.flights import Flight, Flights, Tier
from schemas_cache.limits import DEFAULT_LIMITS, Limits
from schemas_cache.memory import MEMORY_BYTES, Entry, MemoryTier
from schemas_cache.schema.options import AdditionalProperties, KeyOrder, SchemaOptions, Whitespace
from schemas_cache.source import Source, schema_source
from schemas_cache.vocabulary import Vocabulary
from schemas_cache.write_behind import WRITE_DELAY_S, WriteBehind

MEMORY_ENTRIES = 4096  # beside the bound in bytes: it keeps measuring them all cheap
LOCK_SHARE = 0.5  # of the time allowed, for waiting for another process

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


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """Bytes on disk: of the entries, and of the mask rows that they share."""

    tables_bytes: int = 0
    rows_bytes: int = 0


class SchemaCache:
    """Compiled schemas in memory and on disk; safe from several threads, and from several processes on one folder.

    Trouble with the disk (no permission, full, damaged, another program's files) costs a compile and one warning in the
    log, never an error. What is learnt is written behind and united with what other processes learn. Make it after
    forking, not before. `close` it, or leave that to the exit of the interpreter.

    Parameters
    ----------
    folder : Path or None
        Where tables are kept; None for memory only.
    limits : Limits
        For every compile; `timeout_s` of `get` may only shorten it.
    memory_entries, memory_bytes : int
        Bounds of the memory tier, what is learnt later included. The latest entry always stays.
    size_limit_bytes : int
        Bound of the folder. In both tiers the least recently used entries go first.
    write_delay_s : float
        How long what is learnt may wait to be written.
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
        size_limit_bytes: int = SIZE_LIMIT_BYTES,
        write_delay_s: float = WRITE_DELAY_S,
        compile_function: CompileFunction = compile_source,
        load_function: Callable[[Bytes, Source, Vocabulary], CompiledSchema] = CompiledSchema.load,
    ) -> None:
        self.limits = limits
        self._compile, self._load = compile_function, load_function
        self._memory = MemoryTier(memory_entries, memory_bytes)
        self._flights = Flights(self._memory)
        self._disk: DiskTier | None = None
        self._writer: WriteBehind | None = None
        if folder is not None:
            self._disk = DiskTier(folder, size_limit_bytes)
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
            boarded, leads = self._flights.board(key, left_s)
            found: tuple[CompiledSchema, Tier] | None
            if isinstance(boarded, Entry):
                found = boarded.compiled, "memory"
            elif leads:
                found = self._lead(boarded, source, vocabulary)
            else:
                found = boarded.follow(left_s, allowed_s)
            if found is not None:
                self._submit(self._memory.trim_if_due())
                return Lookup(*found, compile_ms=(time.monotonic() - start_s) * 1000)

    def find(self, source: Source, vocabulary: Vocabulary) -> Lookup | None:
        """Return the compiled schema from memory or disk; None where it has to be compiled, or is on its way."""
        start_s = time.monotonic()
        key = cache_key(source, vocabulary)
        boarded, leads = self._flights.board(key, 0.0)
        if isinstance(boarded, Entry):
            return Lookup(boarded.compiled, "memory", compile_ms=(time.monotonic() - start_s) * 1000)
        entry = self._lead_to_disk(boarded, source, vocabulary) if leads else None
        if entry is None:
            return None
        return Lookup(entry.compiled, "disk", compile_ms=(time.monotonic() - start_s) * 1000)

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

    def entries(self) -> list[StoredSchema]:
        """List what is in memory or on disk, newest first; milliseconds for thousands."""
        stored = [] if self._disk is None else [described_by(value) for value in self._disk.stored()]
        found = {entry.key: entry for entry in stored if entry is not None}
        for entry in self._memory.entries():
            on_disk = found.get(entry.key)
            created_s = entry.created_s if on_disk is None else on_disk.created_s
            about = describe(entry.key, entry.compiled, created_s, entry.last_used_s)
            found[entry.key] = about if on_disk is None else replace(about, size_bytes=on_disk.size_bytes)
        return sorted(found.values(), key=lambda each: each.created_s, reverse=True)

    def entry(self, schema_hash: str) -> StoredSchema | None:
        """Describe the newest entry of a schema; None where there is none."""
        return next((entry for entry in self.entries() if entry.schema_hash == schema_hash), None)

    def delete(self, schema_hash: str) -> int:
        """Remove the entries of a schema, for every vocabulary and all options; how many there were.

        Sequences that use one keep its tables. A process that has them in memory too may store them again.
        """
        keys = {entry.key for entry in self.entries() if entry.schema_hash == schema_hash}
        self._memory.remove(schema_hash)
        if self._disk is not None:
            self._disk.delete(*keys)
        return len(keys)

    def sizes(self) -> CacheSizes:
        """Say what the folder takes; zeros without one."""
        return CacheSizes() if self._disk is None else CacheSizes(self._disk.size_bytes(), self._disk.rows.size_bytes())

    def clear(self) -> int:
        """Remove everything, mask rows too; how many entries there were."""
        count = len(self.entries())
        self._memory.remove(None)
        if self._disk is not None:
            self._disk.clear()
        return count

    def flush(self) -> None:
        """Write everything that is not on disk yet; returns when it is."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Write everything and leave the disk alone from now on; the memory tier goes on."""
        if self._writer is not None:
            self._close()

    def _lead(self, flight: Flight, source: Source, vocabulary: Vocabulary) -> tuple[CompiledSchema, Tier]:
        """Load or compile for everybody on the flight."""
        try:
            entry = self._from_disk(flight.key, source, vocabulary) or self._from_compile(flight, source, vocabulary)
        except BaseException as error:  # an interrupt is this thread's own: the others start again
            self._flights.give_up(flight, error if isinstance(error, Exception) else None)
            raise
        tier: Tier = "miss" if entry.tables_generation < 0 else "disk"
        self._submit([entry, *self._flights.land(flight, entry, tier)])
        return entry.compiled, tier

    def _lead_to_disk(self, flight: Flight, source: Source, vocabulary: Vocabulary) -> Entry | None:
        """Load for everybody on the flight; where there is nothing on disk, they start again."""
        entry: Entry | None = None
        try:
            entry = self._from_disk(flight.key, source, vocabulary)
        finally:
            if entry is None:
                self._flights.give_up(flight, None)
        if entry is not None:
            self._submit([entry, *self._flights.land(flight, entry, "disk")])
        return entry

    def _from_disk(self, key: str, source: Source, vocabulary: Vocabulary) -> Entry | None:
        """Load tables and learnt rows; a corrupt entry is deleted, so that it is written anew."""
        stored, label = (None, "") if self._disk is None else self._disk.get_labelled(key)
        if self._disk is None or stored is None:
            return None
        try:
            compiled = self._load(tables_from(stored, key), source, vocabulary)
        except CorruptEntryError as error:
            logger.warning("schema cache: entry %s is corrupt and will be replaced: %s", key, error)
            self._disk.delete(key)
            return None
        entry = Entry(key, compiled, compiled.generation, compiled.generation, stamp=stamp_of(stored))
        entry.created_s = created_by(label, entry.created_s)
        self._share_rows(entry)
        return entry

    def _from_compile(self, flight: Flight, source: Source, vocabulary: Vocabulary) -> Entry:
        """Compile, unless another process has while this one waited for the lock."""
        start_s = time.monotonic()
        with ExitStack() as holding:
            hold = None if self._disk is None else self._disk.lock(flight.key, LOCK_SHARE * flight.timeout_s)
            if hold is not None:
                holding.enter_context(hold)
            loaded = self._from_disk(flight.key, source, vocabulary)
            if loaded is not None:
                return loaded
            left_s = flight.timeout_s - (time.monotonic() - start_s)
            compiled = self._compile(source, vocabulary, limits=replace(self.limits, compile_timeout_s=left_s))
            entry = Entry(flight.key, compiled, hold=holding.pop_all())
        self._share_rows(entry)
        return entry

    def _share_rows(self, entry: Entry) -> None:
        """Have mask rows looked up among those that were computed before, for this schema or others."""
        if self._disk is not None:
            key, disk, vocabulary = entry.key, self._disk, entry.compiled.vocabulary
            entry.compiled.find_rows(lambda digest: disk.rows.find(vocabulary, row_name(key, digest)))

    def _submit(self, entries: list[Entry]) -> None:
        """Have entries written behind."""
        if self._writer is not None:
            for entry in entries:
                self._writer.submit(entry)
