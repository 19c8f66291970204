"""Token healing: a prompt of text that ends inside a token is spelled anew together with what follows it.

In: a sequence whose prompt was text. Out: how many of the prompt's last tokens are given back, and which tokens may
stand in their place. A model that was trained on whole words has hardly seen `http:` followed by `//`, since `://` is
one token. So where some token begins with what the last tokens of the prompt spell and goes on with what may follow,
these tokens are given back, and the model chooses between the first of them and every such token. Where it takes the
prompt's own, the next one is up, until none is left; so the text that results always begins with the prompt, and
everything that could be drawn before can be drawn now.

Given back are as many tokens as possible, so that a token that reaches over several of them is found; never the first,
since nothing is before it to choose by, and no special token. Prompts of token ids and of chat templates give nothing
back: they are what the model is meant to see. Where the schema forces what follows, that is not left to the model:
prompt's end and forced text are tokenised as a whole, as forced text always is.

A request that wants log-probabilities or diagnostics is not healed: it is told about its prompt's tokens as they are.
Near the token limit, where a token that reaches into the text would leave too little room, the prompt's own is kept.

Cost: some microseconds where no token is longer; else a walk over the tokens that begin so, 0.1 ms, or 2 ms where all
31,000 words of SmolLM2 with a blank before them may follow; and one step of decoding more where the model chooses.
Source: token healing as in guidance (Lundberg 2023), which gives back the last token; the choice between the prompt's
own tokens and longer ones is ours.

Rejected: cutting the prompt by bytes and spelling its end freely, which allows spellings that no tokenizer writes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from engine.sequence import Healing, Sequence
from schemas_cache import Matcher, Vocabulary, pack_mask

WordArray = NDArray[np.uint32]


class Healer:
    """Finds what to give back; one for each vocabulary.

    Parameters
    ----------
    vocabulary : Vocabulary
        Bytes of each token.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._token_bytes = vocabulary.token_bytes
        self._longest = vocabulary.longest_token_bytes

    def at_begin(self, row: Sequence, matcher: Matcher | None) -> Healing | None:
        """What a sequence without a token gives back; None where nothing is to be healed.

        `matcher` is at the beginning of its text.
        """
        request = row.job.request
        if not request.heal_prompt or request.logprobs is not None or request.diagnostics:
            return None
        return self.of_end(row.prompt[1:], matcher)

    def of_end(self, tokens: tuple[int, ...], matcher: Matcher | None) -> Healing | None:
        """Give back the most of these last tokens of a prompt that a longer one can stand for; None: no such one."""
        found, data = None, b""
        for count in range(1, len(tokens) + 1):
            own = self._token_bytes[tokens[-count]]
            data = own + data
            if not own or len(data) >= self._longest:
                break
            longer = self._longer(data, matcher)
            if longer is not None:
                own_id = tokens[-count]
                longer[own_id // 32] |= np.uint32(1 << own_id % 32)
                found = Healing(tokens[-count:], data, longer)
        return found

    def _longer(self, data: bytes, matcher: Matcher | None) -> WordArray | None:
        """Tokens that begin with these bytes and go on with what may follow, packed; None where there are none."""
        order, spelled = self._sorted
        start, end = bisect_right(spelled, data), bisect_left(spelled, after(data))
        if start == end:
            return None
        if matcher is not None:
            allowed = matcher.mask_after(data)
            return allowed.copy() if allowed.any() else None
        bits = np.zeros(-(-len(self._token_bytes) // 32) * 32, bool)
        bits[order[start:end]] = True
        return pack_mask(bits)

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.int32], list[bytes]]:
        """Tokens with bytes in the order of their bytes, int32 (T,), and these."""
        order = sorted((i for i, data in enumerate(self._token_bytes) if data), key=self._token_bytes.__getitem__)
        return np.array(order, np.int32), [self._token_bytes[i] for i in order]


def after(prefix: bytes) -> bytes:
    """Least bytes that come after all that begin with these; they are not all 0xFF, since no UTF-8 has that byte."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1])
