"""What a token limit leaves room for: a text that a schema binds is led to its end in time.

In: sequences and their limits. Out: whether a text can still be ended, and the mask of what may come next so that it
can. With R tokens left the invariant is: the tokens needed to end the text from here are at most R. "Needed" is an
upper bound that some token always brings down by one (`schemas_cache.fewest_tokens`). So a text that begins with room
for its shortest document ends as a document, whatever the model wants.

A token is drawn under the schema's mask alone. Where it would break the invariant, the draw is repeated under the
narrowed mask: tokens after which the text can be ended in time. That is the distribution of the narrowed mask, a first
draw that is accepted where it may be; it says exactly where the limit had a say, and costs a look-up while the limit is
far. Forced text is charged before it is taken, and drawn token by token where its canonical tokens are too many.

Where not even the shortest document fits, the limit cuts the text, as it does under `truncate`.

Rejected: narrowing the mask ahead of the draw, which costs a walk of the vocabulary in each state near the limit and
does not tell whether the limit changed anything; repeating the draw with single tokens forbidden, without a bound.
"""

from __future__ import annotations

from engine.errors import BudgetBelowMinimumError
from engine.sequence import Job, Sequence, room_for
from schemas_cache import Matcher


def check_room(job: Job, context_length: int) -> None:
    """Refuse a compiled request of `on_limit: error` that has no room for any document.

    Called off the decode thread: what it finds out is remembered, and takes a second where the shortest document is
    very long.

    Raises
    ------
    BudgetBelowMinimumError
        With the room of the prompt that leaves the least.
    """
    request, lookup = job.request, job.lookup
    if lookup is None or request.on_limit == "truncate" or request.max_tokens == 0:
        return
    room = min(room_for(prompt, request.max_tokens, context_length) for prompt in request.prompts)
    if not lookup.compiled.matcher().fits(room) and request.on_limit == "error":
        raise BudgetBelowMinimumError(room, lookup.compiled.minimum_tokens)


def may_close(row: Sequence) -> bool:
    """Whether a sequence that has no token yet is to be led to its end in time, and can be."""
    wanted = row.job.request.on_limit != "truncate"
    return wanted and row.matcher is not None and row.matcher.fits(row.limit)


def same_text(matcher: Matcher, one: bytes, other: bytes) -> bool:
    """Whether two tokens that may come next begin the same text: what one has more is forced after the other."""
    shorter, longer = sorted((one, other), key=len)
    if not longer.startswith(shorter):
        return False
    probe = matcher.fork()
    probe.advance_bytes(shorter)
    return probe.forced().startswith(longer[len(shorter) :])
