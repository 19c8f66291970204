"""A compiled schema small enough to see through, and a compiler that counts its calls in a file."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from schemas_cache.codec import CorruptEntryError, pack, unpack
from schemas_cache.limits import Limits
from schemas_cache.source import Source, regex_source
from schemas_cache.store import SchemaCache
from schemas_cache.vocabulary import Vocabulary

VOCABULARY = Vocabulary([b"a", b"b", b""], [2])
ROW_BYTES = 4


class FakeCompiled:
    """Holds its source's digest as its only table, and rows that a test teaches it."""

    def __init__(self, source: Source, vocabulary: Vocabulary, filling: object = "") -> None:
        self.digest, self.vocabulary, self.filling = source.digest, vocabulary, filling
        self.generation = 0
        self.exhausted = False
        self._rows: dict[bytes, bytes] = {}
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Memory taken: what the filling says."""
        return len(str(self.filling))

    def dump(self) -> bytes:
        """Tables as bytes, with all that was learnt."""
        learnt = {digest.hex(): row.hex() for digest, row in self.learned_rows().items()}
        return pack({"digest": self.digest, "filling": self.filling, "rows": learnt}, {})

    @classmethod
    def load(cls, data: bytes, source: Source, vocabulary: Vocabulary) -> FakeCompiled:
        """Tables from bytes."""
        header = unpack(data)[0]
        if header["digest"] != source.digest:
            raise CorruptEntryError("tables of another source")
        loaded = cls(source, vocabulary, header["filling"])
        loaded.add_rows({bytes.fromhex(digest): bytes.fromhex(row) for digest, row in header["rows"].items()})
        return loaded

    def learned_rows(self) -> dict[bytes, bytes]:
        """All rows so far."""
        with self._lock:
            return dict(self._rows)

    def add_rows(self, rows: dict[bytes, bytes]) -> None:
        """Take rows that another process learnt."""
        with self._lock:
            self.generation += len(rows.keys() - self._rows.keys())
            self._rows |= rows

    def learn(self, *numbers: int) -> None:
        """Learn one row for each number."""
        self.add_rows(rows(*numbers))


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
