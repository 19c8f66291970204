"""How many bytes the members that still have to come will take, where they come in any order.

In: an `Nfa`, its distances, and a set of members. Out: bytes beyond those of the member that is being written. Cost: a
few additions for each set. Without it a search for a shortest way would try the members in every order.
"""

from __future__ import annotations

import numpy as np

from schemas_cache.members import Members
from schemas_cache.nfa import GO_ON, MORE, PICK, Nfa
from schemas_cache.work import spend


class PickCosts:
    """Lengths of members and separators, by repeat."""

    def __init__(self, nfa: Nfa, distance: list[int], members: Members) -> None:
        self._members = members
        self._lengths: dict[int, dict[int, int]] = {}
        self._separators: dict[int, int] = {}
        for at in np.flatnonzero(nfa.op == PICK).tolist():
            lengths = self._lengths.setdefault(int(nfa.op_arg[at]), {})
            lengths[int(nfa.op_low[at])] = distance[at]
        for at in np.flatnonzero(nfa.op == GO_ON).tolist():
            repeat = int(nfa.op_arg[at])
            self._separators[repeat] = distance[at] - distance[int(nfa.repeat_body[repeat])]

    def remaining(self, repeat: int, members: int) -> int:
        """Fewest bytes of the members that still have to come, separators included.

        Where the next one is due, the rest of the separator and the shortest member are on the way already.
        """
        spend(len(self._lengths[repeat]) // 8)
        lengths, separator = self._lengths[repeat], self._separators[repeat]
        shortest = min(lengths.values())
        missing, besides = self._members.missing(repeat, members)
        listed = (length for member, length in lengths.items() if member != MORE and missing >> member & 1)
        total = sum(separator + length for length in listed) + besides * (separator + shortest)
        return max(total - separator - shortest, 0) if self._members.is_due(members) else total
