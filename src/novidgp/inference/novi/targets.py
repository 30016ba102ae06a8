"""The density that a generator is to sample."""

import abc
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.model.dgp import DGP, Batch, Bound, Count, Inducing
from novidgp.numerics.stein import Field
from novidgp.posteriors.generators import Shapes, unflatten


class AbstractTarget(eqx.Module):
    """A density over inducing outputs that is known up to a constant, given a model and a minibatch."""

    num_data: eqx.AbstractVar[Count]
    num_samples: eqx.AbstractVar[int]
    """Draws of V per step, the paper's K."""

    @abc.abstractmethod
    def shapes(self, model: Any) -> Shapes:
        """`(m, p)` of every layer."""

    @abc.abstractmethod
    def log_joint(
        self, v: Inducing, model: Any, batch: Batch | None, *, key: PRNGKeyArray
    ) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """`log p(y, V)` of every draw, and its data term."""

    def score(self, model: Any, batch: Batch | None, *, key: PRNGKeyArray) -> Field:
        """`grad_V log p(V | y)` as a field over flat rows."""
        shapes = self.shapes(model)

        def total(flat):
            return jnp.sum(self.log_joint(unflatten(flat, shapes), model, batch, key=key)[0])

        return jax.grad(total)


@final
class DGPTarget(AbstractTarget):
    """The posterior of a deep GP, estimated on a minibatch with `num_paths` paths per draw (the paper's
    S)."""

    num_data: Count
    num_samples: int = eqx.field(static=True)
    num_paths: int = eqx.field(static=True)
    bound: Bound = eqx.field(static=True)

    def shapes(self, model: DGP) -> Shapes:
        return model.inducing_shapes()

    def log_joint(self, v, model, batch, *, key):
        data = model.log_likelihood(
            v, batch, self.num_data, num_paths=self.num_paths, bound=self.bound, key=key
        )
        return data + model.log_prior(v), data
