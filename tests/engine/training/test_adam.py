"""Adam in place against the equations of the paper."""

import numpy as np
import pytest

from engine.training.adam import Adam


def test_steps_are_those_of_the_paper() -> None:
    """Ten steps of algorithm 1 written out in float64."""
    draws = np.random.default_rng(0)
    gradients = draws.standard_normal((10, 6))
    expected, first, second = np.ones(6), np.zeros(6), np.zeros(6)
    for step, gradient in enumerate(gradients, start=1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        corrected_first, corrected_second = first / (1 - 0.9**step), second / (1 - 0.999**step)
        expected = expected - 0.01 * corrected_first / (np.sqrt(corrected_second) + 1e-8)

    parameters, adam = np.ones(6, np.float32), Adam.for_size(6)
    for gradient in gradients:
        adam.apply(parameters, gradient.astype(np.float32), 0.01)
    assert expected == pytest.approx(parameters, rel=1e-5)
    assert adam.steps == 10


def test_gradient_is_not_changed() -> None:
    """The caller may read it afterwards."""
    gradient = np.array([1.0, -2.0], np.float32)
    Adam.for_size(2).apply(np.zeros(2, np.float32), gradient, 0.1)
    assert gradient.tolist() == [1.0, -2.0]


def test_finds_the_lowest_point_of_a_bowl() -> None:
    """The mean square distance to a point is lowest there."""
    goal = np.array([3.0, -1.0], np.float32)
    parameters, adam = np.zeros(2, np.float32), Adam.for_size(2)
    for _ in range(2000):
        adam.apply(parameters, 2 * (parameters - goal), 0.01)
    assert goal == pytest.approx(parameters, abs=1e-2)
