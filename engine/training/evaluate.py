"""How good a trained model is: its held-out loss, and how often what it writes freely is valid.

In: weights and held-out examples; a model and its vocabulary. Out: nats per token; texts drawn without any mask, and
the share of them that the schema accepts. Cost: a second per thousand texts, which advance together. The judge of
validity is jsonschema-rs, which shares nothing with our masks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import jsonschema_rs
import numpy as np
from numpy.typing import NDArray

from engine.models import Batch, IntArray, Model
from engine.models.window_mlp import Parameters
from engine.training.gradients import mean_loss
from engine.training.windows import Examples
from schemas_cache.vocabulary import Vocabulary

ROWS_AT_ONCE = 4096  # 14 MB of logits at 838 tokens


def held_out_loss(parameters: Parameters, examples: Examples) -> float:
    """Mean loss over all examples, nats per token."""
    total = 0.0
    for start in range(0, len(examples), ROWS_AT_ONCE):
        chosen = np.arange(start, min(start + ROWS_AT_ONCE, len(examples)))
        total += mean_loss(parameters, *examples.at(chosen)) * len(chosen)
    return total / len(examples)


def draw_texts(
    model: Model, vocabulary: Vocabulary, count: int, temperature: float, seed: int, most_characters: int = 160
) -> list[str]:
    """Texts that the model writes from an empty prompt until its end token, without a mask.

    Takes all slots of the model. A text that reaches `most_characters` code points is cut there.
    """
    model.allocate(count)
    draws = np.random.default_rng(seed)
    texts = [""] * count
    pieces = [data.decode("utf-8") for data in vocabulary.token_bytes]
    live = np.arange(count, dtype=np.int32)
    token_ids = np.empty(0, np.int32)
    offsets = np.zeros(count + 1, np.int32)
    while len(live):
        logits = model.forward(Batch(token_ids, offsets, live))[:, : model.vocabulary_size]
        token_ids = _draw(logits, temperature, draws)
        for slot, token_id in zip(live, token_ids, strict=True):
            texts[slot] += pieces[token_id]
        going_on = ~np.isin(token_ids, vocabulary.end_ids)
        going_on &= [len(texts[slot]) < most_characters for slot in live]
        live, token_ids = live[going_on], token_ids[going_on]
        offsets = np.arange(len(live) + 1, dtype=np.int32)
    return [text[:most_characters] for text in texts]


def share_valid(texts: Iterable[str], schema: Mapping[str, Any]) -> float:
    """Share of texts that are JSON and that the schema accepts, 0 to 1."""
    validator = jsonschema_rs.validator_for(dict(schema))
    verdicts = [_is_valid(text, validator) for text in texts]
    return sum(verdicts) / len(verdicts)


def _is_valid(text: str, validator: jsonschema_rs.Validator) -> bool:
    try:
        return validator.is_valid(json.loads(text))
    except json.JSONDecodeError:
        return False


def _draw(logits: NDArray[np.float32], temperature: float, draws: np.random.Generator) -> IntArray:
    """One token per row of logits (B, V), by inverting the cumulative distribution."""
    scores = logits.astype(np.float64) / temperature
    scores -= scores.max(axis=1, keepdims=True)
    cumulative = np.exp(scores).cumsum(axis=1)
    thresholds = draws.random((len(logits), 1)) * cumulative[:, -1:]
    drawn: IntArray = (cumulative <= thresholds).sum(axis=1).astype(np.int32)
    return drawn
