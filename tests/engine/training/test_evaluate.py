"""The measures of a model: loss in float32 in parts, texts drawn without a mask, share of valid ones."""

import numpy as np
import pytest

from engine.models import Batch, FloatArray
from engine.training.evaluate import draw_texts, share_valid
from schemas_cache.vocabulary import Vocabulary

VOCABULARY = Vocabulary([b"", b"a", b"b", b"bb"], [0])


class Scripted:
    """A model that knows only how many tokens it was fed: after n of them it wants token `script[n]`."""

    vocabulary_size = 4
    context_length = 1000

    def __init__(self, script: list[int]) -> None:
        self._script = script

    def allocate(self, slots: int, _batch_invariant: bool = False) -> None:
        """Nothing fed yet."""
        self._fed = np.zeros(slots, int)

    def reset(self, slot: int) -> None:
        """Nothing fed to this slot yet."""
        self._fed[slot] = 0

    def forward(self, batch: Batch) -> FloatArray:
        """Count, and answer by the count."""
        self._fed[batch.slots] += np.diff(batch.row_offsets)
        logits = np.full((len(batch.slots), 4), -50, np.float32)
        logits[np.arange(len(batch.slots)), [self._script[fed] for fed in self._fed[batch.slots]]] = 50
        return logits


def test_a_text_ends_at_the_end_token() -> None:
    """What the model wants is written, the end token is not."""
    assert draw_texts(Scripted([1, 2, 1, 0]), VOCABULARY, 3, 1.0, seed=0) == ["aba"] * 3


def test_a_text_is_cut_at_the_bound() -> None:
    """Counted in characters, within a token too."""
    assert draw_texts(Scripted([1, 3, 3, 3]), VOCABULARY, 2, 1.0, seed=0, most_characters=4) == ["abbb"] * 2


class Uniform(Scripted):
    """A model with no opinion between "a" and "b" and none about anything else."""

    def forward(self, batch: Batch) -> FloatArray:
        """Count, and answer by the count."""
        self._fed[batch.slots] += np.diff(batch.row_offsets)
        logits = np.where(self._fed[batch.slots, None] < 1, [-99, 1, 1, -99], [99, 1, 1, 1])
        return logits.astype(np.float32)


def test_tokens_are_drawn_by_their_probability() -> None:
    """Two equal tokens: each about half of 2,000 draws; the seed decides which."""
    texts = draw_texts(Uniform([]), VOCABULARY, 2000, 0.5, seed=1)
    assert set(texts) == {"a", "b"}
    assert texts.count("a") == pytest.approx(1000, abs=120)
    assert texts == draw_texts(Uniform([]), VOCABULARY, 2000, 0.5, seed=1)


def test_share_valid_counts_what_parses_and_fits() -> None:
    """Broken JSON and JSON that does not fit both count as wrong."""
    assert share_valid(["1", '"x"', "[", "2"], {"type": "integer"}) == 0.5
