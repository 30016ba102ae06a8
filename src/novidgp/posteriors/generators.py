"""Neural posteriors: noise in, inducing outputs of all layers out, jointly.

`ImplicitGenerator` is the paper's: a network maps low-dimensional noise into the much larger space of
inducing outputs, bounded by a squashing last layer. Its law lives on a manifold and has no density.

`SmoothGenerator` adds full-dimensional Gaussian noise, `V = mu + C (xi + g(eps))`, so that q has a density
and a score. Given eps it is a Gaussian with one covariance factor per layer and output (DSVI's family). The
network makes it a continuous mixture of those, correlated across layers and free to be skewed or multi-modal.

Both draw in *base coordinates* w, as flat rows, and map these to inducing outputs.
"""

import abc
import math
from typing import Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.model.dgp import Inducing
from novidgp.numerics.linalg import solve_unit_lower
from novidgp.numerics.nets import MLP, NetworkShape, mlp
from novidgp.numerics.random import normal
from novidgp.posteriors.base import Paths, Posterior
from novidgp.posteriors.gaussian import gaussian_start

Flat = Float[Array, "k dim"]
Shapes = tuple[tuple[int, int], ...]
Covariance = Literal["full", "diagonal"]


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


class AbstractGenerator(Posterior):
    """A posterior that is a map of base coordinates w, in which a critic can learn its score."""

    @property
    @abc.abstractmethod
    def shapes(self) -> Shapes:
        """`(m, p)` of every layer."""

    @abc.abstractmethod
    def sample_base(self, count: int, *, key: PRNGKeyArray) -> tuple[Flat, Flat | None]:
        """Draws of w, and the part of each that is not Gaussian noise; None where nothing is Gaussian
        noise."""

    @abc.abstractmethod
    def to_outputs(self, base: Flat) -> Inducing:
        """The inducing outputs of base coordinates."""

    @abc.abstractmethod
    def to_base(self, v: Inducing) -> Flat:
        """The inverse of `to_outputs`."""

    @abc.abstractmethod
    def pull_score(self, base_score: Flat) -> Inducing:
        """`grad_V log q` from `grad_w log q`."""


@final
class ImplicitGenerator(AbstractGenerator):
    """The paper's generator: `V = b tanh(g(eps) / b)` with the limit b, the compactness constraint of Theorem
    1."""

    network: MLP
    layer_shapes: Shapes = eqx.field(static=True)
    output_limit: float = eqx.field(static=True)

    @property
    def shapes(self) -> Shapes:
        """`(m, p)` of every layer."""
        return self.layer_shapes

    def sample_base(self, count, *, key):
        weight = self.network.weights[0]
        raw = self.network(normal(key, (count, weight.shape[0]), weight.dtype))
        return self.output_limit * jnp.tanh(raw / self.output_limit), None

    def to_outputs(self, base):
        return unflatten(base, self.shapes)

    def to_base(self, v):
        return flatten(v)

    def pull_score(self, base_score):
        return unflatten(base_score, self.shapes)

    def sample(self, count, *, key):
        return self.to_outputs(self.sample_base(count, key=key)[0])


@final
class SmoothGenerator(AbstractGenerator):
    """`V = mu + C w`, `w = xi + g(eps)`: `C = D (I + T)` is triangular per layer and output.

    In the coordinates w every scale is one, so the critic needs no normalisation, and `H(V) = H(w) + log |C|`
    separates what is known from what has to be learned.
    """

    mean: tuple[Float[Array, "_m _p"], ...]
    log_diagonal: tuple[Float[Array, "_p _m"], ...]
    lower: tuple[Float[Array, "_p _m _m"], ...] | None
    network: MLP | None

    @property
    def shapes(self) -> Shapes:
        """`(m, p)` of every layer."""
        return tuple((len(mean), mean.shape[1]) for mean in self.mean)

    def displacement(self, count: int, *, key: PRNGKeyArray) -> Flat:
        """`g(eps)`: the non-Gaussian part of each draw, in units of the Gaussian part; 0 without a
        network."""
        if self.network is None:
            return jnp.zeros((count, sum(math.prod(shape) for shape in self.shapes)), self.mean[0].dtype)
        weight = self.network.weights[0]
        return self.network(normal(key, (count, weight.shape[0]), weight.dtype))

    def sample_base(self, count, *, key):
        """`w = xi + g(eps)`, and `g(eps)` alone: the target of denoising score matching."""
        network_key, noise_key = jax.random.split(key)
        shift = self.displacement(count, key=network_key)
        return shift + normal(noise_key, shift.shape, shift.dtype), shift

    def to_outputs(self, base):
        """`V = mu + C w`."""
        draws = []
        for index, (mean, w) in enumerate(zip(self.mean, unflatten(base, self.shapes), strict=True)):
            if self.lower is not None:
                w = w + jnp.einsum("pij,kjp->kip", jnp.tril(self.lower[index], -1), w)
            draws.append(mean + jnp.exp(self.log_diagonal[index]).T * w)
        return tuple(draws)

    def scales(self) -> tuple[Float[Array, "_p _m _m"], ...]:
        """The factors `C = D (I + T)`."""
        factors = []
        for index, log_diagonal in enumerate(self.log_diagonal):
            unit = jnp.eye(log_diagonal.shape[-1], dtype=log_diagonal.dtype)
            if self.lower is not None:
                unit = unit + jnp.tril(self.lower[index], -1)
            factors.append(jnp.exp(log_diagonal)[..., None] * unit)
        return tuple(factors)

    def with_last(self, mean: Float[Array, "m p"], scale: Float[Array, "p m m"]) -> "SmoothGenerator":
        """A copy with the last layer's mean and scale replaced."""
        diagonal = jnp.diagonal(scale, axis1=-2, axis2=-1)
        parts: list = [mean, jnp.log(diagonal)]
        if self.lower is not None:
            parts.append(jnp.tril(scale / diagonal[..., None], -1))
        return eqx.tree_at(
            lambda g: [part[-1] for part in (g.mean, g.log_diagonal, g.lower) if part], self, parts
        )

    def to_base(self, v):
        """`w = C^-1 (V - mu)`."""
        base = []
        for index, (mean, draw) in enumerate(zip(self.mean, v, strict=True)):
            w = (draw - mean) / jnp.exp(self.log_diagonal[index]).T
            base.append(w if self.lower is None else self._solve(index, w, transpose=False))
        return flatten(tuple(base))

    def pull_score(self, base_score):
        """`grad_V log q = C^-T grad_w log q`."""
        scores = []
        for index, r in enumerate(unflatten(base_score, self.shapes)):
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
        return self.to_outputs(self.sample_base(count, key=key)[0])

    def paths(self, model, count, *, key):
        """Given eps the posterior is Gaussian in every layer and integrates out row by row."""
        noise_key, path_key = jax.random.split(key)
        centres = self.to_outputs(self.displacement(count, key=noise_key))
        return Paths(centres, model.whiten_scales(self.scales()), path_key)


def smooth_generator(
    start: tuple[Float[Array, "_m _p"], ...],
    network: NetworkShape | None,
    *,
    noise_dim: int,
    covariance: Covariance = "full",
    initial_hidden_std: float,
    initial_final_std: float,
    key: PRNGKeyArray,
) -> SmoothGenerator:
    """A smooth generator around the inducing outputs `start`; without a network it is a Gaussian."""
    mean, log_diagonal, lower = gaussian_start(start, initial_hidden_std, initial_final_std)
    net = None
    if network is not None:
        size, dtype = sum(v.size for v in start), start[0].dtype
        net = mlp(noise_dim, size, **network._asdict(), output_scale=0.3, dtype=dtype, key=key)
    return SmoothGenerator(mean, log_diagonal, lower if covariance == "full" else None, net)


def implicit_generator(
    shapes: Shapes,
    network: NetworkShape,
    *,
    noise_dim: int,
    output_limit: float,
    dtype: DTypeLike,
    key: PRNGKeyArray,
) -> ImplicitGenerator:
    """An implicit generator with random weights."""
    size = sum(math.prod(shape) for shape in shapes)
    net = mlp(noise_dim, size, **network._asdict(), dtype=dtype, key=key)
    return ImplicitGenerator(net, shapes, output_limit)
