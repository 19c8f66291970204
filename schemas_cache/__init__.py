"""JSON Schema in, token masks out. Knows nothing of models or HTTP: a library of its own.

The pipeline, in order, one file a stage:

    source                   what is asked: a schema, any JSON object, a regular expression, choices
    schema/                  document -> grammar, over the values of strings
    pattern_classes, anchors, pattern      regular expression -> grammar, over the values of strings
    code_points, utf8, escapes, spelling   values -> bytes: sets of characters, UTF-8, escapes
    machines, lengths        finite automata over values, where the front ends need "and", "not" or a length
    grammar                  the expression type between front ends and automata
    nfa, nfa_table, other_text, thompson   expressions -> NFA with calls and counters
    alphabet                 bytes -> equivalence classes
    members, distance, pick_costs          members in any order; how far each state is from the end of its block
    frames, closure          what happens after a block; one step of the subset construction
    automaton                the lazily determinised automaton: states are ints
    finite                   whole exploration and minimisation, where there is an end to it
    gguf_header, pieces, vocabulary        the tokens as bytes
    remainders, shared_rows  what tokens have behind a quote; rows that schemas have in common
    trie, token_index        the tokens as flat tries, and those that a free string takes as a block
    reach, token_walk        what can be finished; which tokens a state allows
    sight, text_sight, masks what one token can see of a state -> one row of bits
    fewest_tokens            the least budget that a document fits in
    size, token_automaton    steps by token; the dense table for small finite cases
    bounds, matcher          what is about to reach its most; one sequence's walk
    restored, snapshot, codec              tables as arrays, as bytes, and back
    compile                  all of the above in a row
    bytes_cache, row_file, disk_rows, disk bytes on disk, shared by processes: entries, and mask rows
    entries, memory, flights, write_behind, store          what was compiled and learnt, in memory and on disk
    warming                  what decoding will ask for, learnt ahead
    show                     each stage as text and as Graphviz

`errors`, `limits` and `work`, which counts towards them, are free to all. `machines` and `lengths` build their automata
with `nfa` to `finite`.

A minimal engine loop::

    compiled = compile_schema({"type": "integer"}, vocabulary)
    matcher = compiled.matcher()
    while not matcher.finished:
        token = sample(logits, matcher.mask())
        matcher.advance(token)

Threads: `Vocabulary`, `CompiledSchema` and `SchemaCache` may be shared between threads; a `Matcher` belongs to one
thread at a time. New states and rows are made under one lock for each schema; what is known is read without it.
"""

from schemas_cache.codec import CorruptEntryError
from schemas_cache.compile import CompiledSchema, compile_regex, compile_schema, compile_source
from schemas_cache.disk import SIZE_LIMIT_BYTES
from schemas_cache.entries import StoredSchema
from schemas_cache.errors import (
    CompileTimeoutError,
    DeadStateError,
    Finding,
    ForbiddenBytesError,
    ForbiddenTokenError,
    KatagamiError,
    PatternError,
    SchemaError,
    SchemaTooComplexError,
    UnsatisfiableSchemaError,
)
from schemas_cache.limits import DEFAULT_LIMITS, Limits
from schemas_cache.masks import pack_mask
from schemas_cache.matcher import Matcher, fill_masks
from schemas_cache.memory import MEMORY_BYTES
from schemas_cache.schema import SchemaOptions
from schemas_cache.source import Source, choice_source, json_object_source, regex_source, schema_source
from schemas_cache.store import Lookup, SchemaCache
from schemas_cache.vocabulary import Vocabulary

__all__ = [
    "DEFAULT_LIMITS",
    "MEMORY_BYTES",
    "SIZE_LIMIT_BYTES",
    "CompileTimeoutError",
    "CompiledSchema",
    "CorruptEntryError",
    "DeadStateError",
    "Finding",
    "ForbiddenBytesError",
    "ForbiddenTokenError",
    "KatagamiError",
    "Limits",
    "Lookup",
    "Matcher",
    "PatternError",
    "SchemaCache",
    "SchemaError",
    "SchemaOptions",
    "SchemaTooComplexError",
    "Source",
    "StoredSchema",
    "UnsatisfiableSchemaError",
    "Vocabulary",
    "choice_source",
    "compile_regex",
    "compile_schema",
    "compile_source",
    "fill_masks",
    "json_object_source",
    "pack_mask",
    "regex_source",
    "schema_source",
]
