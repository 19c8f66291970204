"""A training run on disk: to go on after a kill as if nothing had happened.

In: weights, Adam's means and step count, seconds spent. Out: one safetensors file, written under a temporary name and
renamed, so that it is always whole. It carries the identity of its run; a file of another run counts as absent.
Cost: twelve bytes per parameter. The state of no random generator is kept: each step draws its batch from
(seed, step number).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from engine.training.adam import Adam


@dataclass(slots=True, eq=False)
class Run:
    """What changes while training."""

    weights: NDArray[np.float32]  # float32 (P,)
    adam: Adam
    seconds: float = 0.0  # spent on steps, over all parts of an interrupted run
    recent_loss: float = float("nan")  # running mean of the batches' losses, nats per token


def save_checkpoint(path: Path, run: Run, identity: str) -> None:
    """Write the run; `identity` names its settings and data."""
    temporary = path.with_suffix(".partial")
    arrays = {"weights": run.weights, "first": run.adam.first, "second": run.adam.second}
    numbers = {"steps": str(run.adam.steps), "seconds": repr(run.seconds), "recent_loss": repr(run.recent_loss)}
    save_file(arrays, temporary, metadata={"identity": identity, **numbers})
    os.replace(temporary, path)


def load_checkpoint(path: Path, identity: str) -> Run | None:
    """The run as it was saved, or None where there is no file, a damaged one, or one of another run."""
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata()
            arrays = {name: file.get_tensor(name) for name in ("weights", "first", "second")}
    except (FileNotFoundError, SafetensorError):
        return None
    if metadata.get("identity") != identity:
        return None
    adam = Adam(arrays["first"], arrays["second"], int(metadata["steps"]))
    return Run(arrays["weights"], adam, float(metadata["seconds"]), float(metadata["recent_loss"]))
