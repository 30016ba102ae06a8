"""A normalising flow over the inducing outputs of all layers: neural, and with a density.

Noise goes through affine coupling layers (Dinh et al. 2017), which stretch and shift one half of the
coordinates by networks of the other half, and then through DSVI's Gaussian map,

    V = mu + C w,   w = T_B(... T_1(xi)),   xi ~ N(0, I).

Every step is inverted in closed form and has a triangular Jacobian, so that `log q(V)` is exact.
"""

from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.model.dgp import Inducing
from novidgp.numerics.nets import MLP, NetworkShape, mlp
from novidgp.numerics.random import normal
from novidgp.posteriors.base import Posterior
from novidgp.posteriors.gaussian import gaussian_start
from novidgp.posteriors.generators import Flat, SmoothGenerator

_LARGEST_STRETCH = 2.0
"""The logarithm of the most that one coupling stretches or shrinks a coordinate."""


@final
class FlowPosterior(Posterior):
    """Coupling layers in front of a Gaussian map. Without couplings it is DSVI's Gaussian."""

    mean: tuple[Float[Array, "_m _p"], ...]
    log_diagonal: tuple[Float[Array, "_p _m"], ...]
    lower: tuple[Float[Array, "_p _m _m"], ...]
    couplings: tuple[MLP, ...]

    def map(self) -> SmoothGenerator:
        """The Gaussian map `V = mu + C w`."""
        return SmoothGenerator(self.mean, self.log_diagonal, self.lower, None)

    def sample_with_density(self, count: int, *, key: PRNGKeyArray) -> tuple[Inducing, Float[Array, " k"]]:
        """Draws, and the log density of each less that of its noise `xi`.

        The noise's own log density has a known mean, minus the entropy of as many standard normals: leaving
        it out of a Monte-Carlo estimate leaves its variance out too.
        """
        size = sum(mean.size for mean in self.mean)
        w = normal(key, (count, size), self.mean[0].dtype)
        stretched = jnp.zeros(count, w.dtype)
        for index, network in enumerate(self.couplings):
            log_scale, shift, moving = self._coupling(index, network, w)
            w = jnp.where(moving, w * jnp.exp(log_scale) + shift, w)
            stretched = stretched + jnp.sum(log_scale, axis=-1)
        return self.map().to_outputs(w), -stretched - self._log_det_map()

    def log_density(self, v: Inducing) -> Float[Array, " k"]:
        """`log q(V)` of any inducing outputs."""
        w = self.map().to_base(v)
        stretched = jnp.zeros(len(w), w.dtype)
        for index, network in reversed(list(enumerate(self.couplings))):
            log_scale, shift, moving = self._coupling(index, network, w)
            w = jnp.where(moving, (w - shift) * jnp.exp(-log_scale), w)
            stretched = stretched + jnp.sum(log_scale, axis=-1)
        noise = -0.5 * jnp.sum(w**2 + jnp.log(2.0 * jnp.pi), axis=-1)
        return noise - stretched - self._log_det_map()

    def _coupling(self, index: int, network: MLP, w: Flat) -> tuple[Flat, Flat, np.ndarray]:
        """Log scale (zero where a coordinate stays), shift, and which coordinates move: every other one."""
        size = w.shape[-1]
        moving = (np.arange(size) + index) % 2 == 1
        raw = network(jnp.where(moving, 0.0, w))
        log_scale = _LARGEST_STRETCH * jnp.tanh(raw[:, :size] / _LARGEST_STRETCH)
        return jnp.where(moving, log_scale, 0.0), raw[:, size:], moving

    def _log_det_map(self) -> Float[Array, ""]:
        """`log |C|`."""
        return sum((jnp.sum(d) for d in self.log_diagonal), jnp.zeros((), self.mean[0].dtype))

    def sample(self, count, *, key):
        return self.sample_with_density(count, key=key)[0]


def flow_posterior(
    start: tuple[Float[Array, "_m _p"], ...],
    couplings: int,
    network: NetworkShape,
    *,
    initial_hidden_std: float,
    initial_final_std: float,
    key: PRNGKeyArray,
) -> FlowPosterior:
    """A flow around the inducing outputs `start` that begins close to an isotropic Gaussian."""
    size, dtype = sum(v.size for v in start), start[0].dtype
    options = network._asdict() | {"output_scale": 0.01, "dtype": dtype}
    networks = tuple(mlp(size, 2 * size, **options, key=k) for k in jax.random.split(key, couplings))
    return FlowPosterior(*gaussian_start(start, initial_hidden_std, initial_final_std), networks)
