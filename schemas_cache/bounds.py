"""Whether a text or an array is about to reach the most that its schema allows.

In: a state. Out: the counted repeats whose last permitted round begins there, and whether the array element that begins
there may be the last one permitted. That a closing quote or bracket is forced does not tell: `{"const": "ab"}` forces
one too. Cost: linear in the configurations of the state and the depth of the document. A `maxLength` of 1 is no counted
repeat, and not seen here. Source: ours.
"""

from __future__ import annotations

from schemas_cache.automaton import Automaton
from schemas_cache.frames import ACCEPT, NO_FRAME
from schemas_cache.nfa import ANY_INDEX, UNBOUNDED


def last_rounds(automaton: Automaton, state: int) -> frozenset[int]:
    """Return the repeats of which the last permitted round is under way, or begins here.

    A repeat of a fixed number of rounds is none of them, unless it counts the characters of a free string.
    """
    nfa, found = automaton.nfa, set()
    for at, frame in automaton.configurations[state]:
        repeat = automaton.frames.repeat(frame)
        if not _in_last_round(automaton, frame):
            continue
        if nfa.repeat_min[repeat] != nfa.repeat_max[repeat] or nfa.free_text[at] == repeat:
            found.add(repeat)
    return frozenset(found)


def may_be_last_element(automaton: Automaton, state: int) -> bool:
    """Whether the array element that begins here is the last one of a count, or stands in an array without a counter.

    The latter is one of at most one element, or one without a bound: whether a comma may follow tells which.
    """
    return any(_begins_last_element(automaton, at, frame) for at, frame in automaton.configurations[state])


def _begins_last_element(automaton: Automaton, at: int, frame: int) -> bool:
    """Go up to the block in which the pointer's last segment stands: an index in the block of its array, or `*`."""
    frames, nfa = automaton.frames, automaton.nfa
    while at != ACCEPT:
        path = nfa.pointers[nfa.pointer_of[at]]
        repeat, first = frames.repeat(frame), frames.content(frame)[0]
        if path and len(path) == 1 and frames.is_looped(repeat):
            return _in_last_round(automaton, frame)
        if path:
            return bool(path[-1] == ANY_INDEX)
        at = first[0] if repeat == NO_FRAME else int(nfa.repeat_exit[repeat])
        frame = first[-1]
    return False


def _in_last_round(automaton: Automaton, frame: int) -> bool:
    frames = automaton.frames
    repeat = frames.repeat(frame)
    if not frames.is_looped(repeat):
        return False
    most = int(automaton.nfa.repeat_max[repeat])
    return most != UNBOUNDED and all(low == most - 1 for low, _, _ in frames.counts(frame))
