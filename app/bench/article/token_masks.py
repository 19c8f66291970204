"""Three masks over tokens of several characters: by all bytes, by the first character, of single characters only.

In: the BPE model and the dense table of the schema. Out: for each mask valid records, failures with examples, the share
of the model's probability that a step cuts off, tokens and time per record, lengths of titles. Only the first mask is
the product's; the other two live here, to show what deciding a token by less than all of its bytes does. All three run
in the same loop over a table of states by tokens, which is the article's own loop: so their times compare. Cost: a
forward pass for each token, and a second for the masks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine import LoadedModel
from engine.models import Batch
from schemas_cache import CompiledSchema
from schemas_cache.automaton import DEAD, END
from schemas_cache.token_automaton import DenseTable

Allowed = NDArray[np.bool_]  # bool (D, V): by row of the dense table

ALL_BYTES, FIRST_CHARACTER, SINGLE_CHARACTER = TOKEN_MASKS = ("all bytes", "first character", "single characters only")


@dataclass(slots=True)
class Walked:
    """One record under one of the masks."""

    token_ids: list[int]
    cuts: list[float]  # share of the probability that the mask cut off, for each step, the end's included
    broken: bool = False  # the last token left the grammar
    complete: bool = False


def table_of(compiled: CompiledSchema) -> DenseTable:
    """The dense table; raises `ValueError` for a schema that has none."""
    if compiled.tokens.dense is None:
        raise ValueError("the schema has no dense table for this vocabulary")
    return compiled.tokens.dense


def allowed_tokens(compiled: CompiledSchema, name: str) -> Allowed:
    """What one of the masks allows in each state of the dense table."""
    table = table_of(compiled)
    whole: Allowed = table.next_state != DEAD
    if name == ALL_BYTES:
        return whole
    texts = [data.decode("utf-8", "replace") for data in compiled.vocabulary.token_bytes]
    if name == SINGLE_CHARACTER:
        whole &= np.array([len(text) <= 1 for text in texts])  # the end token has no text
        return whole
    by_first = _by_first_character(compiled, table, texts)
    by_first |= table.next_state == END
    return by_first


def _by_first_character(compiled: CompiledSchema, table: DenseTable, texts: list[str]) -> Allowed:
    first = {text[0] for text in texts if text}
    allowed = np.zeros(table.next_state.shape, bool)
    for row, state in enumerate(table.states.tolist()):
        live = {character for character in first if compiled.tokens.automaton.walk(state, character.encode()) != DEAD}
        allowed[row] = [text[:1] in live for text in texts]
    return allowed


def draw_under(
    loaded: LoadedModel, compiled: CompiledSchema, allowed: Allowed, count: int, most_tokens: int, seed: int
) -> tuple[list[Walked], float]:
    """Draw records at T = 1 under a mask, all in one batch.

    Parameters
    ----------
    allowed : bool, shape (D, V)
        A token that is allowed and leads nowhere breaks its record, which ends with it.

    Returns
    -------
    list of Walked, float
        The records, and the seconds that all of them took.
    """
    table, draws = table_of(compiled), np.random.default_rng(seed)
    walked = [Walked([], []) for _ in range(count)]
    started_s = time.process_time()
    loaded.model.allocate(count)
    live, rows = np.arange(count), np.zeros(count, np.int32)  # records under way, and their rows of the table
    token_ids, offsets = np.empty(0, np.int32), np.zeros(count + 1, np.int32)
    for _ in range(most_tokens):
        logits = loaded.model.forward(Batch(token_ids, offsets, live.astype(np.int32)))[:, : allowed.shape[1]]
        token_ids, cuts = _draw(logits, allowed[rows], draws)
        states = table.next_state[rows, token_ids]
        for record, token_id, cut, state in zip(
            live.tolist(), token_ids.tolist(), cuts.tolist(), states.tolist(), strict=True
        ):
            _take(walked[record], token_id, cut, state)
        going_on = (states != DEAD) & (states != END)
        live, token_ids, rows = live[going_on], token_ids[going_on], table.row_of_state[states[going_on]]
        offsets = np.arange(len(live) + 1, dtype=np.int32)
        if not len(live):
            break
    return walked, time.process_time() - started_s


def _take(record: Walked, token_id: int, cut: float, state: int) -> None:
    record.cuts.append(cut)
    record.complete, record.broken = state == END, state == DEAD
    if state != END:
        record.token_ids.append(token_id)


def _draw(
    logits: NDArray[np.float32], allowed: Allowed, draws: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """One allowed token per row of logits (B, V), and the share of probability that the mask cut off, (B,)."""
    weights = np.exp((logits - logits.max(axis=1, keepdims=True)).astype(np.float64))
    total = weights.sum(axis=1)
    weights *= allowed
    cumulative = weights.cumsum(axis=1)
    thresholds = draws.random(len(logits)) * cumulative[:, -1]
    drawn = (cumulative <= thresholds[:, None]).sum(axis=1).astype(np.int32)
    return drawn, 1 - np.minimum(cumulative[:, -1] / total, 1.0)
