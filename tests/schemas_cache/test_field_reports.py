"""Cases distilled from faults that users of such systems reported: schemas, masks, matchers, limits of compiling."""

from __future__ import annotations

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from schemas_cache import (
    CompiledSchema,
    Matcher,
    SchemaCache,
    SchemaError,
    Vocabulary,
    compile_schema,
    compile_source,
    schema_source,
)
from schemas_cache.automaton import START
from schemas_cache.pieces import Spelling, piece_bytes

CASES_FILE = Path(__file__).parents[3] / "shared" / "cases" / "field_reports.json"
CASES: list[dict[str, Any]] = json.loads(CASES_FILE.read_text()) if CASES_FILE.exists() else []
BYTES = Vocabulary([bytes([byte]) for byte in range(256)], [])

pytestmark = pytest.mark.skipif(not CASES, reason="the folder `shared` with the cases is not beside the repository")

# Keywords that the compiler does not enforce yet: such a schema has to be refused by name, never accepted as if less.
NOT_YET = {
    "s-pattern-lookahead": "pattern",
}


def of_kind(kind: str, *fields: str) -> list[Any]:
    """List the cases of a kind that have these fields."""
    return [pytest.param(c, id=c["id"]) for c in CASES if c["kind"] == kind and all(field in c for field in fields)]


def case_by_id(name: str) -> dict[str, Any]:
    """Find one case."""
    return next(case for case in CASES if case["id"] == name)


def compiled(case: dict[str, Any]) -> CompiledSchema:
    """Compile a case's schema as the case wants it read."""
    schema = json.loads(case["schema_text"]) if "schema_text" in case else case["schema"]
    reading = "open" if case.get("assumes_open_objects") else "closed"
    return compile_schema(schema, BYTES, additional_properties=reading)  # type: ignore[arg-type]  # one of the two


def accepts(schema: CompiledSchema, text: str) -> bool:
    """Whether the automaton takes a whole text."""
    automaton = schema.tokens.automaton
    return automaton.accepting[automaton.walk(START, text.encode("utf-8", "surrogatepass"))]


@pytest.mark.parametrize("case", of_kind("schema"))
def test_schema(case: dict[str, Any]) -> None:
    """Every text to accept is accepted, every text to reject refused; what is not enforced yet is refused by name."""
    if case["id"] in NOT_YET:
        with pytest.raises(SchemaError) as caught:
            compiled(case)
        assert NOT_YET[case["id"]] in {finding.keyword for finding in caught.value.findings}
        return
    schema = compiled(case)
    canonical = [text for text in case["accept"] if isinstance(text, str)]
    assert [text for text in canonical if not accepts(schema, text)] == []
    rejected = [text if isinstance(text, str) else text["text"] for text in case["reject"]]
    assert [text for text in rejected if accepts(schema, text)] == []


def vocabulary_of(case: dict[str, Any]) -> Vocabulary:
    """Read the tokens of an engine case."""
    return Vocabulary([bytes.fromhex(token) for token in case["vocab"]], case["eos"])


@pytest.mark.parametrize("case", of_kind("engine", "probes", "vocab"))
def test_probes(case: dict[str, Any]) -> None:
    """After the given tokens these are allowed and those are not; one mask agrees with single questions."""
    schema = compile_schema(case["schema"], vocabulary_of(case))
    for probe in case["probes"]:
        matcher = schema.matcher()
        for token_id in probe["after"]:
            matcher.advance(token_id)
        assert [t for t in probe["allow"] if not matcher.allows(t)] == []
        assert [t for t in probe["forbid"] if matcher.allows(t)] == []
        words = matcher.mask()
        wide = [t for t in range(32 * len(words)) if int(words[t // 32]) >> (t % 32) & 1]
        assert wide == [t for t in range(len(case["vocab"])) if matcher.allows(t)]


@pytest.mark.parametrize("case", of_kind("engine", "script"))
def test_scripts_and_forks(case: dict[str, Any]) -> None:
    """A script can be fed to its end, and so can each fork of it."""
    matcher = compile_schema(case["schema"], vocabulary_of(case)).matcher()
    feed(matcher, case["script"])
    forks = case.get("forks", [[]])
    results = case["result"] if isinstance(case["result"], list) else [case["result"]]
    for tail, expected in zip(forks, results, strict=True):
        fork = matcher.fork()
        feed(fork, tail)
        assert fork.finished
        assert b"".join(fork.tokens.index.vocabulary.token_bytes[t] for t in case["script"] + tail) == expected.encode()


def feed(matcher: Matcher, token_ids: list[int]) -> None:
    """Advance over tokens."""
    for token_id in token_ids:
        matcher.advance(token_id)


def test_drafts_are_kept_up_to_the_first_illegal_token() -> None:
    """Case e-drafts-are-checked: a fork takes what is legal of a draft."""
    case = case_by_id("e-drafts-are-checked")
    matcher = compile_schema(case["schema"], vocabulary_of(case)).matcher()
    kept = 0
    while matcher.allows(case["draft"][kept]):
        matcher.advance(case["draft"][kept])
        kept += 1
    assert kept == case["keep"]


def test_pieces_of_byte_fallback_tokenizers() -> None:
    """Case e-byte-fallback-pieces: a piece for one byte is that byte, and marks of other families stay as they are."""
    for piece, expected in case_by_id("e-byte-fallback-pieces")["pieces"]["map"]:
        data = b"" if piece in ("<s>", "</s>") else piece_bytes(piece, Spelling(blank_sign=True, byte_names=True))
        assert data.hex() == expected


@pytest.mark.parametrize("schema", case_by_id("e-length-threshold")["schemas"] if CASES else [])
def test_length_thresholds(schema: dict[str, Any]) -> None:
    """Case e-length-threshold: exactly as many as the bound says."""
    if schema["type"] == "string":
        texts = [f'"{"a" * (schema["maxLength"] + more)}"' for more in (0, 1)]
    else:
        texts = [json.dumps([1] * (schema["maxItems"] + more)) for more in (0, 1)]
    assert [accepts(compile_schema(schema, BYTES), text) for text in texts] == [True, False]


def test_cache_knows_the_order_of_properties(tmp_path: Path) -> None:
    """Case e-cache-knows-order: two orders are two entries, a repeat of either is a hit."""
    case = case_by_id("e-cache-knows-order")
    with_order = [schema_source(schema) for schema in case["schemas"]]
    cache = SchemaCache(tmp_path)
    found = [cache.get(source, BYTES).compiled.matcher().shortest().decode() for source in with_order]
    assert found == case["result"]
    assert [cache.get(source, BYTES).tier for source in reversed(with_order)] == ["memory", "memory"]
    cache.close()


def test_equal_requests_compile_once() -> None:
    """Case e-cache-is-hit: a hundred equal schemas, parsed from separate texts."""
    text, compiles = json.dumps(case_by_id("e-cache-is-hit")["schema"]), list[str]()

    def counting(*args: Any, **kwargs: Any) -> CompiledSchema:
        compiles.append("compiled")
        return compile_source(*args, **kwargs)

    cache = SchemaCache(None, compile_function=counting)
    tiers = [cache.get(schema_source(json.loads(text)), BYTES).tier for _ in range(100)]
    assert (tiers[0], set(tiers[1:]), len(compiles)) == ("miss", {"memory"}, 1)


def words_vocabulary(size: int) -> Vocabulary:
    """Build single bytes and made-up words, `size` tokens in all."""
    words = (f"{head}{number}".encode() for number in range(size) for head in ("", " ", "w"))
    tokens = dict.fromkeys([bytes([byte]) for byte in range(256)])
    while len(tokens) < size:
        tokens[next(words)] = None
    return Vocabulary(list(tokens), [])


def test_nested_bounds_compile_small() -> None:
    """Case e-compile-nested-bounds: bounds add up instead of multiplying, and stay exact."""
    case = case_by_id("e-compile-nested-bounds")
    vocabulary = words_vocabulary(case["vocab_size"])
    tracemalloc.start()
    schema = compile_schema(case["schema"], vocabulary)
    assert tracemalloc.get_traced_memory()[1] < case["limits"]["megabytes"] * 2**20
    tracemalloc.stop()
    full = [["x" * 60] * 30] * 30
    texts = [json.dumps({"a": "", "b": [], "c": c}) for c in (full, [*full, []], [["x" * 61]], [["x"] * 31])]
    assert [accepts(schema, text) for text in texts] == [True, False, False, False]


def test_large_enumeration_answers_anywhere() -> None:
    """Case e-compile-large-enum-first-mask: exact, and the members are a prefix tree, not 2,000 threads."""
    case = case_by_id("e-compile-large-enum-first-mask")
    recipe = case["schema_recipe"]
    members = [recipe["enum_text"] % number for number in range(recipe["enum_count"])]
    schema = compile_schema({"enum": members}, words_vocabulary(case["vocab_size"]))
    assert all(accepts(schema, text) for text in case["accept"])
    assert not any(accepts(schema, text) for text in case["reject"])
    matcher = schema.matcher()
    matcher.advance_bytes(b'"' + b"0" * 46)
    before = time.thread_time()
    matcher.mask()
    assert time.thread_time() - before < 5  # a hang, not a speed: the benchmark has the figure
    assert max(map(len, schema.tokens.automaton.configurations)) < 10


def test_masks_in_a_free_string_are_shared() -> None:
    """Case e-mask-cost-in-strings: position after position has the row of the first."""
    case = case_by_id("e-mask-cost-in-strings")
    schema = compile_schema(case["schema"], words_vocabulary(case["vocab_size"]))
    matcher = schema.matcher()
    matcher.advance_bytes(b'{"t": "')
    matcher.mask()
    rows = len(schema.tokens.rows)
    for _ in range(200):
        matcher.advance_bytes(b"a")
        matcher.mask()
    assert len(schema.tokens.rows) == rows
