"""What an automaton has learnt, as plain arrays and back, and united with what another process has learnt.

In: a `TokenAutomaton`. Out: arrays and a small header that `restore` turns into an equal one, without the schema or the
grammar, and that `unite` adds to another automaton of the same schema. Numbers of frames and states depend
on the order in which they were met, so they are translated by content: a frame is its repeat, counts and parents, a
state its configurations. Frames and states are stored in the order in which they were made, parents before children;
hence one pass in that order translates everything, and uniting in either order gives the same states and transitions.

Mask rows are named by their digests; their bits are stored apart (see `row_file`) or, for a snapshot that has to stand
alone, with it. Cost: linear in what is stored, 1 us for each configuration; states beyond a bound are left out, and
transitions to them become unknown again. Rejected: pickle, which runs what it reads and breaks with every rename;
digests as names of states, which would make every state three times as large for the sake of a rare union.
"""

from __future__ import annotations

from dataclasses import fields
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas_cache.alphabet import Alphabet
from schemas_cache.automaton import UNKNOWN, Automaton
from schemas_cache.closure import Configurations
from schemas_cache.frames import NO_FRAME
from schemas_cache.limits import DEFAULT_LIMITS, MAX_STORED_STATES, Limits
from schemas_cache.masks import NOT_COMPUTED
from schemas_cache.nfa import Nfa
from schemas_cache.restored import RestoredAutomaton
from schemas_cache.sight import DIGEST_BYTES
from schemas_cache.token_automaton import TokenAutomaton
from schemas_cache.token_index import TokenIndex

Arrays = dict[str, NDArray[Any]]

_SCALARS = ("start", "pointers")  # fields of an Nfa that are no arrays


def capture(tokens: TokenAutomaton, *, with_rows: bool = True) -> tuple[dict[str, Any], Arrays]:
    """Return header and arrays of everything learnt so far; `with_rows` adds the bits of the mask rows."""
    automaton = tokens.automaton
    with automaton.lock:
        kept = min(len(automaton), MAX_STORED_STATES)
        header = {"start": automaton.nfa.start, "pointers": automaton.nfa.pointers, "sets": _capture_sets(automaton)}
        arrays: Arrays = {f.name: getattr(automaton.nfa, f.name) for f in fields(Nfa) if f.name not in _SCALARS}
        arrays |= {f"alphabet.{f.name}": getattr(automaton.alphabet, f.name) for f in fields(Alphabet)}
        arrays["distance"] = np.array(automaton.distance, np.int64)
        arrays["row_digests"], arrays["row_of_state"] = tokens.rows.digests(kept)
        if with_rows:
            arrays |= _capture_rows(tokens)
        return header, arrays | _capture_states(automaton, kept) | _capture_dense(tokens, kept)


def restore(
    header: dict[str, Any], arrays: Arrays, index: TokenIndex, limits: Limits = DEFAULT_LIMITS
) -> TokenAutomaton:
    """Build the automaton that `capture` was given; `index` is of the same vocabulary.

    Where it has more than half of the states that `limits` allow, only its first ones are taken.
    """
    arrays = _first_states(arrays, limits.max_states // 2)
    nfa_arrays = {f.name: arrays[f.name] for f in fields(Nfa) if f.name not in _SCALARS}
    nfa = Nfa(start=header["start"], pointers=tuple(map(tuple, header["pointers"])), **nfa_arrays)
    alphabet = Alphabet(**{f.name: arrays[f"alphabet.{f.name}"] for f in fields(Alphabet)})

    def build() -> Automaton:
        automaton = Automaton(nfa, alphabet, limits, arrays["distance"])
        automaton.learn(_states(automaton, header, arrays), arrays["next_state"])
        return automaton

    tokens = TokenAutomaton(RestoredAutomaton(nfa, alphabet, limits, arrays, build), index)
    _adopt(tokens, arrays, np.arange(len(arrays["accepting"]), dtype=np.int32))
    return tokens


def unite(tokens: TokenAutomaton, header: dict[str, Any], arrays: Arrays) -> None:
    """Add what a snapshot holds to an automaton of the same schema and vocabulary.

    Raises
    ------
    ValueError
        When the snapshot is of another NFA.
    """
    automaton = tokens.automaton
    if not all(np.array_equal(getattr(automaton.nfa, name), arrays[name]) for name in ("edge_to", "epsilon_to", "op")):
        raise ValueError("a snapshot of another automaton")
    with automaton.lock:
        numbers = automaton.learn(_states(automaton, header, arrays), arrays["next_state"])
        _adopt(tokens, arrays, numbers)


def _adopt(tokens: TokenAutomaton, arrays: Arrays, numbers: NDArray[np.int32]) -> None:
    """Take mask rows and the dense table; `numbers` int32 (S,) are the states' here, UNKNOWN for those left out."""
    which = arrays["row_of_state"]
    known = (which != NOT_COMPUTED) & (numbers != UNKNOWN)
    tokens.rows.adopt(arrays["row_digests"], numbers[known], which[known])
    if "row_bits" in arrays:
        bits = zip(arrays["bit_digests"], arrays["row_bits"], strict=True)
        tokens.rows.add({digest.tobytes(): words.tobytes() for digest, words in bits})
    if "dense.next_state" in arrays and tokens.dense is None:
        following = numbers[arrays["dense.next_state"]]
        if following.min() != UNKNOWN:
            tokens.adopt(numbers[arrays["dense.states"]], following)


def _first_states(arrays: Arrays, kept: int) -> Arrays:
    """Leave out the states from number `kept` on, and the dense table, which would not be whole."""
    if len(arrays["accepting"]) <= kept:
        return arrays
    first = {name: arrays[name][:kept] for name in ("row_of_state", "state_pairs", "accepting", "only_byte")}
    following = arrays["next_state"][:kept].copy()
    following[following >= kept] = UNKNOWN
    pairs = arrays["pairs"][: int(first["state_pairs"].sum())]
    rest = {name: array for name, array in arrays.items() if not name.startswith("dense.")}
    return rest | first | {"next_state": following, "pairs": pairs}


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
        "only_byte": np.array([automaton.only_byte(state) for state in range(kept)], np.int16),
        "next_state": following,
    }


def _capture_sets(automaton: Automaton) -> list[tuple[str, int, bool]]:
    """Sets of members, their bits in hexadecimal, in the order in which they were made."""
    members = automaton.frames.members
    sets = (members.content(number) for number in range(len(members)))
    return [(f"{written:x}", others, due) for written, others, due in sets]


def _states(automaton: Automaton, header: dict[str, Any], arrays: Arrays) -> list[tuple[bool, Configurations]]:
    """The states of a snapshot, with frames as they are numbered here."""
    frames = np.array(_frames(automaton, header, arrays), np.int32)
    pairs = list(zip(arrays["pairs"][:, 0].tolist(), frames[arrays["pairs"][:, 1]].tolist(), strict=True))
    end = np.cumsum(arrays["state_pairs"]).tolist()
    parts = (tuple(pairs[first:last]) for first, last in zip([0, *end], end, strict=False))
    return list(zip(arrays["accepting"].tolist(), parts, strict=True))


def _frames(automaton: Automaton, header: dict[str, Any], arrays: Arrays) -> list[int]:
    """The numbers here of a snapshot's frames; those that are new are made."""
    frames, numbers = automaton.frames, list[int]()
    sets = [frames.members.add((int(written, 16), others, due)) for written, others, due in header["sets"]]
    links = iter(arrays["links"].tolist())
    for repeat, count in zip(arrays["frame_repeat"].tolist(), arrays["frame_links"].tolist(), strict=True):
        triples = [next(links) for _ in range(count)]
        above = [numbers[parent] if parent != NO_FRAME else NO_FRAME for *_, parent in triples]
        first = [sets[low] for low, *_ in triples] if frames.is_choice(repeat) else [low for low, *_ in triples]
        if repeat == NO_FRAME or frames.is_choice(repeat):
            numbers.append(frames.add(repeat, tuple(sorted(zip(first, above, strict=True)))))
        else:
            high = [last for _, last, _ in triples]
            numbers.append(frames.add(repeat, tuple(zip(first, high, above, strict=True))))
    return numbers


def _capture_rows(tokens: TokenAutomaton) -> Arrays:
    learned = tokens.rows.learned()
    digests, bits = b"".join(learned), b"".join(learned.values())
    return {
        "bit_digests": np.frombuffer(digests, np.uint8).reshape(-1, DIGEST_BYTES),
        "row_bits": np.frombuffer(bits, np.uint32).reshape(-1, tokens.rows.words),
    }


def _capture_dense(tokens: TokenAutomaton, kept: int) -> Arrays:
    dense = tokens.dense
    if dense is None or int(dense.next_state.max()) >= kept:
        return {}
    return {"dense.states": dense.states, "dense.next_state": dense.next_state.astype(np.min_scalar_type(kept))}
