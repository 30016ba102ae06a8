"""The last layer's posterior in closed form.

Given the last layer's inputs `h`, a Gaussian likelihood makes the bound quadratic in that layer's whitened
inducing outputs, and the best Gaussian for them, whatever the hidden layers do, is

    precision = I + sum_n E[a_n a_n^T] / sigma^2,   mean = precision^-1 sum_n E[a_n (y_n - o_n)] / sigma^2,

with `a_n` the rows of `A(h)` and `o_n` what displaced draws add: GEMMs with numbers the step has. Solving
for them in every step takes parameters out of the optimiser's hands, so that the hyper-parameters see the
collapsed bound: what takes Adam thousands of steps is done in hundreds. On minibatches the sums are running
averages, which makes each step a natural-gradient step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from novidgp.model.dgp import DGP, Batch, row_weight
from novidgp.model.layers import GPLayer
from novidgp.model.likelihoods import GaussianNoise
from novidgp.numerics.linalg import add_jitter, inverse_cholesky


class Sums(NamedTuple):
    """Running averages of the two sums."""

    precision: Float[Array, "p m m"]
    linear: Float[Array, "p m"]


def is_conjugate(model: DGP) -> bool:
    """Whether the last layer of `model` has a closed form: Gaussian noise, whitened coordinates."""
    return model.whitened and isinstance(model.likelihood, GaussianNoise)


def empty(model: DGP) -> Sums:
    """No data seen: the prior."""
    m, p = model.inducing_shapes()[-1]
    dtype = model.layers[-1].inducing.dtype
    return Sums(jnp.zeros((p, m, m), dtype), jnp.zeros((p, m), dtype))


def factor(precision: Float[Array, "p m m"]) -> Float[Array, "p m m"]:
    """The Cholesky factor of `(I + precision)^-1`.

    The inverse factor of a matrix with its rows and columns in reverse order is, turned round again, an upper
    triangle's transpose: no second factorisation. The matrix is scaled to a unit diagonal first, because data
    with little noise make its entries millions, and float32 then needs a little jitter.
    """
    eye = jnp.eye(precision.shape[-1], dtype=precision.dtype)
    flipped = (precision + eye)[:, ::-1, ::-1]
    scale = 1.0 / jnp.sqrt(jnp.diagonal(flipped, axis1=-2, axis2=-1))
    tiny = float(jnp.finfo(precision.dtype).eps)
    root = inverse_cholesky(add_jitter(scale[:, :, None] * flipped * scale[:, None, :], tiny)[0])
    return jnp.swapaxes(root * scale[:, None, :], -1, -2)[:, ::-1, ::-1]


def best_response(
    model: DGP,
    sums: Sums,
    h: Float[Array, "*k n d"],
    shift: Float[Array, "k m p"],
    batch: Batch,
    num_data: int,
    rate: float | Float[Array, ""],
) -> tuple[Sums, Float[Array, "m p"], Float[Array, "p m m"]]:
    """The sums with this batch in them, and the mean and scale `C` of the best Gaussian.

    `rate` is the batch's weight in the averages. `shift` displaces the draws by `C shift_k`: the mean allows
    for it. No gradient passes.
    """
    model, h, shift = jax.lax.stop_gradient((model, h, shift))
    layer, likelihood = model.layers[-1], model.likelihood
    assert isinstance(likelihood, GaussianNoise)
    paths = h.shape[0] if h.ndim == 3 else 1
    basis = _scaled_basis(layer, h)
    observed = jnp.isfinite(batch.y).astype(basis.dtype)
    weight = row_weight(num_data, len(batch.y)) / paths * observed / likelihood.variance

    def average(old, new):
        return old + rate * (new - old)

    def per_output(function, *arrays):
        """`function` over outputs; a kernel that they share is not copied."""
        shared = basis.shape[0] == 1
        return jax.vmap(function, (None if shared else 0, *(0 for _ in arrays)))(
            basis[0] if shared else basis, *arrays
        )

    def gram(a, w):
        return (a * jnp.tile(w, paths)[:, None]).T @ a

    precision = average(sums.precision, per_output(gram, weight.T))
    scale = factor(precision)
    displaced = jnp.einsum("pij,kjp->kip", scale, shift)
    offset = displaced if paths > 1 else jnp.mean(displaced, axis=0, keepdims=True)
    target = jnp.where(observed > 0, batch.y, 0.0)

    def project(a, w, y, v):
        rows = a.reshape(paths, -1, a.shape[-1])
        residual = w * (y - jnp.einsum("knm,km->kn", rows, v))
        return jnp.einsum("knm,kn->m", rows, residual)

    linear = average(sums.linear, per_output(project, weight.T, target.T, jnp.moveaxis(offset, -1, 0)))
    right = linear - jnp.mean(displaced, axis=0).T
    mean = jnp.einsum("pij,pkj,pk->ip", scale, scale, right)
    return Sums(precision, linear), mean, scale


def _scaled_basis(layer: GPLayer, h: Float[Array, "*k n d"]) -> Float[Array, "q kn m"]:
    """`A` of the layer for all paths at once, kernel's standard deviation included."""
    basis, _ = layer.basis(h.reshape(-1, h.shape[-1]))
    return jnp.sqrt(layer.kernel.variance())[:, None, None] * basis
