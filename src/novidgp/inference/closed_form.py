"""The last layer's posterior in closed form.

Given the last layer's inputs `h`, a Gaussian likelihood makes the bound quadratic in that layer's whitened
inducing outputs, and the best Gaussian for them, whatever the hidden layers do, is

    precision = I + sum_n E[a_n a_n^T] / sigma^2,   mean = precision^-1 sum_n E[a_n (y_n - o_n)] / sigma^2,

with `a_n` the rows of `A(h)` and `o_n` what displaced draws add: matrix products of numbers that the step has
anyway. With these parameters solved for in every step, the hyper-parameters follow the collapsed bound: what
takes Adam thousands of steps is done in hundreds. On minibatches the sums are running averages, which makes
each step a natural-gradient step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from novidgp.model.dgp import DGP, Batch, Count, row_weight
from novidgp.model.likelihoods import GaussianNoise
from novidgp.numerics.linalg import add_jitter, inverse_cholesky


class Statistics(NamedTuple):
    """Running averages of the two sums, and the number of batches in them."""

    precision: Float[Array, "p m m"]
    linear: Float[Array, "p m"]
    batches: Int[Array, ""]


def has_closed_form(model: DGP) -> bool:
    """Whether the last layer of `model` can be solved for: Gaussian noise and whitened coordinates."""
    return model.whitened and isinstance(model.likelihood, GaussianNoise)


def no_statistics(model: DGP) -> Statistics:
    """The statistics before any data: those of the prior."""
    m, p = model.inducing_shapes()[-1]
    dtype = model.dtype
    return Statistics(jnp.zeros((p, m, m), dtype), jnp.zeros((p, m), dtype), jnp.zeros((), jnp.int32))


def cholesky_of_inverse(precision: Float[Array, "p m m"]) -> Float[Array, "p m m"]:
    """The Cholesky factor of `(I + precision)^-1`.

    Flip, take the inverse Cholesky factor, flip back, transpose: the Cholesky factor of the inverse, from one
    factorisation. The matrix is scaled to a unit diagonal first, because data with little noise make its
    entries as large as millions, and float32 then needs a little jitter.
    """
    eye = jnp.eye(precision.shape[-1], dtype=precision.dtype)
    flipped = (precision + eye)[:, ::-1, ::-1]
    scale = 1.0 / jnp.sqrt(jnp.diagonal(flipped, axis1=-2, axis2=-1))
    tiny = float(jnp.finfo(precision.dtype).eps)
    root = inverse_cholesky(add_jitter(scale[:, :, None] * flipped * scale[:, None, :], tiny)[0])
    return jnp.swapaxes(root * scale[:, None, :], -1, -2)[:, ::-1, ::-1]


def closed_form_gaussian(
    model: DGP,
    statistics: Statistics,
    basis: Float[Array, "q *k n m"],
    shift: Float[Array, "k m p"],
    batch: Batch,
    num_data: Count,
    rate: float,
) -> tuple[Statistics, Float[Array, "m p"], Float[Array, "p m m"]]:
    """The statistics with this batch in them, and the mean and scale `C` of the best Gaussian.

    A minibatch enters the averages with the weight `rate`, and the first batches with equal weights until
    then; a full batch replaces them. `basis` is the last layer's. `shift` displaces the draws by `C shift_k`,
    which the mean allows for. No gradient passes.
    """
    partial_weight = jnp.maximum(rate, 1.0 / (statistics.batches + 1.0))
    weight_of_batch = jnp.where(batch.x.shape[0] < num_data, partial_weight, 1.0).astype(model.dtype)
    model, basis, shift = jax.lax.stop_gradient((model, basis, shift))
    layer, likelihood = model.layers[-1], model.likelihood
    assert isinstance(likelihood, GaussianNoise)
    basis = basis if basis.ndim == 4 else basis[:, None]
    paths = basis.shape[1]
    basis = jnp.sqrt(layer.kernel.variance())[:, None, None, None] * basis
    observed = jnp.isfinite(batch.y).astype(basis.dtype)
    counted = observed if batch.weight is None else observed * batch.weight
    weight = row_weight(num_data, len(batch.y)) / paths * counted / likelihood.variance

    def average(old, new):
        return old + weight_of_batch * (new - old)

    def per_output(function, *arrays):
        """`function` over outputs; a kernel that they share is not copied."""
        shared = basis.shape[0] == 1
        return jax.vmap(function, (None if shared else 0, *(0 for _ in arrays)))(
            basis[0] if shared else basis, *arrays
        )

    def gram(a, w):
        return jnp.einsum("knl,knm->lm", a * w[:, None], a)

    precision = average(statistics.precision, per_output(gram, weight.T))
    scale = cholesky_of_inverse(precision)
    displaced = jnp.einsum("pij,kjp->kip", scale, shift)
    offset = displaced if paths > 1 else jnp.mean(displaced, axis=0, keepdims=True)
    target = jnp.where(observed > 0, batch.y, 0.0)

    def project(a, w, y, v):
        residual = w * (y - jnp.einsum("knm,km->kn", a, v))
        return jnp.einsum("knm,kn->m", a, residual)

    linear = average(statistics.linear, per_output(project, weight.T, target.T, jnp.moveaxis(offset, -1, 0)))
    right = linear - jnp.mean(displaced, axis=0).T
    mean = jnp.einsum("pij,pkj,pk->ip", scale, scale, right)
    return Statistics(precision, linear, statistics.batches + 1), mean, scale
