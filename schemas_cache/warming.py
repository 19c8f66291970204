"""Learning ahead of time what decoding with a schema will ask for.

In: a compiled schema. Out: the same, with the states and mask rows that texts of it pass through, as far as they look
different to a token. Cost: one walk of the trie for each of them, bounded by their number and by time. States that look
the same to a token (the positions of a long string, the elements of an array) are followed once, so the whole schema is
seen and no count is unrolled. Rejected: random texts, which come by rare branches late; all states, of which a string
of bounded length alone has thousands.
"""

from __future__ import annotations

import time
from collections import deque

from schemas_cache.automaton import DEAD, START
from schemas_cache.compile import CompiledSchema
from schemas_cache.errors import SchemaTooComplexError

MAX_WARMED_STATES = 4_096  # as many as are stored
WARMING_S = 10.0  # a walk takes half a millisecond


def warm(compiled: CompiledSchema, max_states: int = MAX_WARMED_STATES, timeout_s: float = WARMING_S) -> int:
    """Learn states and mask rows, those nearest to the start first; returns how many states were looked at."""
    automaton, rows = compiled.tokens.automaton, compiled.tokens.rows
    give_up_s = time.monotonic() + timeout_s
    letters = automaton.alphabet.representative.tolist()
    reached, looked_at, seen_rows = {START}, 0, set[int]()
    queue = deque([START])
    try:
        while queue and looked_at < max_states and time.monotonic() < give_up_s:
            state = queue.popleft()
            looked_at += 1
            row = rows.row(state)
            if row in seen_rows:
                continue
            seen_rows.add(row)
            following = {automaton.step(state, letter) for letter in letters} - {DEAD} - reached
            reached |= following
            queue.extend(sorted(following))
    except SchemaTooComplexError:  # what is learnt by now is as good
        pass
    return looked_at
