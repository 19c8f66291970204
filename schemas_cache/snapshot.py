"""What an automaton has learnt, as plain arrays and back.

In: a `TokenAutomaton`. Out: arrays and a small header that `restore` turns into an equal one, without the schema, the
grammar or a closure. Cost: linear in what is stored; states beyond a bound are left out, and transitions to them become
unknown again. Frames and states are stored in the order in which they were made, so parents come before children.
Rejected: pickle, which runs what it reads and breaks with every rename.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas_cache.alphabet import Alphabet
from schemas_cache.automaton import END, START, UNKNOWN, Automaton
from schemas_cache.closure import Configurations
from schemas_cache.frames import NO_FRAME
from schemas_cache.limits import MAX_STATES, MAX_STORED_STATES
from schemas_cache.masks import NOT_COMPUTED
from schemas_cache.nfa import Nfa
from schemas_cache.sight import DIGEST_BYTES
from schemas_cache.token_automaton import TokenAutomaton
from schemas_cache.token_index import TokenIndex

Arrays = dict[str, NDArray[Any]]

_SCALARS = ("start", "pointers")  # fields of an Nfa that are no arrays


def capture(tokens: TokenAutomaton) -> tuple[dict[str, Any], Arrays]:
    """Return header and arrays of everything learnt so far."""
    automaton = tokens.automaton
    with automaton.lock:
        kept = min(len(automaton), MAX_STORED_STATES)
        header = {"start": automaton.nfa.start, "pointers": automaton.nfa.pointers, "sets": _capture_sets(automaton)}
        arrays: Arrays = {f.name: getattr(automaton.nfa, f.name) for f in fields(Nfa) if f.name not in _SCALARS}
        arrays |= {f"alphabet.{f.name}": getattr(automaton.alphabet, f.name) for f in fields(Alphabet)}
        arrays["distance"] = np.array(automaton.distance, np.int64)
        return header, arrays | _capture_states(automaton, kept) | _capture_rows(tokens, kept)


def restore(header: dict[str, Any], arrays: Arrays, index: TokenIndex, max_states: int = MAX_STATES) -> TokenAutomaton:
    """Build the automaton that `capture` was given; `index` is of the same vocabulary."""
    nfa_arrays = {f.name: arrays[f.name] for f in fields(Nfa) if f.name not in _SCALARS}
    nfa = Nfa(start=header["start"], pointers=tuple(map(tuple, header["pointers"])), **nfa_arrays)
    alphabet = Alphabet(**{f.name: arrays[f"alphabet.{f.name}"] for f in fields(Alphabet)})
    automaton = Automaton(nfa, alphabet, max_states, arrays["distance"])
    for written, others, due in header["sets"]:
        automaton.frames.members.add((int(written, 16), others, due))
    _restore_states(automaton, arrays)
    tokens = TokenAutomaton(automaton, index)
    tokens.rows.adopt(arrays["row_digests"], arrays["row_bits"], arrays["row_of_state"])
    if "dense.next_state" in arrays:
        tokens.adopt(arrays["dense.states"], arrays["dense.next_state"].astype(np.int32))
    return tokens


def _capture_states(automaton: Automaton, kept: int) -> Arrays:
    configurations = automaton.configurations[:kept]
    frames = automaton.frames
    used = 1 + max((frame for pairs in configurations for _, frame in pairs), default=0)
    links = [frames.content(frame) for frame in range(used)]
    following = automaton.next_state[:kept].copy()
    following[following >= kept] = UNKNOWN
    return {
        "frame_repeat": np.array([frames.repeat(frame) for frame in range(used)], np.int32),
        "frame_links": np.array([len(link) for link in links], np.int32),
        "links": np.array([(link[0], link[-2], link[-1]) for link in chain(*links)], np.int32).reshape(-1, 3),
        "state_pairs": np.array([len(pairs) for pairs in configurations], np.int32),
        "pairs": np.array(list(chain(*configurations)), np.int32).reshape(-1, 2),
        "accepting": np.array(automaton.accepting[:kept], np.bool_),
        "next_state": following,
    }


def _capture_sets(automaton: Automaton) -> list[tuple[str, int, bool]]:
    """Sets of members, their bits in hexadecimal, in the order in which they were made."""
    members = automaton.frames.members
    sets = (members.content(number) for number in range(len(members)))
    return [(f"{written:x}", others, due) for written, others, due in sets]


def _restore_states(automaton: Automaton, arrays: Arrays) -> None:
    links = iter(arrays["links"].tolist())
    for repeat, count in zip(arrays["frame_repeat"].tolist(), arrays["frame_links"].tolist(), strict=True):
        triples = [next(links) for _ in range(count)]
        if repeat == NO_FRAME or automaton.frames.is_choice(repeat):
            automaton.frames.add(repeat, tuple((back, parent) for back, _, parent in triples))
        else:
            automaton.frames.add(repeat, tuple((low, high, parent) for low, high, parent in triples))
    pairs = iter(arrays["pairs"].tolist())
    counts, accepting = arrays["state_pairs"].tolist(), arrays["accepting"].tolist()
    for state, (count, accepts) in enumerate(zip(counts, accepting, strict=True)):
        configurations: Configurations = tuple((at, frame) for at, frame in (next(pairs) for _ in range(count)))
        if state == START or state > END:
            automaton.adopt(configurations, accepts, arrays["next_state"][state])


def _capture_rows(tokens: TokenAutomaton, kept: int) -> Arrays:
    rows, dense = tokens.rows, tokens.dense
    row_of_state = np.full(kept, NOT_COMPUTED, np.int32)
    known = rows.row_of_state[:kept]
    row_of_state[: len(known)] = known
    digests = b"".join(rows.digests())
    captured: Arrays = {
        "row_digests": np.frombuffer(digests, np.uint8).reshape(len(rows), DIGEST_BYTES),
        "row_bits": rows.bits[: len(rows)],
        "row_of_state": row_of_state,
    }
    if dense is not None and int(dense.next_state.max()) < kept:
        captured["dense.states"] = dense.states
        captured["dense.next_state"] = dense.next_state.astype(np.min_scalar_type(kept))
    return captured
