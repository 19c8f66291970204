"""The NFA as arrays: byte edges, epsilon moves, and one operation on a frame for some states.

In: nothing; `thompson` builds it. Out: `Nfa`, frozen. Each rule is a *block* of states of its own, and so is the body
of each counted repeat; a state belongs to exactly one block. Besides byte edges and epsilon moves a state may carry one
operation on the frame of its block:

- CALL: push a frame with the state to return to, go on at a rule's start (no frame where nothing follows the call);
- ENTER: push a frame with count 0, go on in the body of a repeat;
- LOOP: the body is done: count, then go round again, or leave with the frame popped, or both;
- COUNT, PASS: a member is written, or left out; go on if so many can still come to a permitted total;
- PICK, GO_ON: write a member that was not written yet; go on to the next if there is one to pick;
- LEAVE: pop if the members are as many as they have to be, and all that are required;
- RETURN: the rule is done: pop.

Source: blocks as in recursive transition networks (Woods 1970).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NONE, CALL, ENTER, LOOP, RETURN, COUNT, PASS, PICK, GO_ON, LEAVE = range(10)
LOOPED, COUNTED, PICKED = range(3)  # what a repeat's frame holds: rounds, members written, which members are written
TAIL = -1  # in `op_to` of a CALL: nothing follows it, the caller's frame serves
UNBOUNDED = -1  # in `repeat_max`, and in `free_text` for a repeat without a counter
NOT_FREE = -2  # in `free_text`
BY_REPEAT = -1  # in `text_exit`: the text is a body, and the exit that of the repeat
MORE = -1  # in `op_low` of a PICK: not one of the members
ANY_COUNT = 2**31 - 1  # in `op_high`: no bound; a greater maximum is none, as no text is that long
ANY_INDEX = "*"  # pointer segment for an array element that is not counted

Int32 = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Nfa:
    """States are numbers from 0 to S - 1; R counted repeats."""

    start: int
    edge_start: Int32  # int32 (S + 1,): edges of state s are edge_start[s]:edge_start[s + 1]
    edge_lo: NDArray[np.uint8]  # uint8 (E,)
    edge_hi: NDArray[np.uint8]  # uint8 (E,), inclusive
    edge_to: Int32  # int32 (E,)
    epsilon_start: Int32  # int32 (S + 1,)
    epsilon_to: Int32  # int32 (P,)
    op: NDArray[np.uint8]  # uint8 (S,): NONE, CALL, ENTER, LOOP, ...
    op_arg: Int32  # int32 (S,): CALL: the rule's start; all others: the repeat
    op_to: Int32  # int32 (S,): CALL: the state to return to, or TAIL; COUNT, PASS, PICK, GO_ON: the state to go on to
    op_low: Int32  # int32 (S,): COUNT, PASS: the least count to go on with; PICK: the member, or MORE
    op_high: Int32  # int32 (S,): COUNT, PASS: the greatest
    repeat_kind: NDArray[np.uint8]  # uint8 (R,): LOOPED, COUNTED or PICKED
    repeat_min: Int32  # int32 (R,)
    repeat_max: Int32  # int32 (R,), or UNBOUNDED
    repeat_body: Int32  # int32 (R,): where the first round starts
    repeat_again: Int32  # int32 (R,): where a further round starts (the separator)
    repeat_exit: Int32  # int32 (R,): in the surrounding block
    pick_start: Int32  # int32 (R + 1,): members of repeat r are pick_start[r]:pick_start[r + 1]; none unless PICKED
    pick_required: NDArray[np.bool_]  # bool (M,): by member
    pick_more: NDArray[np.bool_]  # bool (R,): others may be picked too, any number of times
    free_text: Int32  # int32 (S,): at the start of a free character: its repeat, UNBOUNDED, or NOT_FREE
    text_first: Int32  # int32 (T,): text t, which has no operation but on its own count, is text_first[t]:text_end[t]
    text_end: Int32  # int32 (T,)
    text_exit: Int32  # int32 (T,): where to go on behind it, in its block, or BY_REPEAT
    text_content: NDArray[np.uint8]  # uint8 (T, 16): digest of its states, equal in all schemas that have such a text
    pointer_of: Int32  # int32 (S,): index into `pointers`
    pointers: tuple[tuple[str | None, ...], ...]  # segments since the block began; None is the frame's count

    @property
    def states(self) -> int:
        """How many states there are."""
        return len(self.op)
