"""Sets of members that are written in any order: which may still come, and which have to.

In: an `Nfa` with PICKED repeats. Out: interned sets, as ints: which of a repeat's members are written, and how many
others. Cost: a look-up for each set and member. A set of n members is an int of n bits; only those sets exist that some
text has written.
"""

from __future__ import annotations

from itertools import pairwise

from schemas_cache.nfa import MORE, UNBOUNDED, Nfa
from schemas_cache.work import spend

Set = tuple[int, int, bool]  # bits of the members that are written, how many others are, whether the next one is due


class Members:
    """The interning table of sets; grows. Used under the automaton's lock."""

    def __init__(self, nfa: Nfa) -> None:
        start, required = nfa.pick_start.tolist(), nfa.pick_required.tolist()
        self._total = [after - before for before, after in pairwise(start)]
        self._required = [
            sum(1 << i for i, needed in enumerate(required[before:after]) if needed)
            for before, after in pairwise(start)
        ]
        self._min: list[int] = nfa.repeat_min.tolist()
        self._max: list[int] = nfa.repeat_max.tolist()
        self._more = nfa.pick_more.tolist()
        self._sets: list[Set] = []
        self._ids: dict[Set, int] = {}
        self.none = self.add((0, 0, False))

    def __len__(self) -> int:
        return len(self._sets)

    def add(self, members: Set) -> int:
        """Intern a set."""
        known = self._ids.get(members)
        if known is None:
            known = self._ids[members] = len(self._sets)
            self._sets.append(members)
        return known

    def content(self, members: int) -> Set:
        """Return what a set holds."""
        return self._sets[members]

    def count(self, members: int) -> int:
        """How many are written in all."""
        written, others, _ = self._sets[members]
        return written.bit_count() + others

    def pick(self, repeat: int, members: int, member: int) -> int | None:
        """Return the set with one more, or None where it is written already or would make the total impossible."""
        written, others, _ = self._sets[members]
        if member == MORE:
            others += 1
        elif written >> member & 1:
            return None
        else:
            written |= 1 << member
        if not self._possible(repeat, written, others):
            return None
        return self.add((written, self._saturated(repeat, others), False))

    def go_on(self, repeat: int, members: int) -> int | None:
        """Return the set with the next member due, or None where no further one may be picked."""
        written, others, _ = self._sets[members]
        return self.add((written, others, True)) if self._may_go_on(repeat, written, others) else None

    def missing(self, repeat: int, members: int) -> tuple[int, int]:
        """Which required members are not written yet, as bits, and how many more there have to be besides."""
        written, others, _ = self._sets[members]
        missing = self._required[repeat] & ~written
        return missing, max(self._min[repeat] - written.bit_count() - others - missing.bit_count(), 0)

    def is_due(self, members: int) -> bool:
        """Whether the next member is due: the separator was begun."""
        return self._sets[members][2]

    def _may_go_on(self, repeat: int, written: int, others: int) -> bool:
        candidates = range(self._total[repeat])
        spend(len(candidates) // 4)
        if self._more[repeat] and self._possible(repeat, written, others + 1):
            return True
        return any(self._possible(repeat, written | 1 << i, others) for i in candidates if not written >> i & 1)

    def complete(self, repeat: int, members: int) -> bool:
        """Whether all that are required are written, and as many as there have to be."""
        written, others, _ = self._sets[members]
        count = written.bit_count() + others
        missing = self._required[repeat] & ~written
        return not missing and count >= self._min[repeat] and self._at_most(repeat, count)

    def _possible(self, repeat: int, written: int, others: int) -> bool:
        """Whether a permitted total can be reached from here."""
        count = written.bit_count() + others
        required = (self._required[repeat] & ~written).bit_count()
        left = self._total[repeat] - written.bit_count()
        enough = self._more[repeat] or count + left >= self._min[repeat]
        return enough and self._at_most(repeat, count + required)

    def _at_most(self, repeat: int, count: int) -> bool:
        return bool(self._max[repeat] == UNBOUNDED or count <= self._max[repeat])

    def _saturated(self, repeat: int, others: int) -> int:
        """Where there is no maximum, counts beyond the minimum are alike."""
        return min(others, self._min[repeat]) if self._max[repeat] == UNBOUNDED else others
