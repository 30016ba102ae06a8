"""Training of the local GP: minibatches of the leave-one-out loss, the deep GP held still.

    loss = -mean_i log t(e_i - mean_i | variance_i + noise_i),

where mean and variance are those of the function at row i given the residuals of its nearest other rows, and
`e_i` is the error that the deep GP would have made had it not seen row i. The neighbours are found anew as
lengthscales move, at steps that double.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from novidgp.inference.optim import adam, descend
from novidgp.local.conditional import Neighbourhoods
from novidgp.local.gp import LocalGP, starting_gp
from novidgp.local.rows import ConditionedGP, Rows
from novidgp.model.dgp import Count
from novidgp.numerics.compilation import COMPILER_OPTIONS, precision
from novidgp.numerics.linalg import single_threaded_lapack
from novidgp.numerics.trees import on_device

_NEIGHBOURS = 32
_BATCH = 512
_LEARNING_RATE = 0.05
_FIRST_REFRESH = 16


def train(
    rows: Rows, errors: np.ndarray, chosen: np.ndarray, *, steps: int, rng: np.random.Generator
) -> LocalGP:
    """The parameters that predict the `errors` `(n,)` at the rows number `chosen` best from other rows."""
    dtype = rows.inputs.dtype.name
    with precision("float64"), single_threaded_lapack():
        sizes = _typical_variance(errors[chosen]), float(np.median(rows.deep_variance))
        gp = starting_gp(rows.inputs.shape[1], *sizes, dtype)
        state = adam(_LEARNING_RATE, steps).init(gp)
        found = np.zeros((0, 0), int)
        refresh = 0
        for step in range(steps):
            if step == refresh:
                found = ConditionedGP(gp, rows).nearest_others(chosen, _NEIGHBOURS)
                refresh = max(_FIRST_REFRESH, 2 * step)
            places = rng.integers(len(chosen), size=_BATCH)
            batch = chosen[places]
            hoods = rows.neighbourhoods(rows.inputs[batch], found[places])
            gp, state = _step(
                gp, state, hoods, on_device(errors[batch]), on_device(rows.deep_variance[batch]), steps
            )
        return jax.tree.map(np.asarray, gp)


def _typical_variance(errors: np.ndarray) -> float:
    """The variance of a Gaussian with the quartiles of the errors, which outliers do not move."""
    low, high = np.quantile(errors, [0.25, 0.75])
    return float((high - low) / 1.349) ** 2


@functools.partial(jax.jit, compiler_options=COMPILER_OPTIONS)
def _step(gp: LocalGP, state, hoods: Neighbourhoods, errors, deep_variance, steps: Count):
    gradient = jax.grad(_loss)(gp, hoods, errors, deep_variance)
    return descend(adam(_LEARNING_RATE, steps), gradient, state, gp)


def _loss(gp: LocalGP, hoods: Neighbourhoods, errors, deep_variance):
    mean, variance = gp.conditional(hoods)
    return -jnp.mean(gp.log_density(errors - mean, variance + gp.noise(deep_variance)))
