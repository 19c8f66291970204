"""Interned frames: what happens after the end of a block, shared by all configurations that agree on it.

In: pushes, counts and pops from the automaton. Out: ints that name frames; equal frames have equal ints. A frame is one
of three kinds, and an NFA state's block fixes which:

- a *continuation*, for the states of a rule: a set of (state to return to, parent frame), one parent for each state;
- a *count*, for the states of a counted repeat's body or of counted members: disjoint intervals of counts, each with
  its parent frame;
- a *choice*, for members in any order: sets of the members written so far, each with its parent frame.

Two configurations in the same NFA state are merged into one whose frame is the union, all the way up. So a state of the
automaton is a function from NFA states to frames, and depth costs frames, never configurations: the graph-structured
stack. Counts that run apart (`(a|aa){0,800}`) are intervals, not one configuration each.

Cost: everything is memoised; a union is linear in what differs. Source: Tomita, "An efficient augmented context-free
parsing algorithm" (Computational Linguistics 13, 1987). Rejected: one frame for each chain of calls, which doubles with
every level where two alternatives recurse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from itertools import pairwise

from schemas_cache.members import Members
from schemas_cache.nfa import COUNTED, LOOPED, PICKED, UNBOUNDED, Nfa
from schemas_cache.work import spend

ROOT = 0  # the frame of the start rule: its end is acceptance
ACCEPT = -1  # the state to return to in ROOT
NO_FRAME = -1
UNBOUNDED_COUNT = 2**62
FRAME_BYTES, LINK_BYTES = 320, 150  # of Python objects, as measured with tracemalloc

Continuation = tuple[tuple[int, int], ...]  # (state to return to or set of members, parent), sorted
Counts = tuple[tuple[int, int, int], ...]  # (lowest count, highest count, parent), sorted and disjoint


class Frames:
    """The interning table; grows. Used under the automaton's lock."""

    def __init__(self, nfa: Nfa) -> None:
        self._min = nfa.repeat_min.tolist()
        self._max = nfa.repeat_max.tolist()
        self._kind = nfa.repeat_kind.tolist()
        self.members = Members(nfa)
        self._steps: dict[tuple[int, int, int, int], int] = {}
        self._leaves: dict[int, int] = {}
        self._content: list[tuple[int, Continuation | Counts]] = []
        self._links = 0  # of all frames together
        self._ids: dict[tuple[int, Continuation | Counts], int] = {}
        self._unions: dict[tuple[int, int], int] = {}
        self._rounds: dict[int, tuple[int, int]] = {}
        self._intern(NO_FRAME, ((ACCEPT, NO_FRAME),))

    def __len__(self) -> int:
        return len(self._content)

    @property
    def size_bytes(self) -> int:
        """Memory taken, roughly."""
        return FRAME_BYTES * (len(self._content) + len(self._unions)) + LINK_BYTES * self._links

    def add(self, repeat: int, content: Continuation | Counts) -> int:
        """Intern a frame by its content; parents first, as they were numbered when it was learnt."""
        return self._intern(repeat, content)

    def repeat(self, frame: int) -> int:
        """Return the repeat of a count frame, or NO_FRAME for a continuation."""
        return self._content[frame][0]

    def content(self, frame: int) -> Continuation | Counts:
        """Return the pairs of a continuation, or the triples of a count frame."""
        return self._content[frame][1]

    def continuation(self, frame: int) -> Continuation:
        """Return the (state, parent) pairs of a rule's frame."""
        return self._content[frame][1]  # type: ignore[return-value]  # the block's kind fixes the frame's

    def counts(self, frame: int) -> Counts:
        """Return the (lowest, highest, parent) triples of a repeat's frame."""
        return self._content[frame][1]  # type: ignore[return-value]  # the block's kind fixes the frame's

    def call(self, back: int, parent: int) -> int:
        """Return the frame for a rule called from a block with frame `parent`, to go on at `back`."""
        return self._intern(NO_FRAME, ((back, parent),))

    def enter(self, repeat: int, parent: int) -> int:
        """Return the frame for the first round of a repeat, or for members of which none is written."""
        return self._intern(repeat, ((self.members.none, parent),) if self.is_choice(repeat) else ((0, 0, parent),))

    def is_choice(self, repeat: int) -> bool:
        """Whether a repeat's frames hold sets of members."""
        return repeat != NO_FRAME and self._kind[repeat] == PICKED

    def is_looped(self, repeat: int) -> bool:
        """Whether a repeat's frames count rounds of one body."""
        return repeat != NO_FRAME and self._kind[repeat] == LOOPED

    def index(self, frame: int) -> int:
        """How many elements stand before the one being written."""
        first = self._content[frame][1][0][0]
        return self.members.count(first) - 1 if self.is_choice(self._content[frame][0]) else first

    def count(self, frame: int, step: int, low: int, high: int) -> int:
        """One member more, or none: the frame with the counts from `low` to `high`; NO_FRAME where there are none."""
        key = (frame, step, low, high)
        known = self._steps.get(key)
        if known is None:
            known = self._steps[key] = self._count(*key)
        return known

    def pick(self, frame: int, member: int) -> int:
        """One of the members, or MORE, is picked: the frame with it; NO_FRAME where it may not be picked."""
        repeat = self._content[frame][0]
        return self._choose(frame, lambda members: self.members.pick(repeat, members, member))

    def go_on(self, frame: int) -> int:
        """Return the frame as far as a further member may be picked; NO_FRAME where none may."""
        repeat = self._content[frame][0]
        return self._choose(frame, lambda members: self.members.go_on(repeat, members))

    def leave(self, frame: int) -> int:
        """Return the frame to leave to where enough members are written, and no more than may be; else NO_FRAME."""
        known = self._leaves.get(frame)
        if known is None:
            known = self._leaves[frame] = self._leave(frame)
        return known

    def loop(self, frame: int) -> tuple[int, int]:
        """One more round is done: the frame for a further one and the frame to leave to; NO_FRAME where not allowed."""
        known = self._rounds.get(frame)
        if known is None:
            known = self._rounds[frame] = self._loop(frame)
        return known

    def union(self, a: int, b: int) -> int:
        """Return the frame that allows what either allows; both of one kind."""
        if a == b:
            return a
        key = (a, b) if a < b else (b, a)
        known = self._unions.get(key)
        if known is None:
            known = self._unions[key] = self._union(*key)
        return known

    def _intern(self, repeat: int, content: Continuation | Counts) -> int:
        key = (repeat, content)
        known = self._ids.get(key)
        if known is None:
            known = self._ids[key] = len(self._content)
            self._content.append(key)
            self._links += len(content)
            spend(1 + len(content) // 8)
        return known

    def _union(self, a: int, b: int) -> int:
        repeat = self._content[a][0]
        if repeat != NO_FRAME and not self.is_choice(repeat):
            counts = self._disjoint(self.counts(a) + self.counts(b))
            return self._intern(repeat, self._undominated(repeat, counts) if self.is_looped(repeat) else counts)
        parents = dict(self.continuation(a))
        for back, parent in self.continuation(b):
            parents[back] = self.union(parents[back], parent) if back in parents else parent
        return self._intern(repeat, tuple(sorted(parents.items())))

    def _count(self, frame: int, step: int, low: int, high: int) -> int:
        repeat = self._content[frame][0]
        most = self._min[repeat] if self._max[repeat] == UNBOUNDED else high  # beyond the minimum all counts are alike
        clipped = []
        spend(6)
        for first, last, parent in self.counts(frame):
            first, last = max(first + step, low), min(last + step, high)
            if first <= last:
                clipped.append((min(first, most), min(last, most), parent))
        return self._intern(repeat, self._disjoint(clipped)) if clipped else NO_FRAME

    def _choose(self, frame: int, choose: Callable[[int], int | None]) -> int:
        found: dict[int, int] = {}
        for members, parent in self.continuation(frame):
            chosen = choose(members)
            if chosen is not None:
                found[chosen] = self.union(found[chosen], parent) if chosen in found else parent
        return self._intern(self._content[frame][0], tuple(sorted(found.items()))) if found else NO_FRAME

    def _leave(self, frame: int) -> int:
        repeat = self._content[frame][0]
        if self._kind[repeat] == COUNTED:
            most = UNBOUNDED_COUNT if self._max[repeat] == UNBOUNDED else self._max[repeat]
            counts = self.counts(frame)
            parents = [above for low, high, above in counts if high >= self._min[repeat] and low <= most]
        else:
            sets = self.continuation(frame)
            parents = [above for members, above in sets if self.members.complete(repeat, members)]
        return reduce(self.union, parents) if parents else NO_FRAME

    def _loop(self, frame: int) -> tuple[int, int]:
        repeat = self._content[frame][0]
        minimum, maximum = self._min[repeat], self._max[repeat]
        leave, further = NO_FRAME, []
        for low, high, parent in self.counts(frame):
            if high + 1 >= minimum:
                leave = parent if leave == NO_FRAME else self.union(leave, parent)
            if maximum == UNBOUNDED:  # beyond the minimum all counts are alike
                further.append((min(low + 1, minimum), min(high + 1, minimum), parent))
            elif low + 1 < maximum:
                further.append((low + 1, min(high + 1, maximum - 1), parent))
        again = self._intern(repeat, self._undominated(repeat, self._disjoint(further))) if further else NO_FRAME
        return again, leave

    def _undominated(self, repeat: int, counts: Counts) -> Counts:
        """Leave out the counts of rounds from which nothing can follow that cannot from another with the same parent.

        Where a round more is never one too many, the highest count says all. Where the next round may be the last, a
        lower count allows all that a higher one does.
        """
        minimum, maximum = self._min[repeat], self._max[repeat]
        if len(counts) == 1 and counts[0][0] == counts[0][1]:
            return counts
        if maximum == UNBOUNDED:
            highest = {parent: high for _, high, parent in counts}
            return tuple(sorted((high, high, parent) for parent, high in highest.items()))
        kept, may_leave = list[tuple[int, int, int]](), set[int]()
        for low, high, parent in counts:
            if high + 1 >= minimum:
                least = max(low, minimum - 1)
                high = least - 1 if parent in may_leave else least
                may_leave.add(parent)
            if low <= high:
                kept.append((low, high, parent))
        return tuple(kept)

    def _disjoint(self, intervals: Iterable[tuple[int, int, int]]) -> Counts:
        """Cut overlapping intervals apart, unite their parents, join neighbours with equal parents."""
        ordered = sorted(intervals)
        cuts = sorted({low for low, _, _ in ordered} | {high + 1 for _, high, _ in ordered})
        pieces: list[tuple[int, int, int]] = []
        spend(len(cuts) // 2)
        open_ones, begun = list[tuple[int, int, int]](), 0
        for low, following in pairwise(cuts):
            open_ones = [interval for interval in open_ones if interval[1] >= low]
            while begun < len(ordered) and ordered[begun][0] == low:
                open_ones.append(ordered[begun])
                begun += 1
            if not open_ones:
                continue
            parent = reduce(self.union, [above for _, _, above in open_ones])
            if pieces and pieces[-1][1] == low - 1 and pieces[-1][2] == parent:
                pieces[-1] = (pieces[-1][0], following - 1, parent)
            else:
                pieces.append((low, following - 1, parent))
        return tuple(pieces)
