"""Small made-up things for tests: vocabularies to be checked by eye, a tokenizer, a model that says what it is told.

No network, no downloads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from engine.models import Batch, FloatArray
from engine.request import Request
from engine.sequence import Job, sequences_of
from engine.sequence import Sequence as SequenceRow
from engine.step import Decoder
from schemas_cache import Lookup, Vocabulary, compile_source

# id 0 ends a text, 1 is a special token without bytes; 28 and 29 are the two halves of "é".
TOKENS = (
    *(b"", b"", b'"', b"{", b"}", b": ", b", ", b":", b" ", b"a", b"b", b"c", b"ab", b"abc"),
    *(b'"a"', b'": ', b'{"', b'", "', b"1", b"2", b"12", b"0", b"t", b"true", b"false", b"[", b"]", b","),
    *(b"\xc3", b"\xa9", "é".encode()),
)
END, SPECIAL = 0, 1
TOY = Vocabulary(TOKENS, [END])

# One token for each character and no longer ones; id 0 ends a text.
CHARACTERS = Vocabulary([b"", *(char.encode() for char in '{}[]",: abcdefghijklmnopqrstuvwxyz0123456789-é')], [0])


class GreedyTokenizer:
    """Takes the longest token that fits, from left to right."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._ids = {data: number for number, data in reversed(list(enumerate(vocabulary.token_bytes))) if data}

    def encode_bytes(self, data: bytes) -> list[int]:
        """Ids of the bytes; ValueError where no token fits."""
        ids, start = [], 0
        while start < len(data):
            lengths = range(self.vocabulary.longest_token_bytes, 0, -1)
            fits = next((n for n in lengths if data[start : start + n] in self._ids and start + n <= len(data)), None)
            if fits is None:
                raise ValueError(f"cannot spell {data!r}")
            ids.append(self._ids[data[start : start + fits]])
            start += fits
        return ids

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        return self.encode_bytes(text.encode())

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Bytes of ids."""
        return b"".join(self.vocabulary.token_bytes[token_id] for token_id in ids)


Logits = Callable[[tuple[int, ...]], Sequence[float] | NDArray[np.float32]]


class ToyModel:
    """A model over slots whose logits are a function of all tokens that a sequence has had so far.

    `fed` keeps, for each forward pass, what every row was fed.
    """

    def __init__(self, width: int, logits: Logits, context_length: int = 10_000) -> None:
        self.vocabulary_size, self.context_length = width, context_length
        self._logits = logits
        self._contexts: list[tuple[int, ...]] = []
        self.fed: list[list[tuple[int, ...]]] = []

    def allocate(self, slots: int, _batch_invariant: bool = False) -> None:
        """Make room; its logits depend on the context alone anyway."""
        self._contexts = [()] * slots

    def reset(self, slot: int) -> None:
        """Forget one."""
        self._contexts[slot] = ()

    def forward(self, batch: Batch) -> FloatArray:
        """Feed the new tokens, float32 (B + M, width) out."""
        bounds = zip(batch.row_offsets[:-1].tolist(), batch.row_offsets[1:].tolist(), strict=True)
        new = [tuple(batch.token_ids[start:end].tolist()) for start, end in bounds]
        self.fed.append(new)
        inner: list[tuple[int, ...]] = []
        for slot, ids, start in zip(batch.slots.tolist(), new, batch.row_offsets.tolist(), strict=False):
            within = [at - start + 1 for at in batch.inner.tolist() if start <= at < start + len(ids)]
            inner += [self._contexts[slot] + ids[:length] for length in within]
            self._contexts[slot] += ids
        contexts = [self._contexts[slot] for slot in batch.slots.tolist()] + inner
        return np.array([self._logits(context) for context in contexts], np.float32)


def given(width: int, logits: Mapping[int, float] | None = None) -> Logits:
    """The same logits at each step: these, and 0 elsewhere."""
    row = np.zeros(width, np.float32)
    for token_id, value in (logits or {}).items():
        row[token_id] = value
    return lambda _context: row


def random_logits(width: int, seed: int = 0) -> Logits:
    """Logits that depend on the context alone, and look random."""
    return lambda context: np.random.default_rng([seed, len(context), *context[-3:]]).normal(size=width)


def scripted(width: int, script: Sequence[int], prompt_tokens: int = 0) -> Logits:
    """Favour the script's tokens in turn, then nothing."""

    def logits(context: tuple[int, ...]) -> NDArray[np.float32]:
        at = len(context) - prompt_tokens
        return given(width, {script[at]: 50.0} if at < len(script) else {})(context)  # type: ignore[return-value]

    return logits


def rows_for(request: Request, vocabulary: Vocabulary, seed: int = 0) -> list[SequenceRow]:
    """The sequences of a request, its schema compiled without a cache."""
    job = Job(request, Future(), seed, submitted_s=0.0)
    if request.source is not None:
        job.lookup = Lookup(compile_source(request.source, vocabulary), "miss", 0.0)
    job.sequences = list(sequences_of(job, context_length=10_000))
    return job.sequences


def decoder_for(vocabulary: Vocabulary, model: ToyModel, max_running: int = 8) -> Decoder:
    """A decoder with the greedy tokenizer."""
    return Decoder(model, vocabulary, GreedyTokenizer(vocabulary).encode_bytes, max_running)


def decode(decoder: Decoder, rows: Iterable[SequenceRow], most_steps: int = 1000) -> list[SequenceRow]:
    """Run sequences until all are over, and return them in the order of their ending."""
    decoder.scheduler.add(rows)
    over: list[SequenceRow] = []
    for _ in range(most_steps):
        if decoder.scheduler.idle:
            return over
        over += decoder.step()
    raise AssertionError(f"not over after {most_steps} steps")
