"""All weights of a model in one vector, and each by its name.

In: a vocabulary size and a seed. Out: a float32 vector and views of it with the shapes of the model, so that Adam and
checkpoints handle one array and the model sees named ones. Cost: none, views share memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.models.window_mlp import parameter_count, parameter_shapes
from engine.training.vocabularies import UNKNOWN_ID

EMBEDDING_SPREAD = 0.5
OUTPUT_GAIN = 0.1  # small first logits: training starts near the loss of a uniform guess


def named_views(vector: NDArray[np.float32], vocabulary_size: int) -> dict[str, NDArray[np.float32]]:
    """Name -> view of its part of the vector."""
    shapes = parameter_shapes(vocabulary_size)
    ends = np.cumsum([np.prod(shape) for shape in shapes.values()])
    parts = np.split(vector, ends[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def initial_weights(vocabulary_size: int, seed: int) -> NDArray[np.float32]:
    """Random matrices, spread by the square root of their inputs, and biases of zero.

    No line holds the unknown token, so its embedding keeps its first value: zero, which adds nothing to a hidden unit.
    """
    vector = np.zeros(parameter_count(vocabulary_size), np.float32)
    views = named_views(vector, vocabulary_size)
    draws = np.random.default_rng(seed)
    spreads = {
        "embedding.weight": EMBEDDING_SPREAD,
        "hidden.weight": views["hidden.weight"].shape[1] ** -0.5,
        "output.weight": OUTPUT_GAIN * views["output.weight"].shape[1] ** -0.5,
    }
    for name, spread in spreads.items():
        views[name][:] = spread * draws.standard_normal(views[name].shape)
    views["embedding.weight"][UNKNOWN_ID] = 0
    return vector
