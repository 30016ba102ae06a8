"""Training of the local GP: L-BFGS on the leave-one-out loss, the deep GP held still.

For classes the loss is that of `local.class_layer`. For a number it is

    loss = -mean_i log t(e_i - mean_i | variance_i + noise_i),

a mean by the rows' weights, where mean and variance are those of the function at row i given the residuals of
its nearest other rows, and `e_i` is the error that the deep GP would have made had it not seen row i. The
parameters are few and the loss has no noise, so fewer than a hundred evaluations end as low as three hundred
steps of Adam. The neighbours are found anew after every few evaluations. Between two searches a lengthscale
stays within a factor of e: further away the neighbours would be others, and a loss over the wrong ones leads
astray.
"""

import functools
import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.optimize import minimize

from novidgp.local.conditional import Neighbourhoods
from novidgp.local.gp import LocalGP, starting_gp
from novidgp.local.rows import ConditionedGP, Rows
from novidgp.numerics.compilation import COMPILER_OPTIONS, precision
from novidgp.numerics.linalg import single_threaded_lapack
from novidgp.numerics.trees import flattened, on_device

_NEIGHBOURS = 16
"""In training. On energy 32 led to a worse optimum from some starts; elsewhere it made no difference."""
_BLOCK = 512
"""Rows per call of the compiled program; other numbers of rows are padded to it and compile nothing."""
_ROUND = 8
"""Evaluations of the loss between two searches for neighbours."""
_STRIDE = 1.0
"""How far the logarithm of a lengthscale may go between them."""
_TOLERANCE = 1e-7
"""A search ends, until the neighbours are found anew, at gains below this in nats per row."""
_REACH = 10.0
"""Bound on the logarithm of how far a parameter may go from its start: no search ends in infinities."""


BlockLoss = Callable[..., tuple[Array, LocalGP]]
"""The loss of some rows, added up by their weights, and its gradient: a compiled function of the GP, their
neighbourhoods, facts about them and their weights."""


def train(
    rows: Rows, errors: np.ndarray, chosen: np.ndarray, *, steps: int, weight: np.ndarray | None = None
) -> LocalGP:
    """The parameters that predict the `errors` `(n,)` at the rows number `chosen` best from other rows, by
    about `steps` evaluations of the loss, in which each counts as often as its `weight` `(n,)` says."""
    sizes = _typical_variance(errors[chosen]), float(np.median(rows.deep_variance))
    facts = errors, rows.deep_variance
    return search(rows, sizes, error_loss, facts, chosen, steps=steps, weight=weight)


def search(
    rows: Rows,
    sizes: tuple[float, float],
    block_loss: BlockLoss,
    facts: tuple[np.ndarray, ...],
    chosen: np.ndarray,
    *,
    steps: int,
    weight: np.ndarray | None = None,
) -> LocalGP:
    """The parameters of least loss at the rows number `chosen`, of which the loss is told the `facts`, `(n,
    ...)` each. `sizes` are typical variances of the errors and of the deep GP, where the search starts."""
    dtype = rows.inputs.dtype
    counted = np.ones(len(chosen)) if weight is None else weight[chosen]
    with precision("float64"), single_threaded_lapack():
        point, unravel = flattened(starting_gp(rows.inputs.shape[1], *sizes, "float64"))
        stride, _ = flattened(_strides(unravel(point)))
        lowest, highest = point - _REACH, point + _REACH
        gp = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), unravel(point))
        for done in range(0, steps, _ROUND):
            conditioned = ConditionedGP(gp, rows)
            loss = leave_one_out_loss(conditioned, block_loss, facts, chosen, counted, unravel)
            bounds = np.maximum(lowest, point - stride), np.minimum(highest, point + stride)
            options = {"maxfun": min(_ROUND, steps - done), "ftol": _TOLERANCE}
            found = minimize(
                loss, point, jac=True, method="L-BFGS-B", bounds=np.stack(bounds, axis=1), options=options
            )
            if not np.isfinite(found.fun):
                break
            point = found.x
            gp = jax.tree.map(lambda leaf: np.asarray(leaf, dtype), unravel(point))
        return gp


def _strides(gp: LocalGP) -> LocalGP:
    """How far each parameter may go while the neighbours stay the same."""
    free = jax.tree.map(lambda leaf: np.full(np.shape(leaf), np.inf), gp)
    return eqx.tree_at(lambda gp: gp.log_lengthscale, free, np.full(np.shape(gp.log_lengthscale), _STRIDE))


def _typical_variance(errors: np.ndarray) -> float:
    """The variance of a Gaussian with the quartiles of the errors, which outliers do not move."""
    low, high = np.quantile(errors, [0.25, 0.75])
    return float((high - low) / 1.349) ** 2


def leave_one_out_loss(
    conditioned: ConditionedGP,
    block_loss: BlockLoss,
    facts: tuple[np.ndarray, ...],
    chosen: np.ndarray,
    counted: np.ndarray,
    unravel: Callable,
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """The mean loss over the `chosen` rows, each `counted` so often, and its gradient, as a function of the
    parameters in one vector; every row has the neighbours that the present parameters say are nearest."""
    rows = conditioned.rows
    found = conditioned.nearest_others(chosen, _NEIGHBOURS)
    share = counted / np.sum(counted)
    blocks = []
    for start in range(0, len(chosen), _BLOCK):
        places = np.arange(start, start + _BLOCK)
        inside = places < len(chosen)
        places = np.minimum(places, len(chosen) - 1)
        weight = inside * share[places]
        batch = chosen[places]
        hoods = jax.device_put(rows.neighbourhoods(rows.inputs[batch], found[places]))
        others = *(fact[batch] for fact in facts), weight
        blocks.append((hoods, *(on_device(part, rows.inputs.dtype) for part in others)))

    def loss(point: np.ndarray) -> tuple[float, np.ndarray]:
        gp = jax.tree.map(lambda leaf: on_device(leaf, rows.inputs.dtype), unravel(point))
        parts = [block_loss(gp, *block) for block in blocks]  # all are sent off before one is waited for
        gradients = [flattened(gradient)[0] for _, gradient in parts]
        value = math.fsum(float(value) for value, _ in parts)
        return value, np.asarray(np.sum(gradients, axis=0, dtype=np.float64))

    return loss


@functools.partial(jax.jit, compiler_options=COMPILER_OPTIONS)
def error_loss(gp: LocalGP, hoods: Neighbourhoods, errors, deep_variance, weight):
    """Of errors of the deep GP, where it has this variance."""

    def loss(gp):
        mean, variance = gp.conditional(hoods)
        noisy = variance + gp.noise(deep_variance)
        return -jnp.sum(weight * gp.log_density(errors - mean, noisy))

    return jax.value_and_grad(loss)(gp)
