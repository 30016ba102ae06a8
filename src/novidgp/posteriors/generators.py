"""Neural posteriors: noise in, inducing outputs of all layers out, jointly.

`Implicit` is the paper's generator: a network pushes low-dimensional noise into the (much larger) space of
inducing outputs, bounded by a squashing last layer. Its law lives on a manifold and has no density.

`Smooth` adds full-dimensional Gaussian noise, `V = mu + C (xi + g(eps))`, so that q has a density and score.
Given eps it is a Gaussian with one covariance factor per layer and output (DSVI's family); the network makes
it a continuous mixture of those, correlated across layers and free to be skewed or multi-modal.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.model.dgp import DGP, Inducing
from novidgp.numerics.linalg import solve_unit_lower
from novidgp.numerics.nets import MLP, mlp
from novidgp.numerics.random import normal
from novidgp.posteriors.base import Posterior, gaussian_start, propagate_samples

Flat = Float[Array, "k dim"]
Shapes = tuple[tuple[int, int], ...]


def flatten(v: Inducing) -> Flat:
    """All layers' inducing outputs as one row per draw."""
    return jnp.concatenate([w.reshape(len(w), -1) for w in v], axis=1)


def unflatten(flat: Flat, shapes: Shapes) -> Inducing:
    """The inverse of `flatten`."""
    sizes = [math.prod(shape) for shape in shapes]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(
        flat[:, start : start + size].reshape(-1, *shape)
        for start, size, shape in zip(starts, sizes, shapes, strict=True)
    )


class Implicit(Posterior):
    """The paper's generator: `V = bound * tanh(g(eps) / bound)`, the compactness constraint of Theorem 1."""

    network: MLP
    shapes: Shapes = eqx.field(static=True)
    bound: float = eqx.field(static=True)

    def white_draw(self, count: int, *, key: PRNGKeyArray) -> tuple[Flat, None]:
        """Draws as flat rows; no part of them is Gaussian, so there is nothing to denoise."""
        weight = self.network.weights[0]
        raw = self.network(normal(key, (count, weight.shape[0]), weight.dtype))
        return self.bound * jnp.tanh(raw / self.bound), None

    def colour(self, white: Flat) -> Inducing:
        """The draws themselves: this generator has no other coordinates."""
        return unflatten(white, self.shapes)

    def whiten(self, v: Inducing) -> Flat:
        """The inverse of `colour`."""
        return flatten(v)

    def score(self, white_score: Flat) -> Inducing:
        """A score over flat rows, by layer."""
        return unflatten(white_score, self.shapes)

    def sample(self, count, *, key):
        """Joint draws of all layers."""
        return self.colour(self.white_draw(count, key=key)[0])

    def propagate(self, model, x, num_paths, *, key):
        """Sample, then condition."""
        return propagate_samples(self, model, x, num_paths, key=key)


class Smooth(Posterior):
    """`V = mu + C w`, `w = xi + g(eps)`: `C = D (I + T)` is triangular per layer and output.

    In the coordinates `w` every scale is one, so that the critic needs no normalisation; and
    `H(V) = H(w) + log |C|` separates what is known from what has to be learned.
    """

    mean: tuple[Float[Array, "m p"], ...]
    log_diagonal: tuple[Float[Array, "p m"], ...]
    lower: tuple[Float[Array, "p m m"], ...] | None
    network: MLP | None

    @property
    def shapes(self) -> Shapes:
        """`(m, p)` of every layer."""
        return tuple((len(mean), mean.shape[1]) for mean in self.mean)

    def displacement(self, count: int, *, key: PRNGKeyArray) -> Flat:
        """`g(eps)`: the non-Gaussian part of each draw, in units of the Gaussian part; 0 without network."""
        if self.network is None:
            return jnp.zeros((count, sum(math.prod(shape) for shape in self.shapes)), self.mean[0].dtype)
        weight = self.network.weights[0]
        return self.network(normal(key, (count, weight.shape[0]), weight.dtype))

    def white_draw(self, count: int, *, key: PRNGKeyArray) -> tuple[Flat, Flat]:
        """`w = xi + g(eps)`, and `g(eps)` alone: the target of denoising score matching."""
        network_key, noise_key = jax.random.split(key)
        shift = self.displacement(count, key=network_key)
        return shift + normal(noise_key, shift.shape, shift.dtype), shift

    def colour(self, white: Flat) -> Inducing:
        """`V = mu + C w`."""
        draws = []
        for index, (mean, w) in enumerate(zip(self.mean, unflatten(white, self.shapes), strict=True)):
            if self.lower is not None:
                w = w + jnp.einsum("pij,kjp->kip", jnp.tril(self.lower[index], -1), w)
            draws.append(mean + jnp.exp(self.log_diagonal[index]).T * w)
        return tuple(draws)

    def scales(self) -> tuple[Float[Array, "p m m"], ...]:
        """The factors `C = D (I + T)`."""
        factors = []
        for index, log_diagonal in enumerate(self.log_diagonal):
            unit = jnp.eye(log_diagonal.shape[-1], dtype=log_diagonal.dtype)
            if self.lower is not None:
                unit = unit + jnp.tril(self.lower[index], -1)
            factors.append(jnp.exp(log_diagonal)[..., None] * unit)
        return tuple(factors)

    def with_last(self, mean: Float[Array, "m p"], scale: Float[Array, "p m m"]) -> "Smooth":
        """The same, but for the Gaussian part of the last layer."""
        diagonal = jnp.diagonal(scale, axis1=-2, axis2=-1)
        parts: list = [mean, jnp.log(diagonal)]
        if self.lower is not None:
            parts.append(jnp.tril(scale / diagonal[..., None], -1))
        return eqx.tree_at(
            lambda g: [part[-1] for part in (g.mean, g.log_diagonal, g.lower) if part], self, parts
        )

    def whiten(self, v: Inducing) -> Flat:
        """`w = C^-1 (V - mu)`."""
        whitened = []
        for index, (mean, draw) in enumerate(zip(self.mean, v, strict=True)):
            w = (draw - mean) / jnp.exp(self.log_diagonal[index]).T
            whitened.append(w if self.lower is None else self._solve(index, w, transpose=False))
        return flatten(tuple(whitened))

    def score(self, white_score: Flat) -> Inducing:
        """`grad_V log q = C^-T grad_w log q`."""
        scores = []
        for index, r in enumerate(unflatten(white_score, self.shapes)):
            if self.lower is not None:
                r = self._solve(index, r, transpose=True)
            scores.append(r / jnp.exp(self.log_diagonal[index]).T)
        return tuple(scores)

    def _solve(self, index: int, right: Float[Array, "k m p"], *, transpose: bool) -> Float[Array, "k m p"]:
        """`(I + T)^-1` or its transpose, applied to one layer."""
        assert self.lower is not None
        columns = jnp.transpose(right, (2, 1, 0))
        solved = solve_unit_lower(jnp.tril(self.lower[index], -1), columns, transpose=transpose)
        return jnp.transpose(solved, (2, 1, 0))

    def sample(self, count, *, key):
        """Joint draws of all layers."""
        return self.colour(self.white_draw(count, key=key)[0])

    def propagate(self, model, x, num_paths, *, key):
        """Given eps the posterior is Gaussian, layer by layer, and integrates out row by row."""
        noise_key, path_key = jax.random.split(key)
        centres = self.colour(self.displacement(num_paths, key=noise_key))
        return model.propagate(x, centres, scales=model.whiten_scales(self.scales()), key=path_key)


def make_generator(
    kind: Literal["smooth", "implicit"],
    model: DGP,
    network: Mapping[str, Any] | None,
    *,
    noise_dim: int,
    covariance: Literal["full", "diagonal"] = "full",
    compact: float,
    hidden_scale: float,
    final_scale: float,
    key: PRNGKeyArray,
) -> Implicit | Smooth:
    """A generator at its start; `network` has the settings of `nets.mlp`, None leaves a Gaussian."""
    shapes = model.inducing_shapes()
    size, dtype = sum(math.prod(shape) for shape in shapes), model.layers[0].inducing.dtype

    def net(scale: float) -> MLP:
        return mlp(noise_dim, size, **network or {}, output_scale=scale, dtype=dtype, key=key)

    if kind == "implicit":
        return Implicit(net(1.0), shapes, compact)
    mean, log_diagonal, lower = gaussian_start(model, hidden_scale, final_scale)
    return Smooth(
        mean,
        log_diagonal,
        lower if covariance == "full" else None,
        None if network is None else net(0.3),
    )
