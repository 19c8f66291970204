"""The hand-written gradients against finite differences, in float64."""

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.models.window_mlp import parameter_shapes
from engine.training.gradients import fill_gradients, mean_loss

VOCABULARY, ROWS = 7, 5
STEP = 1e-5


@pytest.fixture
def weights() -> dict[str, NDArray[np.float64]]:
    """Random weights for seven tokens."""
    draws = np.random.default_rng(3)
    return {name: 0.3 * draws.standard_normal(shape) for name, shape in parameter_shapes(VOCABULARY).items()}


@pytest.fixture
def batch() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Windows and targets."""
    draws = np.random.default_rng(4)
    windows = draws.integers(0, VOCABULARY - 1, (ROWS, 24))  # one token is in no window
    return windows, draws.integers(0, VOCABULARY, ROWS)


def _gradients(
    weights: dict[str, NDArray[np.float64]], batch: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> tuple[float, dict[str, NDArray[np.float64]]]:
    gradients = {name: np.full_like(value, np.nan) for name, value in weights.items()}
    return fill_gradients(weights, *batch, gradients), gradients


@pytest.mark.parametrize("name", list(parameter_shapes(VOCABULARY)))
def test_gradient_is_the_slope_of_the_loss(
    name: str, weights: dict[str, NDArray[np.float64]], batch: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> None:
    """Central differences at forty elements of each parameter."""
    _, gradients = _gradients(weights, batch)
    flat = weights[name].reshape(-1)
    for index in np.random.default_rng(5).integers(0, flat.size, 40):
        before = flat[index]
        flat[index] = before + STEP
        higher = mean_loss(weights, *batch)
        flat[index] = before - STEP
        lower = mean_loss(weights, *batch)
        flat[index] = before
        slope = (higher - lower) / (2 * STEP)
        assert slope == pytest.approx(gradients[name].reshape(-1)[index], rel=1e-5, abs=1e-9)


def test_both_ways_to_the_loss_agree(
    weights: dict[str, NDArray[np.float64]], batch: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> None:
    """The loss that comes with the gradients is the loss."""
    assert mean_loss(weights, *batch) == pytest.approx(_gradients(weights, batch)[0], rel=1e-12)


def test_a_token_in_no_window_has_no_embedding_gradient(
    weights: dict[str, NDArray[np.float64]], batch: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> None:
    """Its row is overwritten with zeros, whatever the array held."""
    gradient = _gradients(weights, batch)[1]["embedding.weight"]
    assert not gradient[VOCABULARY - 1].any()
    assert gradient[: VOCABULARY - 1].any(axis=1).all()


def test_loss_of_large_logits_is_finite(
    weights: dict[str, NDArray[np.float64]], batch: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> None:
    """A thousand nats overflow a plain exponential."""
    weights["output.bias"][:] = np.linspace(0, 1000, VOCABULARY)
    assert np.isfinite(mean_loss(weights, *batch))
    assert np.isfinite(_gradients(weights, batch)[0])
