"""Members of an object put together: declared ones, listed keys and open ones, with the number of them bounded.

In: `Members` and the bounds. Out: a text expression of all members and the commas between them. Cost: linear in the
members; times the bound where listed keys stand behind declared ones and both are counted.

JSON lets a key repeat, and the last one counts. A declared or listed key is written once at most. An open key may
repeat, which no finite automaton can tell; so where a minimum depends on open keys, as many as it takes come first and
differ in the last four bits of their first character (with `any_order` or a maximum: all of them): stricter than the
schema, never looser. A maximum alone needs no such thing: repetitions only lower the count. Rejected: counting
repetitions (`{"a": 1, "a": 1}` is one property), and refusing such a minimum altogether.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from schemas_cache.grammar import NEVER, Expr, Member, Never, alt, joined, picks
from schemas_cache.limits import MAX_COUNTED_TAIL


class UncountedMembersError(Exception):
    """Members cannot be counted exactly; says why."""


@dataclass(frozen=True, slots=True)
class Members:
    """What an object may hold.

    `declared` come in this order, `listed` in any order behind them, mixed with `more` any number of times; with
    `any_order` all of them mix. `parts` are those of `more`, apart by first character: each stands for one key at most.
    """

    declared: list[Member]
    listed: list[Member]
    more: Expr
    comma: Expr
    any_order: bool
    parts: list[Expr] = field(default_factory=list)

    @property
    def required(self) -> int:
        """How many are there in any case."""
        return sum(member.required for member in self.declared)


def needs_parts(members: Members, low: int) -> bool:
    """Whether a minimum depends on open keys being different: one of them differs from all others anyway."""
    return low > members.required + 1 and not isinstance(members.more, Never)


def together(members: Members, low: int, high: int | None) -> Expr:
    """From `low` to `high` members (None: no bound); those that are written once at most are counted exactly.

    Raises
    ------
    UncountedMembersError
        Where listed keys behind declared ones would need too many copies.
    """
    low = low if low > members.required else 0
    if not needs_parts(members, low):
        return _arranged(members, low, high)
    apart = [*members.listed, *(Member(part, required=False) for part in members.parts)]
    if members.any_order or high is not None:
        return _arranged(replace(members, listed=apart, more=NEVER), low, high)
    # No more keys than `apart` are different, and the rest of `low` have to be declared: other counts are `NEVER`.
    counts = range(max(1, low - len(members.declared)), min(low, len(apart)) + 1)
    return alt(*(_with_different(members, apart, low, count) for count in counts))


def _with_different(members: Members, apart: list[Member], low: int, count: int) -> Expr:
    """Declared members, then keys of which the first `count` differ for certain; the rest of `low` are declared."""
    rest = alt(members.more, *(member.body for member in members.listed))
    different = [Member(picks(apart, members.comma, NEVER, count, count), required=True)]
    tail = joined(different, members.comma, rest) if count > 1 else joined((), members.comma, rest, 1)
    return joined([*members.declared, Member(tail, count > 1)], members.comma, NEVER, low - count + 1)


def _arranged(members: Members, low: int, high: int | None) -> Expr:
    declared, listed, more, comma = members.declared, members.listed, members.more, members.comma
    if members.any_order:
        return picks([*declared, *listed], comma, more, low, high)
    if not listed:
        return joined(declared, comma, more, low, high)
    if not declared:
        return picks(listed, comma, more, low, high)
    if low == 0 and high is None:
        return joined([*declared, Member(picks(listed, comma, more, 1), required=False)], comma)
    if max(low, high or 0) <= MAX_COUNTED_TAIL:
        return _split(members, low, high)
    if low > members.required + 1:
        raise UncountedMembersError(f"keys in any order behind declared ones are counted up to {MAX_COUNTED_TAIL} only")
    return joined(declared, comma, alt(more, *(member.body for member in listed)), low, high)


def _split(members: Members, low: int, high: int | None) -> Expr:
    """One alternative for each number of keys behind the declared ones."""
    most = low if high is None else high
    choices = []
    for count in range(most + 1):
        last = None if high is None and count == most else count
        tail = [Member(picks(members.listed, members.comma, members.more, count, last), required=True)]
        rest = max(low - count, 0), None if high is None else high - count
        with_tail = (rest[0] + 1, None if rest[1] is None else rest[1] + 1) if count else rest
        choices.append(joined([*members.declared, *(tail if count else [])], members.comma, NEVER, *with_tail))
    return alt(*choices)
