"""Schemas made to be expensive, and what it takes to look at one: compile, first mask, a walk with all masks.

In: a case. Out: `Outcome`: that it works, or by which error it is refused, and how long each part took. Used by the
tests, which look at what comes out, and by the benchmark, which looks at times and memory.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from schemas_cache import SchemaError, Source, Vocabulary, compile_source, regex_source, schema_source


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes
    ----------
    refused : str
        The error's text with its code in front; empty where the schema works.
    compile_s, mask_s, walk_s : float
        Processor seconds to compile or to refuse, to the first mask, and for the walk with the masks on the way.
    tokens : int
        Tokens that were walked.
    """

    refused: str
    compile_s: float
    mask_s: float = 0.0
    walk_s: float = 0.0
    tokens: int = 0


@dataclass(frozen=True)
class Hostile:
    """A schema, or a pattern where it is text, and a document that it accepts; both built when they are asked for."""

    schema: Callable[[], Any]
    document: Callable[[], Any]

    def source(self) -> Source:
        """What to compile."""
        schema = self.schema()
        return regex_source(schema) if isinstance(schema, str) else schema_source(schema)

    def text(self) -> str:
        """The document as the compiler writes it; what a pattern matches as it stands."""
        return self.document() if isinstance(self.schema(), str) else as_written(self.document())


def examine(case: Hostile, vocabulary: Vocabulary) -> Outcome:
    """Compile, take the first mask, and walk the document with all masks on the way."""
    source, text = case.source(), case.text()
    times = [time.process_time()]
    tokens = 0
    try:
        matcher = compile_source(source, vocabulary).matcher()
        times.append(time.process_time())
        matcher.mask()
        times.append(time.process_time())
        for token_id in greedy(vocabulary, text.encode()):
            if not matcher.mask()[token_id // 32] >> (token_id % 32) & 1:
                raise AssertionError(f"token {token_id} is not allowed after {tokens} tokens")
            matcher.advance(token_id)
            tokens += 1
        if not matcher.accepting:
            raise AssertionError("the document is not complete")
    except SchemaError as error:
        times.append(time.process_time())
        return Outcome(f"{error.code}: {error}", *spans(times), tokens=tokens)
    times.append(time.process_time())
    return Outcome("", *spans(times), tokens=tokens)


def as_written(document: Any) -> str:
    """JSON as the compiler writes it; nesting costs no stack where it is arrays alone."""
    levels = 0
    while isinstance(document, list) and len(document) == 1:
        document, levels = document[0], levels + 1
    return "[" * levels + json.dumps(document, ensure_ascii=False) + "]" * levels


def spans(times: list[float]) -> list[float]:
    """Seconds between moments."""
    return [after - before for before, after in pairwise(times)]


def greedy(vocabulary: Vocabulary, data: bytes) -> Iterator[int]:
    """The longest token that fits, from left to right."""
    ids = {token: number for number, token in reversed(list(enumerate(vocabulary.token_bytes))) if token}
    start = 0
    while start < len(data):
        lengths = range(min(vocabulary.longest_token_bytes, len(data) - start), 0, -1)
        length = next(length for length in lengths if data[start : start + length] in ids)
        yield ids[data[start : start + length]]
        start += length


def nested(levels: int, word: str = "items") -> Any:
    """A schema inside a schema inside a schema."""
    schema: Any = {"type": "null"}
    for _ in range(levels):
        schema = {"type": "array", word: schema} if word == "items" else {word: [schema]}
    return schema


def deep(levels: int, value: Any = None) -> Any:
    """An array inside an array inside an array."""
    for _ in range(levels):
        value = [value]
    return value


def strings(pattern: str) -> dict[str, Any]:
    """Strings of a pattern."""
    return {"type": "string", "pattern": pattern}


def objects(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Closed objects that have all of these."""
    return {"type": "object", "properties": properties, "required": list(properties), **more}


def chain(length: int) -> dict[str, Any]:
    """References to references."""
    links: dict[str, Any] = {f"n{i}": {"$ref": f"#/$defs/n{i + 1}"} for i in range(length)}
    return {"$ref": "#/$defs/n0", "$defs": {**links, f"n{length}": {"type": "integer"}}}


def tower(levels: int) -> dict[str, Any]:
    """Definitions each of which has the next one twice: two to the power of `levels` values."""
    links = {f"n{i}": objects({w: {"$ref": f"#/$defs/n{i + 1}"} for w in "ab"}) for i in range(levels)}
    return {"$ref": "#/$defs/n0", "$defs": {**links, f"n{levels}": {"type": "null"}}}


def tower_document(levels: int) -> Any:
    """The smallest document of a tower."""
    return {w: tower_document(levels - 1) for w in "ab"} if levels else None


def overlapping_recursion(branches: int) -> dict[str, Any]:
    """Lists by branches that all begin alike and differ in what stands at the end."""
    node = [{"type": "array", "items": {"$ref": "#"}, "maxItems": i + 1} for i in range(branches)]
    return {"anyOf": [{"type": "integer"}, *node]}


def overlapping_objects(branches: int) -> dict[str, Any]:
    """Recursive objects whose branches differ in their last member alone."""
    shared = {"left": {"$ref": "#"}, "right": {"$ref": "#"}}
    node = [objects({**shared, f"end{i}": {"type": "null"}}) for i in range(branches)]
    return {"anyOf": [{"type": "null"}, *node]}


def exclusive(branches: int) -> dict[str, Any]:
    """A `oneOf` of objects that a constant tells apart."""
    return {"oneOf": [objects({"kind": {"const": f"k{i}"}, "value": {"type": "integer"}}) for i in range(branches)]}


def multiplying(factors: int, branches: int) -> dict[str, Any]:
    """An `allOf` of `anyOf`s, which multiply."""
    return {
        "type": "object",
        "allOf": [
            {"anyOf": [{"properties": {f"p{i}": {"const": j}}, "required": [f"p{i}"]} for j in range(branches)]}
            for i in range(factors)
        ],
    }


def conjunction(parts: int) -> dict[str, Any]:
    """An `allOf` of many objects with a property each."""
    return {"allOf": [objects({f"p{i}": {"type": "integer"}}) for i in range(parts)]}


def web(names: int) -> dict[str, Any]:
    """Optional properties each of which asks for the next ones."""
    properties = {f"p{i}": {"type": "integer"} for i in range(names)}
    asks = {f"p{i}": {"required": [f"p{(i + 1) % names}", f"p{(i + 2) % names}"]} for i in range(names)}
    return {"type": "object", "properties": properties, "dependentSchemas": asks}


def key_patterns(count: int, pattern: str) -> dict[str, Any]:
    """An object whose names go by patterns; `%d` in them is the number."""
    kinds = {pattern % i if "%" in pattern else pattern: {"type": "integer"} for i in range(count)}
    return {"type": "object", "patternProperties": kinds, "additionalProperties": False}


def recursion_by_primes(*primes: int) -> dict[str, Any]:
    """Chains of objects whose lengths are multiples of each of these: they meet in as many places as the product."""
    links = {
        f"c{p}_{i}": {
            "type": "object",
            "properties": {"n": {"$ref": f"#/$defs/c{p}_{(i + 1) % p}"}},
            "required": ["n"] if i else [],
        }
        for p in primes
        for i in range(p)
    }
    return {"allOf": [{"$ref": f"#/$defs/c{p}_0"} for p in primes], "$defs": links}


def doubling(levels: int) -> dict[str, Any]:
    """Definitions each of which is the next one or a list of it."""
    links: dict[str, Any] = {
        f"n{i}": {"anyOf": [{"$ref": f"#/$defs/n{i + 1}"}, {"type": "array", "items": {"$ref": f"#/$defs/n{i + 1}"}}]}
        for i in range(levels)
    }
    return {"$ref": "#/$defs/n0", "$defs": {**links, f"n{levels}": {"type": "integer"}}}


def either_case() -> str:
    """Runs of a letter, small or capital, of every length up to 39."""
    return "(" + "|".join(f"[{c}{c.upper()}]{{{n}}}" for n in range(1, 40) for c in "abcdefgh") + "){1,50}"


def grid(rows: int, columns: int) -> dict[str, Any]:
    """Arrays in an array, both of a fixed length."""
    row = {"type": "array", "items": {"type": "integer"}, "minItems": columns, "maxItems": columns}
    return {"type": "array", "items": row, "minItems": rows, "maxItems": rows}


OPEN_OBJECT = {
    "type": "object",
    "properties": {"aa": True, "ab": True},
    "additionalProperties": {"type": "integer"},
}
COUNTS_IN_COUNTS = "((a{1,50}){1,50}){1,50}"

CASES: dict[str, Hostile] = {
    "schema nested 1,000 levels": Hostile(lambda: nested(1_000), lambda: deep(1_000)),
    "schema nested 62 levels": Hostile(lambda: nested(62), lambda: deep(62)),
    "allOf nested 30 levels": Hostile(lambda: nested(30, "allOf"), lambda: None),
    "document nested 1,000 levels": Hostile(
        lambda: {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]}, lambda: deep(1_000)
    ),
    "any JSON nested 1,000 levels": Hostile(lambda: True, lambda: deep(1_000, {"a": 1})),
    "references in a chain of 5,000": Hostile(lambda: chain(5_000), lambda: 7),
    "references that double 200 times": Hostile(lambda: tower(200), lambda: None),
    "references that double 9 times": Hostile(lambda: tower(9), lambda: tower_document(9)),
    "20,000 enum values": Hostile(lambda: {"enum": [f"value {i:05}" for i in range(20_000)]}, lambda: "value 19999"),
    "20,000 enum values of 40 characters": Hostile(
        lambda: {"enum": [f"{i * 7919 % 20_011:05}" * 8 for i in range(20_000)]}, lambda: "07919" * 8
    ),
    "20,000 enum numbers": Hostile(lambda: {"enum": list(range(20_000))}, lambda: 19_999),
    "20,001 enum values": Hostile(lambda: {"enum": list(range(20_001))}, lambda: 1),
    "enum of 20,000 under a pattern": Hostile(
        lambda: {"enum": [f"v{i}" for i in range(20_000)], "pattern": "^v[0-9]*7$"}, lambda: "v17"
    ),
    "not in 5,000 values": Hostile(
        lambda: {"type": "string", "not": {"enum": [f"v{i}" for i in range(5_000)]}}, lambda: "v5000"
    ),
    "maxLength 1,000,000": Hostile(lambda: {"type": "string", "maxLength": 1_000_000}, lambda: "ab " * 3_000),
    "minLength 1,000,000": Hostile(lambda: {"type": "string", "minLength": 1_000_000}, lambda: ""),
    "minLength 50,000": Hostile(lambda: {"type": "string", "minLength": 50_000}, lambda: "ab" * 25_000),
    "pattern and maxLength 1,000,000": Hostile(
        lambda: {**strings("^([a-z]+ )*[a-z]+$"), "maxLength": 1_000_000}, lambda: "some words " * 300 + "x"
    ),
    "unanchored pattern and maxLength 100,000": Hostile(
        lambda: {**strings("[0-9]{3}-[0-9]{4}"), "maxLength": 100_000}, lambda: "call 555-1234 now"
    ),
    "two patterns and a length": Hostile(
        lambda: {"allOf": [strings("a.{20}b"), strings("c.{20}d")], "maxLength": 3_000}, lambda: "ac" + "x" * 19 + "bd"
    ),
    "maxItems 1,000,000": Hostile(lambda: {"type": "array", "maxItems": 1_000_000}, lambda: [1] * 500),
    "minItems 20,000": Hostile(
        lambda: {"type": "array", "items": {"type": "integer"}, "minItems": 20_000}, lambda: [1] * 20_000
    ),
    "minItems 1,000,000": Hostile(lambda: {"type": "array", "items": {"type": "null"}, "minItems": 10**6}, list),
    "counts in counts": Hostile(lambda: COUNTS_IN_COUNTS, lambda: "a" * 5_000),
    "counts in counts, as a string": Hostile(lambda: strings(f"^{COUNTS_IN_COUNTS}$"), lambda: "a" * 5_000),
    "counts in counts and a length": Hostile(
        lambda: {**strings(f"^{COUNTS_IN_COUNTS}$"), "maxLength": 9_000}, lambda: "a" * 3_000
    ),
    "(a|aa){0,1000}": Hostile(lambda: "(a|aa){0,1000}", lambda: "a" * 1_900),
    "(a|aa){0,1000} and a length": Hostile(
        lambda: {**strings("^(a|aa){0,1000}$"), "maxLength": 900}, lambda: "a" * 850
    ),
    "(a|b|ab){1,1000}, ten times": Hostile(lambda: "(a|b|ab){1,1000}" * 10, lambda: "ab" * 500),
    "(.*a){30}": Hostile(lambda: "(.*a){30}", lambda: "ba" * 30),
    "(a*)*{1000}": Hostile(lambda: "((a*)*){1000}", lambda: "a" * 2_000),
    "(a?){1000}a{1000}": Hostile(lambda: "(a?){1000}a{1000}", lambda: "a" * 1_500),
    "(x+x+)+y": Hostile(lambda: "(x+x+)+y", lambda: "x" * 2_000 + "y"),
    "(a|b)*a(a|b){18}": Hostile(lambda: "(a|b)*a(a|b){18}", lambda: "ab" * 400 + "a" + "b" * 18),
    "(a|b)*a(a|b){18} and a length": Hostile(
        lambda: {**strings("^(a|b)*a(a|b){18}$"), "maxLength": 500}, lambda: "ab" * 40 + "a" + "b" * 18
    ),
    "[^]{0,1000}a[^]{0,1000}": Hostile(lambda: "[^]{0,1000}a[^]{0,1000}", lambda: "xa" * 800),
    "letters of all scripts, 1 to 5,000": Hostile(
        lambda: strings(r"^[a-zA-Zà-ÿĀ-žΑ-ωА-я一-龯]{1,5000}$"), lambda: "é日本a" * 200
    ),
    "letters and digits in counts": Hostile(
        lambda: strings(r"^([\w]{1,40}[\d]{0,40}[^\s]{1,40}){1,40}$"), lambda: "ab12é" * 50
    ),
    "an alternation of 5,000 words": Hostile(
        lambda: strings("^(" + "|".join(f"w{i}x{i % 7}" for i in range(5_000)) + "){1,9}$"), lambda: "w17x3w4x4"
    ),
    "500 times 200 integers": Hostile(lambda: grid(500, 200), lambda: [[1] * 200] * 500),
    "overlapping recursive lists": Hostile(lambda: overlapping_recursion(8), lambda: deep(300, 1)),
    "overlapping recursive lists, wide": Hostile(lambda: overlapping_recursion(40), lambda: deep(60, [1, 2, [3, 4]])),
    "overlapping recursive objects": Hostile(
        lambda: overlapping_objects(40),
        lambda: {"left": None, "right": {"left": None, "right": None, "end7": None}, "end39": None},
    ),
    "oneOf of 60": Hostile(lambda: exclusive(60), lambda: {"kind": "k59", "value": 1}),
    "oneOf of 1,000": Hostile(lambda: exclusive(1_000), lambda: {"kind": "k999", "value": 1}),
    "oneOf of 300 ranges": Hostile(
        lambda: {"oneOf": [{"type": "integer", "minimum": 10 * i, "maximum": 10 * i + 9} for i in range(300)]},
        lambda: 2_345,
    ),
    "oneOf of 40 patterns": Hostile(
        lambda: {"oneOf": [strings(f"^a{{{i}}}b.*$") for i in range(40)]}, lambda: "aaab tail"
    ),
    "allOf of 5 anyOfs": Hostile(lambda: multiplying(5, 5), lambda: {f"p{i}": 4 for i in range(5)}),
    "allOf of 20 anyOfs": Hostile(lambda: multiplying(20, 5), lambda: {f"p{i}": 4 for i in range(20)}),
    "allOf of 1,000": Hostile(lambda: conjunction(1_000), lambda: {f"p{i}": i for i in range(1_000)}),
    "allOf of 9,000": Hostile(lambda: conjunction(9_000), lambda: {f"p{i}": i for i in range(9_000)}),
    "10,000 required properties": Hostile(
        lambda: objects({f"p{i}": {"type": "integer"} for i in range(10_000)}),
        lambda: {f"p{i}": i for i in range(10_000)},
    ),
    "10,000 optional properties": Hostile(
        lambda: {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(10_000)}},
        lambda: {f"p{i}": i for i in range(0, 10_000, 37)},
    ),
    "3,000 optional properties, minProperties": Hostile(
        lambda: {
            "type": "object",
            "properties": {f"p{i}": {"type": "null"} for i in range(3_000)},
            "minProperties": 1_500,
        },
        lambda: {f"p{i}": None for i in range(1_600)},
    ),
    "64 patternProperties": Hostile(lambda: key_patterns(64, "^k%d_[a-z]*$"), lambda: {"k63_ab": 1}),
    "64 patternProperties that overlap": Hostile(lambda: key_patterns(64, "a.{%d}b"), lambda: {"a" + "b" * 70: 1}),
    "500 patternProperties": Hostile(lambda: key_patterns(500, "^k%d_[a-z]*$"), lambda: {"k63_ab": 1}),
    "unique elements of 1,000 values": Hostile(
        lambda: {"type": "array", "items": {"enum": list(range(1_000))}, "uniqueItems": True}, lambda: list(range(60))
    ),
    "unique elements of 1,001 values": Hostile(
        lambda: {"type": "array", "items": {"enum": list(range(1_001))}, "uniqueItems": True}, lambda: [1]
    ),
    "unique elements, 300 of 300": Hostile(
        lambda: {
            "items": {"enum": [f"v{i}" for i in range(300)]},
            "type": "array",
            "uniqueItems": True,
            "minItems": 300,
        },
        lambda: [f"v{i}" for i in range(300)],
    ),
    "dependentSchemas in a ring of 8": Hostile(lambda: web(8), lambda: {f"p{i}": i for i in range(8)}),
    "dependentSchemas in a ring of 60": Hostile(lambda: web(60), lambda: {f"p{i}": i for i in range(60)}),
    "multipleOf with bounds": Hostile(
        lambda: {"type": "integer", "multipleOf": 9_973, "minimum": -(10**15), "maximum": 10**15},
        lambda: 9_973 * 12_345,
    ),
    "multipleOf 0.000001": Hostile(lambda: {"type": "number", "multipleOf": 0.000001}, lambda: 1.5),
    "numbers of 900 digits": Hostile(
        lambda: {"type": "integer", "minimum": -(10**900), "maximum": 10**900 - 7}, lambda: 10**899 + 3
    ),
    "contains beside a length": Hostile(
        lambda: {"type": "array", "contains": {"const": 7}, "minContains": 3, "maxContains": 5, "maxItems": 8},
        lambda: [7, 1, 7, 7],
    ),
    "a name of 20,000 characters": Hostile(
        lambda: objects({"n" * 20_000: {"type": "null"}}), lambda: {"n" * 20_000: None}
    ),
    "oneOf of 60 ranges that overlap": Hostile(
        lambda: {"oneOf": [{"type": "number", "minimum": i, "maximum": i + 1.5} for i in range(60)]}, lambda: 0.7
    ),
    "multiples of 200 numbers": Hostile(
        lambda: objects({f"n{i}": {"type": "integer", "multipleOf": 1_009 + i} for i in range(200)}),
        lambda: {f"n{i}": 1_009 + i for i in range(200)},
    ),
    "multiples of a large prime": Hostile(lambda: {"type": "integer", "multipleOf": 999_983}, lambda: 999_983),
    "minProperties 1,000,000": Hostile(lambda: {"type": "object", "minProperties": 1_000_000}, dict),
    "9,000 required names that are not declared": Hostile(
        lambda: {"type": "object", "required": [f"r{i}" for i in range(9_000)]}, dict
    ),
    "recursion by primes": Hostile(lambda: recursion_by_primes(2, 3, 5, 7, 11, 13, 17), dict),
    "patterns by primes": Hostile(
        lambda: {"allOf": [strings(f"^(?:a{{{p}}})*$") for p in (7, 11, 13, 17, 19, 23)]}, lambda: ""
    ),
    "lists or not, 60 times": Hostile(lambda: doubling(60), lambda: deep(60, 7)),
    "an alternation of 1,200 beginnings": Hostile(
        lambda: "|".join("a" * length for length in range(1, 1_200)), lambda: "a" * 900
    ),
    "an alternation of 600 ends": Hostile(
        lambda: "|".join("a" * i + "b" + "a" * (600 - i) for i in range(600)), lambda: "a" * 7 + "b" + "a" * 593
    ),
    "3,000 stars": Hostile(lambda: "".join(f"{chr(97 + i % 26)}*" for i in range(3_000)), lambda: "abc"),
    "60,000 characters": Hostile(lambda: "x" * 60_000, lambda: "x" * 60_000),
    "4,000 characters, 2,000 times": Hostile(lambda: f"(?:{'xy' * 2_000}){{1,2000}}", lambda: "xy" * 4_000),
    "letters of either case in counts": Hostile(either_case, lambda: "aAa" + "bB" * 9),
    "counts that go down": Hostile(
        lambda: "|".join(f"(?:ab{{0,{i}}}){{0,{100 - i}}}" for i in range(1, 99)), lambda: "abb" * 20
    ),
    "300 lengths of strings that overlap": Hostile(
        lambda: {"anyOf": [{"type": "string", "minLength": i, "maxLength": 1_000 + 7 * i} for i in range(300)]},
        lambda: "some words",
    ),
    "300 lengths of arrays that overlap": Hostile(
        lambda: {
            "anyOf": [
                {"type": "array", "items": {"type": "integer"}, "minItems": i, "maxItems": 1_000 + i}
                for i in range(300)
            ]
        },
        lambda: [1] * 700,
    ),
    "not a pattern that doubles": Hostile(
        lambda: {"type": "string", "not": {"pattern": "(a|b)*a(a|b){12}c"}}, lambda: "abab"
    ),
    "anyOf of 4,000 patterns": Hostile(
        lambda: {"anyOf": [strings(f"^k{i}[a-z]*$") for i in range(4_000)]}, lambda: "k3999abc"
    ),
    "anyOf of 1,000 objects of optional members": Hostile(
        lambda: {"anyOf": [{"type": "object", "properties": {f"k{i}": {"type": "integer"}}} for i in range(1_000)]},
        lambda: {"k999": 1},
    ),
    "if and then in a ring of 12": Hostile(
        lambda: {
            "type": "object",
            "properties": {f"p{i}": {"type": "boolean"} for i in range(12)},
            "allOf": [
                {
                    "if": {"properties": {f"p{i}": {"const": True}}, "required": [f"p{i}"]},
                    "then": {"required": [f"p{(i + 1) % 12}"]},
                }
                for i in range(12)
            ],
        },
        dict,
    ),
    "200 open objects": Hostile(
        lambda: objects({f"p{i}": OPEN_OBJECT for i in range(200)}),
        lambda: {f"p{i}": {"x": 1} for i in range(200)},
    ),
}
