"""Every bound as a named value with its reason.

A bound that is reached raises `SchemaTooComplexError` with the figure and the limit; none is ever worked around by
enforcing less.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_SCHEMA_BYTES = 1 << 20
"""Schema as compact UTF-8 JSON: six times the largest schema of the public collections, some seconds to compile."""

MAX_SCHEMA_NESTING = 64
"""Brackets inside brackets in the schema. Collections of real schemas end at 21; below 64 plain recursion is safe."""

MAX_PROPERTIES = 10_000
"""Declared properties in all objects together: one grammar member each, so a few megabytes of grammar."""

MAX_ENUM_VALUES = 20_000
"""Values in all enumerations together: one literal each."""

MAX_BRANCHES = 4_096
"""Alternatives that one subschema unfolds to. `anyOf`s that meet multiply: eleven of two branches each are allowed."""

MAX_MERGED = 10_000
"""Merged subschemas in all: recursion through references with neighbours can meet in many combinations, 0.5 ms each."""

MAX_NEGATED_BRANCHES = 8
"""Branches of a `oneOf` under `not`: no two may hold together, so the complement has a branch for each pair."""

MAX_NEGATED_NAMES = 3
"""Optional names of a closed object under `not`: the complement has a branch for each set of them that is there."""

MAX_PROOF_ALTERNATIVES = 256
"""Alternatives of two `oneOf` branches that are looked at to prove that they never hold together; 0.1 ms each."""

MAX_RULES = 50_000
"""Grammar rules: references, merged subschemas and, under `pretty`, their copies per indentation; about 1 kB each."""

MAX_MACHINE_STATES = 20_000
"""States of a product of automata over one value: a pattern of five states with a length up to 4,000; half a second."""

MAX_NUMBER_DIGITS = 1_000
"""Digits of a number in a schema: far beyond every real bound, and below the limit of Python's own conversions."""

MAX_INDENTATION = 64
"""Levels of indentation under `pretty`, as many as a schema may nest; recursion would need one copy for each level."""

LEVELS_PER_RULE = 12
"""Subschemas that are written inside each other before a new rule starts, so that expressions stay shallow enough for
recursive functions however deep the schema is."""

MAX_STATES = 200_000
"""States of one automaton: at 60 classes and some 400 bytes of Python objects a state, about 130 MB."""

MAX_SHORTEST_BYTES = 1 << 16
"""Bytes of a shortest document: a budget of that many tokens is beyond every context here, and finding it takes 2 s."""

MAX_DENSE_ENTRIES = 1 << 20
"""Entries of a dense table of state by token: 4 MB, 1,250 states for 838 tokens, filled in two tenths of a second."""

MAX_NFA_STATES = 500_000
"""States of an NFA, about one for each character that is written out: 3 s and 300 MB at the limit."""

MAX_LIFTED_STATES = 8_192
"""States, those inside characters too, up to which a dense table is worth trying; beyond, the automaton stays lazy."""

MAX_STORED_STATES = 4_096
"""States written to disk with their transitions; later ones are made again in microseconds each when needed."""

MAX_FRAMES = 1_000_000
"""Interned frames of one automaton, some 300 bytes each: 300 MB. A document of 1,000 levels takes 4,000 at the most."""

MAX_CONFIGURATIONS = 1_200
"""Configurations of one state: optional members that may all come next, say. Each takes a microsecond or two for every
byte of every token, so a token takes some 5 ms where there are so many; among the first states of 500 real schemas the
widest has 132."""

MAX_MEMORY_BYTES = 512 << 20
"""Memory of one schema's tables, states and mask rows learnt while decoding included; as the contract has it."""

MAX_WORK = 2_500_000
"""Steps of work of one compile, about 0.7 microseconds each: what is refused is refused within 2 s. Of 1,500 real
schemas one takes 1,230,000, and all others less than 400,000."""

MAX_EXPANSION_WORK = 500_000
"""Steps of work for one state while decoding: its row waits half a second at most, the others go on."""

COMPILE_TIMEOUT_S = 60.0
"""How long one compile may take, waiting for another process's compile included. On a machine as fast as ours the work
is the first to end; the time is for one that is slow, or busy."""

FAILURE_KEPT_S = 60.0
"""How long a failure answers for the same schema at once; then it is tried again."""

MAX_NAME_NESTING = 64
"""Declared names of an open object that begin with each other, one by one: as deep nests what all other names are."""

MAX_KEY_KINDS = 32
"""Combinations of `patternProperties` that keys of one object can match: five patterns that all overlap."""

MAX_LISTED_KEYS = 256
"""Keys of a finite language that are written one by one, so that none repeats; beyond, they are a language."""

MAX_COUNTED_TAIL = 16
"""Further keys in any order behind declared ones, where they are counted together: one copy of the members for each."""

MAX_UNIQUE_CHOICES = 1_000
"""Values that different elements can be chosen from: one member each, and the set of those used in the frame."""

MAX_COUNTED_ELEMENTS = 8
"""Elements that match a `contains` beside a bounded length: which of them are written is a set in the frame."""

MAX_CONTAINS = 4
"""`contains` about the same elements: 15 ways in which elements can be shared between them."""

MAX_POSITIONS_BESIDE_CONTAINS = 8
"""Positions of a prefix beside `contains`: each is written once for what was matched before it."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds that a caller may set for its own compiles, and for what is learnt while decoding."""

    max_states: int = MAX_STATES
    max_frames: int = MAX_FRAMES
    max_memory_bytes: int = MAX_MEMORY_BYTES
    max_work: int = MAX_WORK
    max_expansion_work: int = MAX_EXPANSION_WORK
    max_dense_entries: int = MAX_DENSE_ENTRIES
    compile_timeout_s: float = COMPILE_TIMEOUT_S


DEFAULT_LIMITS = Limits()
