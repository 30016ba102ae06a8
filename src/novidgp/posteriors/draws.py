"""Posteriors that hold inducing outputs themselves: one point, or the draws of parallel chains."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from novidgp.posteriors.base import Posterior


class Delta(Posterior):
    """All mass on one point: the result of maximum likelihood. Paths differ by the layers' noise alone."""

    point: tuple[Float[Array, "_m _p"], ...]

    def sample(self, count, *, key):
        """The point, `count` times."""
        return tuple(jnp.broadcast_to(v, (count, *v.shape)) for v in self.point)


class Empirical(Posterior):
    """Stored draws of parallel chains, `(chains, draws, m, p)` per layer."""

    draws: tuple[Float[Array, "c s _m _p"], ...]

    def sample(self, count, *, key):
        """Draws in random order; each is used once before any is used twice."""
        chains, length = self.draws[0].shape[:2]
        order = jnp.resize(jax.random.permutation(key, chains * length), (count,))
        return tuple(v.reshape(-1, *v.shape[2:])[order] for v in self.draws)
