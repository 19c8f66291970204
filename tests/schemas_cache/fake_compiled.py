"""A compiled schema small enough to see through, and a compiler that counts its calls in a file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schemas_cache.codec import Bytes, CorruptEntryError, pack, unpack
from schemas_cache.limits import Limits
from schemas_cache.shared_rows import SharedRows
from schemas_cache.source import Source, regex_source
from schemas_cache.store import SchemaCache
from schemas_cache.vocabulary import Vocabulary

VOCABULARY = Vocabulary([b"a", b"b", b""], [2])
ROW_BYTES = 4


class FakeCompiled:
    """Holds its source's digest as its only table, and states and rows that a test teaches it."""

    minimum_tokens = 1

    def __init__(self, source: Source, vocabulary: Vocabulary, filling: object = "") -> None:
        self.source, self.vocabulary, self.filling = source, vocabulary, filling
        self.digest, self.schema_hash = source.digest, source.schema_hash
        self.exhausted, self.shared_rows = False, SharedRows()
        self.known: set[int] = set()
        self._rows: dict[bytes, bytes] = {}
        self._find: Callable[[bytes], bytes | None] = lambda _: None
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Memory taken: what the filling says, and 1,000 bytes for what was learnt."""
        return len(str(self.filling)) + 1000 * len(self.known)

    @property
    def generation(self) -> int:
        """How much is known."""
        return len(self.known)

    states = generation

    @property
    def rows(self) -> int:
        """How many rows are known."""
        return len(self._rows)

    rows_computed = rows

    def dump(self, *, with_rows: bool = True) -> bytes:  # noqa: ARG002  # rows are none of its tables
        """Tables as bytes, with all that was learnt."""
        with self._lock:
            return pack({"digest": self.digest, "filling": self.filling, "known": sorted(self.known)}, {})

    @classmethod
    def load(cls, data: Bytes, source: Source, vocabulary: Vocabulary) -> FakeCompiled:
        """Tables from bytes."""
        loaded = cls(source, vocabulary, unpack(data)[0]["filling"])
        loaded.unite(data)
        return loaded

    def unite(self, data: Bytes) -> None:
        """Learn what the bytes of another hold."""
        header = unpack(data)[0]
        if header["digest"] != self.digest:
            raise CorruptEntryError("tables of another source")
        with self._lock:
            self.known |= set(header["known"])

    def computed_rows(self, since: int) -> dict[bytes, bytes]:
        """Rows that were learnt here."""
        with self._lock:
            return dict(list(self._rows.items())[since:])

    def find_rows(self, find: Callable[[bytes], bytes | None]) -> None:
        """Have rows looked up."""
        self._find = find

    def find(self, *numbers: int) -> list[bool]:
        """Whether the rows that stand for the numbers are right where they are looked up."""
        return [self._find(name) == row for name, row in rows(*numbers).items()]

    def learn(self, *numbers: int) -> None:
        """Learn one state and one row for each number."""
        with self._lock:
            self.known |= set(numbers)
            self._rows |= rows(*numbers)


def rows(*numbers: int) -> dict[bytes, bytes]:
    """Digest and bits that stand for each number."""
    return {n.to_bytes(16, "little"): n.to_bytes(ROW_BYTES, "little") for n in numbers}


class CountingCompiler:
    """Appends a line to a file for every call, waits, then raises the next of `errors` or compiles."""

    def __init__(self, log: Path, delay_s: float = 0.0) -> None:
        self.log, self.delay_s = log, delay_s
        self.gate = threading.Event()
        self.gate.set()
        self.errors: list[BaseException] = []
        self.filling: object = ""
        self.limits: list[Limits] = []

    def __call__(self, source: Source, vocabulary: Vocabulary, *, limits: Limits) -> Any:
        """Compile."""
        self.limits.append(limits)
        with self.log.open("a") as file:
            file.write(source.digest + "\n")
        time.sleep(self.delay_s)
        assert self.gate.wait(10)
        if self.errors:
            raise self.errors.pop(0)
        return FakeCompiled(source, vocabulary, self.filling)

    @property
    def calls(self) -> int:
        """How often anybody called, in all processes that share the file."""
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


def open_cache(folder: Path | None, compiler: CountingCompiler, **options: Any) -> SchemaCache:
    """Make a cache over fakes; rows are written by `flush` and `close` alone unless a delay is given."""
    load: Any = FakeCompiled.load
    options = {"write_delay_s": 3600.0} | options
    return SchemaCache(folder, compile_function=compiler, load_function=load, **options)


def source(number: int = 0) -> Source:
    """Make one of many sources, equal for equal numbers."""
    return regex_source("a" * (number + 1))
