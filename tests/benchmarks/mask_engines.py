"""One engine in a process of its own: schemas and tokens in, times out. Started by `bench_maskbench.py`.

    python mask_engines.py ENGINE TOKENIZER_JSON [CACHE_FOLDER]

In: a JSON line for each schema, its text and the token ids of its documents. Out: a JSON line for each, times in
nanoseconds of CPU by mode, or why it was refused; at the end of the input, the peak of the resident memory. A rival
runs in any interpreter that has it and numpy; ours imports the package beside this file.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import MagicMock

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

with suppress(ImportError):  # a rival's interpreter need not have what ours needs
    from schemas_cache import SchemaCache, Vocabulary
    from schemas_cache.errors import ForbiddenTokenError
    from schemas_cache.schema.options import SchemaOptions
    from schemas_cache.source import schema_source
    from schemas_cache.token_index import token_index

END_ID = 2  # <|im_end|>
VOCABULARY = 49_152
MAX_REASON = 200
Result = dict[str, Any]


class Walk(Protocol):
    """One document on its way."""

    def mask(self) -> object:
        """Work out which tokens may come next."""

    def take(self, token_id: int) -> bool:
        """Take a token; False where it is not allowed."""


Start = Callable[[], Walk]


class Engine(Protocol):
    """What makes walks from the text of a schema."""

    version: str

    def modes(self, schema: str) -> Iterator[tuple[str, Callable[[], Start]]]:
        """Ways to come to a schema's tables, each measured over all documents before the next is asked for."""


class LLGuidance:
    """llguidance by its Python binding, with the slices for JSON that it is made with by default."""

    def __init__(self, tokenizer: Path) -> None:
        import llguidance
        import llguidance.numpy as masks

        self.version = f"llguidance {llguidance.__version__}"
        self.library, self.masks = llguidance, masks
        self.tokenizer = llguidance.LLTokenizer(tokenizer.read_text("utf-8"), eos_token=END_ID)
        self.bitmask = masks.allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def modes(self, schema: str) -> Iterator[tuple[str, Callable[[], Start]]]:
        """One mode: its compiler keeps nothing."""
        yield "llguidance", lambda: self._compile(schema)

    def _compile(self, schema: str) -> Start:
        matcher_type = self.library.LLMatcher
        matcher = matcher_type(self.tokenizer, matcher_type.grammar_from_json_schema(schema))
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return lambda: _LLGuidanceWalk(self, matcher.deep_copy())


@dataclass
class _LLGuidanceWalk:
    engine: LLGuidance
    matcher: Any

    def mask(self) -> object:
        self.engine.masks.fill_next_token_bitmask(self.matcher, self.engine.bitmask, 0)
        if self.matcher.is_error():
            raise ValueError(self.matcher.get_error())
        return self.engine.bitmask

    def take(self, token_id: int) -> bool:
        return bool(self.matcher.consume_token(token_id))


class XGrammar:
    """xgrammar on one thread, objects open, any whitespace.

    It imports torch for tensors and transformers for their tokenizers, of which nothing here makes one: where they are
    not installed, placeholders stand in for them.
    """

    def __init__(self, tokenizer: Path) -> None:
        import tvm_ffi  # noqa: F401  # first, since it looks for torch as well and takes the placeholder for it

        for name in ("torch", "transformers"):
            if find_spec(name) is None:
                sys.modules[name] = MagicMock()
        import xgrammar

        self.version = f"xgrammar {version('xgrammar')}"
        self.library = xgrammar
        pieces = json.loads(tokenizer.read_text("utf-8"))["model"]["vocab"]
        ordered = sorted(pieces, key=pieces.__getitem__)
        kind = xgrammar.VocabType.BYTE_LEVEL
        info = xgrammar.TokenizerInfo(ordered, kind, vocab_size=VOCABULARY, stop_token_ids=[END_ID])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bitmask = np.full((1, (VOCABULARY + 31) // 32), -1, np.int32)

    def modes(self, schema: str) -> Iterator[tuple[str, Callable[[], Start]]]:
        """One mode, without its cache of whole schemas."""
        yield "xgrammar", lambda: self._compile(schema)

    def _compile(self, schema: str) -> Start:
        compiled = self.compiler.compile_json_schema(schema, any_whitespace=True, strict_mode=False)
        return lambda: _XGrammarWalk(self, self.library.GrammarMatcher(compiled))


@dataclass
class _XGrammarWalk:
    engine: XGrammar
    matcher: Any

    def mask(self) -> object:
        return self.matcher.fill_next_token_bitmask(self.engine.bitmask, 0)

    def take(self, token_id: int) -> bool:
        return bool(self.matcher.accept_token(token_id))


class Ours:
    """The compiler of this project: at first visit, and again; what it learnt is left in the folder for `FromDisk`."""

    def __init__(self, tokenizer: Path, folder: Path) -> None:
        self.version = f"katagami {version('katagami')}"
        self.folder = folder
        self.vocabulary = Vocabulary.from_tokenizer_json(tokenizer, end_ids=[END_ID])
        _warm_up(self)

    def modes(self, schema: str) -> Iterator[tuple[str, Callable[[], Start]]]:
        """First with nothing of any schema, then with the tables in memory; at last writes them, unmeasured."""
        cache = SchemaCache(None, memory_entries=1)
        token_index(self.vocabulary).shared_rows.clear()
        yield "ours, first visit", lambda: self._look_up(cache, schema)
        yield "ours, warm", lambda: self._look_up(cache, schema)
        source, compiled = self._source(schema), self._compiled(cache, schema)
        written = SchemaCache(self.folder, compile_function=lambda *_, **__: compiled)
        written.get(source, self.vocabulary)
        written.close()

    def _source(self, schema: str) -> Any:
        return schema_source(json.loads(schema), SchemaOptions(additional_properties="open"))

    def _compiled(self, cache: Any, schema: str) -> Any:
        return cache.get(self._source(schema), self.vocabulary).compiled

    def _look_up(self, cache: Any, schema: str) -> Start:
        compiled = self._compiled(cache, schema)
        return lambda: _OurWalk(compiled.matcher())


class OtherSchemas(Ours):
    """The compiler of this project in a process that has met other schemas, and keeps what it can share of them."""

    def modes(self, schema: str) -> Iterator[tuple[str, Callable[[], Start]]]:
        """With nothing of this schema."""
        cache = SchemaCache(None, memory_entries=1)
        yield "ours, other schemas", lambda: self._look_up(cache, schema)


class FromDisk(Ours):
    """The compiler of this project in another process, on the folder that the first has written."""

    def __init__(self, tokenizer: Path, folder: Path) -> None:
        super().__init__(tokenizer, folder)
        self.cache = SchemaCache(folder, memory_entries=1, write_delay_s=3600.0)
        self.cache.get(self._source('{"const": 1}'), self.vocabulary)  # opens the files, as a server does at its start

    def modes(self, schema: str) -> Iterator[tuple[str, Callable[[], Start]]]:
        """A cache that has another schema in memory at most; nothing is written again."""
        token_index(self.vocabulary).shared_rows.clear()
        yield "ours, from disk", lambda: self._from_disk(schema)

    def _from_disk(self, schema: str) -> Start:
        found = self.cache.get(self._source(schema), self.vocabulary)
        if found.tier == "miss":  # in memory it is where the schema before was the same
            raise ValueError("not on disk")
        return lambda: _OurWalk(found.compiled.matcher())


@dataclass
class _OurWalk:
    matcher: Any

    def mask(self) -> object:
        return self.matcher.mask()

    def take(self, token_id: int) -> bool:
        try:
            self.matcher.advance(token_id)
        except ForbiddenTokenError:
            return False
        return True


def _warm_up(engine: Ours) -> None:
    """Build what is built once for a vocabulary, as a server does at its start; the rivals' constructors do."""
    engine._look_up(_memory_only(), '{"const": 1}')().mask()


def _memory_only() -> Any:
    return SchemaCache(None, memory_entries=1)


def measure(start_compile: Callable[[], Start], documents: list[list[int]]) -> Result:
    """Time one mode over one schema."""
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    try:
        start = start_compile()
        start().mask()
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"[:MAX_REASON]}
    first = time.process_time_ns() - cpu
    first_wall = time.perf_counter_ns() - wall
    masks: list[int] = []
    takes: list[int] = []
    try:
        unfinished = sum(not _walk(start(), document, masks, takes) for document in documents)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"[:MAX_REASON]}
    return {"first": first, "first_wall": first_wall, "masks": masks, "takes": takes, "unfinished": unfinished}


def _walk(walk: Walk, document: list[int], masks: list[int], takes: list[int]) -> bool:
    """Whether the document was taken to its end."""
    clock = time.process_time_ns
    for token_id in document:
        begin = clock()
        walk.mask()
        between = clock()
        allowed = walk.take(token_id)
        takes.append(clock() - between)
        masks.append(between - begin)
        if not allowed:
            return False
    return True


def peak_kib() -> int:
    """The most memory that was resident; `ru_maxrss` would count that of the process which started this one."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


ENGINES: dict[str, Callable[[Path, Path], Engine]] = {
    "ours": Ours,
    "disk": FromDisk,
    "others": OtherSchemas,
    "llguidance": lambda tokenizer, _: LLGuidance(tokenizer),
    "xgrammar": lambda tokenizer, _: XGrammar(tokenizer),
}


def main() -> None:
    """Serve schemas until the input ends."""
    name, tokenizer, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    try:
        engine = ENGINES[name](tokenizer, folder)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        return
    print(json.dumps({"version": engine.version}), flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        reply = {}
        for mode, start_compile in engine.modes(case["schema"]):
            reply[mode] = measure(start_compile, case["documents"])
            if "refused" in reply[mode]:
                break
        print(json.dumps(reply), flush=True)
    print(json.dumps({"peak_kib": peak_kib()}), flush=True)


if __name__ == "__main__":
    main()
