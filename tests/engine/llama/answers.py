"""Requests of a tiny Llama model, decoded step by step."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path

from engine import LoadedModel, Request, load_model
from engine.config import FastPath
from engine.models import Batch
from engine.models.llama.decoder import LlamaModel
from engine.sequence import Job, Sequence, sequences_of
from engine.step import Decoder
from schemas_cache import Lookup, compile_source
from tests.engine.llama.slow import Sizes
from tests.engine.llama.tiny import make_weights, write_gguf

SIZES = Sizes()
ON = FastPath()
OFF = FastPath(few_logits=False, prefix_reuse=False, prefill_chunk_tokens=None)


def load_tiny(folder: Path, cache_bytes: int = 2**24) -> LoadedModel:
    """A random model."""
    path = write_gguf(folder / "tiny.gguf", SIZES, make_weights(SIZES))
    return load_model(path, folder, cache_bytes)


def decoder_of(
    loaded: LoadedModel, max_running: int = 8, fast_path: FastPath = ON, batch_invariant: bool = False
) -> Decoder:
    """A decoder on empty slots."""
    return Decoder(
        loaded.model,
        loaded.tokenizer.vocabulary,
        loaded.tokenizer.encode_bytes,
        max_running,
        batch_invariant=batch_invariant,
        fast_path=fast_path,
    )


def rows_of(loaded: LoadedModel, request: Request, seed: int = 0) -> list[Sequence]:
    """The sequences of a request."""
    job = Job(request, Future(), seed, submitted_s=0.0)
    if request.source is not None:
        job.lookup = Lookup(compile_source(request.source, loaded.tokenizer.vocabulary), "miss", 0.0)
    job.sequences = list(sequences_of(job, loaded.model.context_length))
    return job.sequences


def run(decoder: Decoder, rows: Iterable[Sequence]) -> list[Sequence]:
    """Decode them to their end, in the order in which they were given."""
    rows = list(rows)
    decoder.scheduler.add(rows)
    for _ in range(2000):
        if decoder.scheduler.idle:
            return rows
        decoder.step()
    raise AssertionError("not over after 2000 steps")


class Fed:
    """Writes down what a model is fed: for each pass the tokens of each slot."""

    def __init__(self, loaded: LoadedModel) -> None:
        assert isinstance(loaded.model, LlamaModel)
        self.passes: list[dict[int, tuple[int, ...]]] = []
        self._hidden = loaded.model.hidden
        loaded.model.hidden = self._note  # type: ignore[method-assign]

    @property
    def tokens(self) -> int:
        """How many in all."""
        return sum(len(ids) for one in self.passes for ids in one.values())

    def _note(self, batch: Batch):  # type: ignore[no-untyped-def]
        fed = [tuple(batch.token_ids[start:end].tolist()) for start, end in pairwise(batch.row_offsets.tolist())]
        self.passes.append(dict(zip(batch.slots.tolist(), fed, strict=True)))
        return self._hidden(batch)
