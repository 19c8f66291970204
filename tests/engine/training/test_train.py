"""Training is deterministic and survives being killed."""

from pathlib import Path

import numpy as np
import pytest

from engine.training.train import OnStep, TrainingConfig, learning_rate, train
from engine.training.windows import Examples, build_examples

CONFIG = TrainingConfig(seed=5, steps=40, batch_size=16, checkpoint_every=10)
VOCABULARY = 9


class KilledError(Exception):
    """Stands for the end of a process in the middle of a run."""


@pytest.fixture(scope="module")
def examples() -> Examples:
    """Random walks over eight tokens."""
    draws = np.random.default_rng(6)
    return build_examples([(1 + np.cumsum(draws.integers(0, 2, 20)) % 8).tolist() for _ in range(30)], 0)


def kill_at(step: int) -> OnStep:
    """A callback that ends the run after so many steps."""

    def on_step(steps: int, _loss: float) -> None:
        if steps == step:
            raise KilledError

    return on_step


def train_killed(examples: Examples, checkpoint: Path, step: int, config: TrainingConfig = CONFIG) -> None:
    """Train until killed."""
    with pytest.raises(KilledError):
        train(examples, VOCABULARY, config, checkpoint=checkpoint, on_step=kill_at(step))


def test_same_seed_same_weights(examples: Examples) -> None:
    """Bit for bit; another seed gives others."""
    first, second = (train(examples, VOCABULARY, CONFIG).weights for _ in range(2))
    other = train(examples, VOCABULARY, TrainingConfig(seed=6, steps=40, batch_size=16)).weights
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("killed_at", [5, 10, 27])
def test_killed_and_resumed_is_uninterrupted(examples: Examples, tmp_path: Path, killed_at: int) -> None:
    """Bit for bit, whether killed before, at or after a checkpoint."""
    uninterrupted = train(examples, VOCABULARY, CONFIG)
    train_killed(examples, tmp_path / "run.safetensors", killed_at)
    resumed = train(examples, VOCABULARY, CONFIG, checkpoint=tmp_path / "run.safetensors")
    assert np.array_equal(uninterrupted.weights, resumed.weights)
    assert uninterrupted.recent_loss == resumed.recent_loss


def test_resumes_at_the_last_checkpoint(examples: Examples, tmp_path: Path) -> None:
    """Killed at step 27 with a checkpoint every ten: the next step done is the 21st."""
    train_killed(examples, tmp_path / "run.safetensors", 27)
    done: list[int] = []
    train(
        examples,
        VOCABULARY,
        CONFIG,
        checkpoint=tmp_path / "run.safetensors",
        on_step=lambda step, _: done.append(step),
    )
    assert list(range(21, 41)) == done


def test_checkpoint_of_other_settings_is_not_used(examples: Examples, tmp_path: Path) -> None:
    """The run then begins anew."""
    other = TrainingConfig(seed=5, steps=50, batch_size=16, checkpoint_every=10)
    train_killed(examples, tmp_path / "run.safetensors", 27, other)
    begun_anew = train(examples, VOCABULARY, CONFIG, checkpoint=tmp_path / "run.safetensors")
    assert np.array_equal(train(examples, VOCABULARY, CONFIG).weights, begun_anew.weights)


@pytest.mark.parametrize("kept_bytes", [0, 7, 1000])
def test_damaged_checkpoint_is_not_used(examples: Examples, tmp_path: Path, kept_bytes: int) -> None:
    """A truncated file counts as none."""
    checkpoint = tmp_path / "run.safetensors"
    train_killed(examples, checkpoint, 27)
    checkpoint.write_bytes(checkpoint.read_bytes()[:kept_bytes])
    begun_anew = train(examples, VOCABULARY, CONFIG, checkpoint=checkpoint)
    assert np.array_equal(train(examples, VOCABULARY, CONFIG).weights, begun_anew.weights)


def test_training_learns(examples: Examples) -> None:
    """A sequence that stays or moves by one has two likely next tokens of nine: far below a uniform guess."""
    losses: list[float] = []
    config = TrainingConfig(seed=5, steps=300, batch_size=64)
    train(examples, VOCABULARY, config, on_step=lambda _, loss: losses.append(loss))
    assert np.log(VOCABULARY) == pytest.approx(losses[0], abs=0.2)
    assert losses[-1] < 1.0


def test_learning_rate_rises_then_falls() -> None:
    """Up to the peak within 200 steps, down to two per cent of it at the end."""
    config = TrainingConfig(seed=0, steps=1000, peak_learning_rate=1.0)
    rates = [learning_rate(step, config) for step in range(1000)]
    peak = int(np.argmax(rates))
    assert peak == 199
    assert rates[:200] == sorted(rates[:200])
    assert rates[199:] == sorted(rates[199:], reverse=True)
    assert rates[-1] == pytest.approx(0.02, abs=1e-3)
