"""The article's model: the last 24 tokens, embedded, through one tanh layer to the vocabulary.

In: a `Batch` of new tokens. Out: logits of each row and inner position. Per slot the memory is one window of token ids;
there is no cache to keep, so a prompt costs no more than its last 24 tokens. Cost per row: 384 x 256 + 256 x V
multiplications, two matrix products for the whole batch. An inner position is a window like any other, and costs what a
row costs.

The model reads one line. Its window never looks back over an end token: what is left of the last one is filled with end
tokens, exactly as at the beginning of a line in training. So an empty prompt means "at the beginning of a line", and of
a prompt with line breaks the model sees the last line. Rejected: a window that looks over line ends, which this model
has no room to use; a table of embedding x hidden weights per position, faster on paper, bound by memory in fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from engine.models import Batch, FloatArray, IntArray
from engine.models.tiles import fixed_tiles, tiled_product

ARCHITECTURE = "window_mlp"
WINDOW_TOKENS = 24
EMBEDDING_SIZE = 16
HIDDEN_SIZE = 256
CONTEXT_LENGTH = 1 << 17  # tokens; the memory of a sequence does not grow, so this only bounds a runaway request

# Weights by name, each of the shape in `parameter_shapes`: float32 to use, float64 to check gradients with.
Parameters = Mapping[str, NDArray[np.floating[Any]]]


def parameter_shapes(vocabulary_size: int) -> dict[str, tuple[int, ...]]:
    """Name -> shape of each weight, (outputs, inputs) for matrices as the safetensors files of others have them."""
    return {
        "embedding.weight": (vocabulary_size, EMBEDDING_SIZE),
        "hidden.weight": (HIDDEN_SIZE, WINDOW_TOKENS * EMBEDDING_SIZE),
        "hidden.bias": (HIDDEN_SIZE,),
        "output.weight": (vocabulary_size, HIDDEN_SIZE),
        "output.bias": (vocabulary_size,),
    }


def parameter_count(vocabulary_size: int) -> int:
    """Number of weights: 327,334 for a vocabulary of 838 tokens, 381,934 for 1,038."""
    return sum(int(np.prod(shape)) for shape in parameter_shapes(vocabulary_size).values())


def describe(vocabulary_size: int) -> dict[str, Any]:
    """What config.json says of the architecture; `load_window_mlp` checks it."""
    return {
        "architecture": ARCHITECTURE,
        "vocab_size": vocabulary_size,
        "window_tokens": WINDOW_TOKENS,
        "embedding_size": EMBEDDING_SIZE,
        "hidden_size": HIDDEN_SIZE,
        "parameters": parameter_count(vocabulary_size),
    }


def load_window_mlp(folder: Path, config: Mapping[str, Any]) -> WindowMlp:
    """The model of a folder with model.safetensors, of any float type, whose config.json is `config`.

    Raises
    ------
    ValueError
        When the config is not of this architecture and size, or the weights do not fit it.
    """
    expected = describe(int(config.get("vocab_size", 0)))
    if wrong := [name for name, value in expected.items() if config.get(name) != value]:
        raise ValueError(f"{folder}: config.json is not of a window model of this size: see {', '.join(wrong)}")
    model = WindowMlp(load_file(folder / "model.safetensors"), int(config["eos_token_id"]))
    if model.vocabulary_size != expected["vocab_size"]:
        raise ValueError(f"{folder}: weights are for {model.vocabulary_size} tokens, config.json says otherwise")
    return model


@dataclass(frozen=True, slots=True, eq=False)
class Activations:
    """What one forward pass computes, kept for backpropagation; B rows, the dtype of the parameters."""

    embedded: NDArray[np.floating[Any]]  # (B, 384): the embeddings of a window side by side
    hidden: NDArray[np.floating[Any]]  # (B, 256): after tanh
    logits: NDArray[np.floating[Any]]  # (B, V)


def activations(parameters: Parameters, windows: NDArray[np.integer[Any]], tile_rows: int | None = None) -> Activations:
    """Forward pass over windows, int (B, 24), oldest token first; in tiles of so many rows, or all at once."""
    embedded = parameters["embedding.weight"][windows].reshape(len(windows), WINDOW_TOKENS * EMBEDDING_SIZE)
    hidden = _product(embedded, parameters["hidden.weight"], tile_rows)
    hidden += parameters["hidden.bias"]
    np.tanh(hidden, out=hidden)
    logits = _product(hidden, parameters["output.weight"], tile_rows)
    logits += parameters["output.bias"]
    return Activations(embedded, hidden, logits)


def _product(
    rows: NDArray[np.floating[Any]], weight: NDArray[np.floating[Any]], tile_rows: int | None
) -> NDArray[np.floating[Any]]:
    return rows @ weight.T if tile_rows is None else tiled_product(rows, weight, tile_rows)


class WindowMlp:
    """The window model over slots; used by one thread at a time.

    Parameters
    ----------
    parameters : mapping of name to float array
        As in `parameter_shapes`; converted to float32.
    end_id : int
        The end token, which fills a window before the beginning of its line.

    Raises
    ------
    ValueError
        When a weight is missing, superfluous or of another shape.
    """

    def __init__(self, parameters: Parameters, end_id: int) -> None:
        self._parameters = {name: np.ascontiguousarray(value, np.float32) for name, value in parameters.items()}
        _check_shapes(self._parameters)
        self._vocabulary_size = len(self._parameters["output.bias"])
        for name in ("output.weight", "output.bias"):
            self._parameters[name] = _padded(self._parameters[name])
        self._end_id = end_id
        self.allocate(0)

    @property
    def vocabulary_size(self) -> int:
        """Width V of the vocabulary; the logits are padded to a multiple of 32."""
        return self._vocabulary_size

    @property
    def context_length(self) -> int:
        """Most tokens, prompt and output together, that one sequence may have."""
        return CONTEXT_LENGTH

    def allocate(self, slots: int, batch_invariant: bool = False) -> None:
        """Make room for this many sequences, each at the beginning of a line; forgets all of them."""
        self._windows = np.full((slots, WINDOW_TOKENS), self._end_id, np.int32)
        matrices = [self._parameters["hidden.weight"], self._parameters["output.weight"]]
        self._tile_rows = fixed_tiles(matrices) if batch_invariant else None

    def reset(self, slot: int) -> None:
        """Put the sequence in `slot` at the beginning of a line."""
        self._windows[slot] = self._end_id

    def forward(self, batch: Batch) -> FloatArray:
        """Feed the new tokens; logits after them, float32 (B + M, at least V): the rows' last, then `inner`."""
        before = self._windows[batch.slots]
        windows = _windows_after(before, batch.token_ids, batch.row_offsets[:-1], np.diff(batch.row_offsets))
        windows[_up_to_last_end(windows, self._end_id)] = self._end_id
        self._windows[batch.slots] = windows
        if len(batch.inner):
            inner = _inner_windows(before, batch)
            inner[_up_to_last_end(inner, self._end_id)] = self._end_id
            windows = np.concatenate([windows, inner])
        return activations(self._parameters, windows, self._tile_rows).logits.astype(np.float32, copy=False)


def _padded(outputs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Outputs of no meaning up to a multiple of 32: masks are words of 32 tokens, and whole words are faster."""
    return np.concatenate([outputs, np.zeros((-len(outputs) % 32, *outputs.shape[1:]), np.float32)])


def _windows_after(windows: IntArray, token_ids: IntArray, first: IntArray, taken: IntArray) -> IntArray:
    """Windows (R, 24) after window r took in `token_ids[first[r]:first[r] + taken[r]]`: any number, also none."""
    count = len(windows)
    both = np.concatenate([windows.ravel(), token_ids])
    from_new = np.arange(WINDOW_TOKENS) + taken[:, None] - WINDOW_TOKENS  # index into the new tokens
    in_old = np.arange(1, count + 1)[:, None] * WINDOW_TOKENS + from_new
    in_new = count * WINDOW_TOKENS + first[:, None] + from_new
    return both[np.where(from_new < 0, in_old, in_new)]


def _inner_windows(windows: IntArray, batch: Batch) -> IntArray:
    """Windows (M, 24) after each token of `batch.inner`, from those of the rows before the batch, (B, 24)."""
    rows = np.searchsorted(batch.row_offsets, batch.inner, side="right") - 1
    first = batch.row_offsets[rows]
    return _windows_after(windows[rows], batch.token_ids, first, batch.inner + 1 - first)


def _up_to_last_end(windows: IntArray, end_id: int) -> NDArray[np.bool_]:
    """True at each position of a window, (B, 24), that is an end token or left of one."""
    reached = np.logical_or.accumulate(windows[:, ::-1] == end_id, axis=1)
    return reached[:, ::-1]


def _check_shapes(parameters: Parameters) -> None:
    expected = parameter_shapes(len(parameters.get("output.bias", ())))
    found = {name: value.shape for name, value in parameters.items()}
    if found != expected:
        raise ValueError(f"these are not the weights of a window model: shapes are {found}, expected {expected}")
