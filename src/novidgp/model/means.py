"""Mean functions of GP layers: zero, or linear with a chosen start."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Zero(eqx.Module):
    """`m(x) = 0`: the paper's choice."""

    outputs: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*b d"]) -> Float[Array, "*b p"]:
        """Zeros."""
        return jnp.zeros((*x.shape[:-1], self.outputs), x.dtype)


class Linear(eqx.Module):
    """`m(x) = x W + b`; a fixed one receives no gradient."""

    weight: Float[Array, "d p"]
    bias: Float[Array, " p"]
    learned: bool = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*b d"]) -> Float[Array, "*b p"]:
        """The affine map."""
        weight, bias = self.weight, self.bias
        if not self.learned:
            weight, bias = jax.lax.stop_gradient((weight, bias))
        return x @ weight + bias


MeanFunction = Zero | Linear


def linear_start(inputs: np.ndarray, outputs: int) -> np.ndarray:
    """The weight that passes its input on: identity, padded with zeros, or the leading PCA directions.

    A deep GP whose hidden layers start as the identity starts as a shallow one; with a zero mean the
    composition of two random functions forgets its input (Duvenaud et al. 2014).
    """
    width = inputs.shape[1]
    if outputs >= width:
        return np.eye(width, outputs)
    centred = inputs - inputs.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(1)])
    weight = np.zeros((width, outputs))
    available = min(outputs, len(directions))
    weight[:, :available] = (directions * signs[:, None])[:available].T
    return weight


def local_start(inputs: np.ndarray, outputs: int, local: int) -> np.ndarray:
    """`linear_start` of a first layer whose last `local` input columns are local variables.

    These are passed on unchanged, after as many directions of the other columns as there is room for.
    """
    room = outputs - local
    if room < 1:
        return np.concatenate([linear_start(inputs[:, :-local], outputs), np.zeros((local, outputs))])
    weight = np.zeros((inputs.shape[1], outputs))
    weight[:-local, :room] = linear_start(inputs[:, :-local], room)
    weight[-local:, room:] = np.eye(local)
    return weight
