"""The slow and obvious referees on a sample: the grammar's matcher against the automaton, and masks by brute force.

In: compiled schemas, texts, states. Out: faults in words, none where all agree. Cost: the matcher is polynomial in the
text, some milliseconds for eighty bytes; a mask by brute force is a walk for each token, some milliseconds for a
thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

import numpy as np
from numpy.typing import NDArray

from schemas_cache import CompiledSchema
from schemas_cache.automaton import DEAD, END, START
from schemas_cache.compile import build_grammar
from tests.schemas_cache.reference_matcher import matches


def matcher_faults(compiled: CompiledSchema, texts: Iterable[bytes]) -> Iterator[str]:
    """Texts about which the automaton says something else than the definition of the grammar."""
    grammar, _ = build_grammar(compiled.source, compiled.vocabulary)
    automaton = compiled.tokens.automaton
    for text in texts:
        accepted = automaton.accepting[automaton.walk(START, text)]
        if accepted != matches(grammar.rules[grammar.start], text, grammar.rules):
            yield f"referee: {'accepted' if accepted else 'refused'} {text!r}"


def mask_faults(compiled: CompiledSchema, states: Iterable[int]) -> Iterator[str]:
    """States whose mask is not what their tokens' bytes say, fed one by one."""
    automaton, vocabulary = compiled.tokens.automaton, compiled.vocabulary
    for state in states:
        allowed = {i for i, data in enumerate(vocabulary.token_bytes) if data and automaton.walk(state, data) != DEAD}
        if automaton.accepting[state] and state != END:
            allowed |= set(vocabulary.end_ids)
        differing = allowed ^ set(np.flatnonzero(unpacked(compiled, state)).tolist())
        if differing:
            yield f"mask: state {state}, tokens {sorted(differing)[:9]}"


def unpacked(compiled: CompiledSchema, state: int) -> NDArray[np.bool_]:
    """A state's mask, bool (V,)."""
    words = compiled.tokens.rows.mask(state)
    return np.unpackbits(words.view(np.uint8), count=len(compiled.vocabulary), bitorder="little").astype(np.bool_)


def damaged(text: bytes, rng: Random) -> bytes:
    """A text with a byte taken out, put in, or replaced by one that stands elsewhere in it."""
    at = rng.randrange(len(text))
    other = text[(start := rng.randrange(len(text))) : start + 1]
    return text[:at] + rng.choice([b"", other, other + text[at : at + 1]]) + text[at + 1 :]
