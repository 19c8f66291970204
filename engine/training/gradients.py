"""Loss and gradients of the window model, by hand.

In: parameters, windows and the token after each. Out: the mean loss in nats per token, and the gradient of every
parameter written into arrays that the caller keeps. Cost: three times the forward pass; the only large temporary, the
(B, V) logits, is turned in place into probabilities and then into their gradient. A test holds it against finite
differences in float64. Rejected: automatic differentiation, for three layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.models.window_mlp import EMBEDDING_SIZE, Parameters, activations

FloatAny = NDArray[np.floating[Any]]
IntAny = NDArray[np.integer[Any]]


def mean_loss(parameters: Parameters, windows: IntAny, targets: IntAny) -> float:
    """Mean of minus log probability of `targets`, int (B,), after `windows`, int (B, 24); nats per token."""
    logits = activations(parameters, windows).logits
    highest = logits.max(axis=1)
    log_sum = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=1))
    return float(np.mean(log_sum - logits[np.arange(len(targets)), targets]))


def fill_gradients(parameters: Parameters, windows: IntAny, targets: IntAny, gradients: Parameters) -> float:
    """Write the gradient of the mean loss into `gradients`, which has the shapes of `parameters`; returns that loss.

    Parameters
    ----------
    parameters : mapping of name to float array
        Not changed.
    windows : int, shape (B, 24)
        Tokens before each target, oldest first.
    targets : int, shape (B,)
        The tokens to predict.
    gradients : mapping of name to float array
        Overwritten, of the dtype of `parameters`.

    Returns
    -------
    float
        Mean loss in nats per token.
    """
    forward = activations(parameters, windows)
    loss = _softmax_gradient(forward.logits, targets)
    logits_gradient = forward.logits  # what it now holds
    np.matmul(logits_gradient.T, forward.hidden, out=gradients["output.weight"])
    np.sum(logits_gradient, axis=0, out=gradients["output.bias"])

    hidden_gradient = logits_gradient @ parameters["output.weight"]
    hidden_gradient *= 1 - forward.hidden**2
    np.matmul(hidden_gradient.T, forward.embedded, out=gradients["hidden.weight"])
    np.sum(hidden_gradient, axis=0, out=gradients["hidden.bias"])

    embedded_gradient = hidden_gradient @ parameters["hidden.weight"]
    _sum_by_token(embedded_gradient.reshape(-1, EMBEDDING_SIZE), windows.ravel(), gradients["embedding.weight"])
    return loss


def _softmax_gradient(logits: FloatAny, targets: IntAny) -> float:
    """Turn logits (B, V), in place, into the gradient of the mean loss by them; returns that loss."""
    rows = np.arange(len(targets))
    logits -= logits.max(axis=1, keepdims=True)
    of_target = logits[rows, targets]
    np.exp(logits, out=logits)
    sums = logits.sum(axis=1)
    logits /= (sums * len(targets))[:, None]
    logits[rows, targets] -= 1 / len(targets)
    return float(np.mean(np.log(sums) - of_target))


def _sum_by_token(rows: FloatAny, token_ids: IntAny, out: FloatAny) -> None:
    """Add up the rows (N, 16) of each token into `out` (V, 16): one sort and one sum per run, in a fixed order."""
    order = np.argsort(token_ids, kind="stable")
    ordered = token_ids[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    out.fill(0)
    out[ordered[starts]] = np.add.reduceat(rows[order], starts, axis=0)
