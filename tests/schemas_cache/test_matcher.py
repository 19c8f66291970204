"""Matchers: what the mask allows can be taken and nothing else, forks are independent, rolling back is exact."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

from schemas_cache.codec import pack, unpack
from schemas_cache.errors import ForbiddenBytesError, ForbiddenTokenError
from schemas_cache.matcher import Matcher, fill_masks
from schemas_cache.snapshot import capture, restore
from schemas_cache.token_automaton import TokenAutomaton
from schemas_cache.token_index import token_index
from tests.schemas_cache.machines import automaton_of, awkward_vocabulary, tokens_of
from tests.schemas_cache.test_masks import CASES, bits

VOCABULARY = awkward_vocabulary()


def compiled(case: str) -> TokenAutomaton:
    """Lift a case of the mask tests."""
    return tokens_of(automaton_of(*CASES[case]), VOCABULARY)


def allowed(matcher: Matcher) -> list[int]:
    """List the allowed tokens."""
    return sorted(bits(matcher.mask()))


def wander(matcher: Matcher, rng: random.Random, steps: int) -> list[int]:
    """Take random allowed tokens; those taken."""
    taken = []
    for _ in range(steps):
        choices = allowed(matcher)
        if not choices:
            break
        taken.append(rng.choice(choices))
        matcher.advance(taken[-1])
    return taken


@pytest.mark.parametrize("case", CASES)
def test_mask_and_advance_agree(case: str) -> None:
    """Each allowed token can be taken, each forbidden one is an error that changes nothing."""
    rng, tokens = random.Random(case), compiled(case)
    for _ in range(10):
        matcher = Matcher(tokens)
        for _ in range(15):
            legal = set(allowed(matcher))
            for token_id in range(len(VOCABULARY)):
                fork = matcher.fork()
                assert fork.allows(token_id) == (token_id in legal)
                if token_id in legal:
                    fork.advance(token_id)
                else:
                    with pytest.raises(ForbiddenTokenError):
                        fork.advance(token_id)
                    assert fork.state == matcher.state
            if not legal:
                break
            matcher.advance(rng.choice(sorted(legal)))


@pytest.mark.parametrize("case", CASES)
def test_tokens_that_go_on_after_a_prefix(case: str) -> None:
    """Those that begin with it, and whose rest may come next: by trying each; every token's beginnings, and none."""
    rng, tokens, spelled = random.Random(case), compiled(case), VOCABULARY.token_bytes
    prefixes = {data[:length] for data in spelled for length in (1, 2, len(data)) if data[:length]} | {b"no such token"}
    for _ in range(3):
        matcher = Matcher(tokens)
        wander(matcher, rng, rng.randrange(6))
        for prefix in prefixes:
            expected = {
                token_id
                for token_id, data in enumerate(spelled)
                if data.startswith(prefix) and data != prefix and matcher.allows_bytes(data[len(prefix) :])
            }
            assert expected == set(bits(matcher.mask_after(prefix)))
            assert expected == set(bits(matcher.mask_after(prefix)))  # this one was kept


@pytest.mark.parametrize("case", CASES)
def test_rollback_is_exact(case: str) -> None:
    """After k more tokens and k back, state and mask are as before; too many back is an error."""
    rng, matcher = random.Random(case), Matcher(compiled(case))
    for _ in range(10):
        before, mask = matcher.state, matcher.mask().copy()
        matcher.rollback(len(wander(matcher, rng, rng.randrange(1, 6))))
        assert matcher.state == before
        np.testing.assert_array_equal(matcher.mask(), mask)
        wander(matcher, rng, 1)
    with pytest.raises(ValueError, match="take back"):
        matcher.rollback(11)


def test_forks_go_their_own_way() -> None:
    """A fork does not move its origin, and reset goes back to the start."""
    matcher = Matcher(compiled("enumeration"))
    matcher.advance_bytes(b'"')
    fork = matcher.fork()
    fork.advance_bytes("初級".encode())
    assert (matcher.forced(), fork.forced()) == (b"", b'"')
    fork.rollback(2)
    assert fork.state == Matcher(matcher.tokens).state
    matcher.reset()
    assert matcher.forced() == b'"'


def test_forbidden_bytes_change_nothing() -> None:
    """Bytes that cannot come are an error that names the place."""
    matcher = Matcher(compiled("enumeration"))
    with pytest.raises(ForbiddenBytesError, match="root"):
        matcher.advance_bytes(b'"z')
    assert matcher.forced() == b'"'


def test_finished_and_accepting_differ() -> None:
    """An open-ended text is accepting and goes on; the end token finishes it; the longest one is finished by itself."""
    matcher = Matcher(compiled("ambiguous counts"))
    matcher.advance_bytes(b"abcabc")
    assert (matcher.accepting, matcher.finished) == (True, False)
    ended = matcher.fork()
    ended.advance(VOCABULARY.end_ids[0])
    assert (ended.accepting, ended.finished, allowed(ended)) == (True, True, [])
    matcher.advance_bytes(b"abc" * 58)
    assert (matcher.accepting, matcher.finished, allowed(matcher)) == (True, True, list(VOCABULARY.end_ids))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_fill_masks_of_a_mixed_batch(order: tuple[int, ...]) -> None:
    """Each row gets its own schema's mask, a free row all ones, in any order."""
    one, other = Matcher(compiled("enumeration")), Matcher(compiled("any json"))
    rows: list[Matcher | None] = [one, None, other]
    out = np.zeros((3, (len(VOCABULARY) + 31) // 32), np.uint32)
    fill_masks([rows[i] for i in order], out)
    free = np.full(out.shape[1], 0xFFFFFFFF, np.uint32)
    for line, i in zip(out, order, strict=True):
        row = rows[i]
        np.testing.assert_array_equal(line, free if row is None else row.mask())


def test_fill_masks_of_one_schema() -> None:
    """Many rows of one schema, in different states."""
    tokens, rng = compiled("any json"), random.Random(3)
    matchers = [Matcher(tokens) for _ in range(50)]
    for matcher in matchers:
        wander(matcher, rng, rng.randrange(12))
    out = np.zeros((50, tokens.rows.words), np.uint32)
    fill_masks(matchers, out)
    np.testing.assert_array_equal(out, np.stack([matcher.mask() for matcher in matchers]))


@pytest.mark.parametrize("case", CASES)
def test_restored_tables_say_the_same(case: str) -> None:
    """After a round trip through bytes, walks meet the same masks, learnt before or after."""
    tokens, rng = compiled(case), random.Random(case)
    if case == "enumeration":
        tokens.lift(1 << 20)
    for _ in range(20):
        wander(Matcher(tokens), rng, 30)
    again = restore(*unpack(pack(*capture(tokens))), token_index(VOCABULARY))
    assert len(again.automaton) == len(tokens.automaton)
    assert (again.dense is None) == (tokens.dense is None)
    for _ in range(20):
        matcher, copy = Matcher(tokens), Matcher(again)
        for _ in range(30):
            np.testing.assert_array_equal(matcher.mask(), copy.mask())
            assert (matcher.accepting, matcher.forced()) == (copy.accepting, copy.forced())
            if not allowed(matcher):
                break
            copy.advance(wander(matcher, rng, 1)[0])


def test_threads_share_one_schema() -> None:
    """Eight threads walk one automaton that is still unknown; each meets the masks that a walk alone would meet."""
    shared, failures = compiled("any json"), list[BaseException]()

    def work(seed: int) -> None:
        rng, alone = random.Random(seed), compiled("any json")
        try:
            for _ in range(10):
                matcher, referee = Matcher(shared), Matcher(alone)
                for _ in range(40):
                    np.testing.assert_array_equal(matcher.mask(), referee.mask())
                    for token_id in wander(matcher, rng, 1):
                        referee.advance(token_id)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
