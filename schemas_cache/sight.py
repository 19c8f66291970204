"""What one token can see of a state, as a digest: the key of its mask row.

In: a state of the automaton and the length of the longest token. Out: 16 bytes, equal for states that no token of that
length tells apart by their frames. Each configuration is followed to the end of its block if that is near enough, then
to its frame's parents with the bytes that are left; counts are clipped at what is left, since a round takes a byte at
least, and numbers of members are taken relative to the borders in sight that they are compared with. Cost: linear in
the frames in sight, each of them worked out once for each number of bytes left. Source: ours.

These digests have the numbers of one schema's states in them. Those that mean the same in all schemas are made by
`text_sight`; a bit tells the two kinds apart.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right

import numpy as np

from schemas_cache.automaton import END, Automaton
from schemas_cache.frames import ACCEPT, NO_FRAME
from schemas_cache.nfa import COUNT, PASS, UNBOUNDED

DIGEST_BYTES = 16
EVERYTHING = 2**31  # bytes in sight where what can be spelled later decides what is allowed now


class Sight:
    """Digests states; used under the automaton's lock."""

    def __init__(self, automaton: Automaton, longest_token_bytes: int) -> None:
        self._automaton, self._reach = automaton, longest_token_bytes
        self._frames: dict[tuple[int, int], str] = {}
        self._borders_of: dict[int, list[int]] = {}

    def digest(self, state: int) -> bytes:
        """Return the digest of what a token can see from `state`."""
        ends = self._automaton.accepting[state] and state != END
        seen = [self._seen(at, frame, self._reach) for at, frame in self._automaton.configurations[state]]
        return _own_digest(f"{ends} {seen}")

    @property
    def counts_without_bounds(self) -> str:
        """What `counts` says where there is no bound, or it is out of sight."""
        return f"0 {self._reach}"

    def counts(self, repeat: int, low: int, high: int) -> str:
        """Describe an interval of counts of a repeat as far as a token can tell."""
        if self._automaton.frames.is_looped(repeat):
            return self._rounds(repeat, low, high, self._reach)
        return f"{self._before_borders(repeat, low)} {self._before_borders(repeat, high)}"

    def _seen(self, at: int, frame: int, reach: int) -> str:
        """Describe a configuration as far as `reach` bytes can tell."""
        if at == ACCEPT:
            return "accept"
        left = reach if reach >= EVERYTHING else reach - self._automaton.distance[at]
        repeat = self._automaton.frames.repeat(frame)
        if left < 0 and (repeat == NO_FRAME or self._automaton.frames.is_looped(repeat)):
            return f"{at}"
        return f"{at}:{self._frame(frame, max(left, 0))}"  # members are decided on long before their block ends

    def _frame(self, frame: int, reach: int) -> str:
        known = self._frames.get((frame, reach))
        if known is None and reach >= EVERYTHING:
            self._describe_parents_first(frame)
            known = self._frames[frame, EVERYTHING]
        elif known is None:
            described = self._describe(frame, reach)
            known = self._frames[frame, reach] = _hash(described).hexdigest()
        return known

    def _describe_parents_first(self, frame: int) -> None:
        """Describe a whole frame without recursion: it may be as deep as the text is nested."""
        todo = [frame]
        while todo:
            links = self._automaton.frames.content(todo[-1])
            missing = [
                link[-1] for link in links if link[-1] != NO_FRAME and (link[-1], EVERYTHING) not in self._frames
            ]
            if missing:
                todo.extend(missing)
            else:
                at = todo.pop()
                self._frames[at, EVERYTHING] = _hash(self._describe(at, EVERYTHING)).hexdigest()

    def _describe(self, frame: int, reach: int) -> str:
        frames, nfa = self._automaton.frames, self._automaton.nfa
        repeat = frames.repeat(frame)
        if frames.is_choice(repeat):
            return self._members(repeat, frame, reach)
        if repeat == NO_FRAME:
            return str([self._seen(back, parent, reach) for back, parent in frames.continuation(frame)])
        leave, is_looped = int(nfa.repeat_exit[repeat]), frames.is_looped(repeat)
        described = []
        for low, high, parent in frames.counts(frame):
            counts = self._rounds(repeat, low, high, reach) if is_looped else self.counts(repeat, low, high)
            described.append(f"{counts} {self._seen(leave, parent, reach)}")
        return f"{repeat} {described}"

    def _rounds(self, repeat: int, low: int, high: int, reach: int) -> str:
        """Describe how many rounds more are needed, and how many there may be."""
        nfa = self._automaton.nfa
        minimum, maximum = int(nfa.repeat_min[repeat]), int(nfa.repeat_max[repeat])
        needed = min(max(minimum - high - 1, 0), reach)
        room = reach if maximum == UNBOUNDED else min(maximum - low - 1, reach)
        return f"{needed} {room}"

    def _before_borders(self, repeat: int, count: int) -> str:
        """Describe a number of members as far as a token can tell: by how much less than each border in sight it is.

        A token adds as many members as it has bytes at most, and a count is only ever compared with these borders.
        """
        borders = self._borders(repeat)
        passed = bisect_right(borders, count)
        seen = bisect_right(borders, count + self._reach)
        return f"{passed}{[border - count for border in borders[passed:seen]]}"

    def _borders(self, repeat: int) -> list[int]:
        """Numbers of members from which on a step of this repeat is permitted, or is not any more; sorted."""
        known = self._borders_of.get(repeat)
        if known is None:
            nfa = self._automaton.nfa
            steps = np.flatnonzero(((nfa.op == COUNT) | (nfa.op == PASS)) & (nfa.op_arg == repeat))
            lows, highs = nfa.op_low[steps].astype(np.int64), nfa.op_high[steps].astype(np.int64) + 1
            bounds = [int(nfa.repeat_min[repeat]), int(nfa.repeat_max[repeat]) + 1]
            known = self._borders_of[repeat] = np.unique(np.concatenate([lows, highs, bounds])).tolist()
        return known

    def _members(self, repeat: int, frame: int, reach: int) -> str:
        frames, leave = self._automaton.frames, int(self._automaton.nfa.repeat_exit[repeat])
        sets = [
            f"{written:x} {others} {due} {self._seen(leave, parent, reach)}"
            for members, parent in frames.continuation(frame)
            for written, others, due in [frames.members.content(members)]
        ]
        return f"{repeat} {sorted(sets)}"


def is_shared(digest: bytes) -> bool:
    """Whether a digest means the same row in all schemas of a vocabulary."""
    return bool(digest[0] & 1)


def shared_digest(text: str) -> bytes:
    """Return the digest of a description that means the same row in all schemas of a vocabulary."""
    digest = _hash(text).digest()
    return bytes((digest[0] | 1,)) + digest[1:]


def _own_digest(text: str) -> bytes:
    digest = _hash(text).digest()
    return bytes((digest[0] & 0xFE,)) + digest[1:]


def _hash(text: str) -> hashlib.blake2b:
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES)
