"""A fitted model: what inference returns, what prediction needs and what a file keeps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from novidgp.model.dgp import DGP
from novidgp.numerics.trees import stacked
from novidgp.posteriors.base import Posterior


class Fitted(NamedTuple):
    """A model and a posterior over its inducing outputs.

    With snapshots or several starts, predictions are a mixture over several of these with equal weights.
    """

    model: DGP
    posterior: Posterior
    ensemble: "Fitted | None" = None
    """The other members of the mixture, on a leading axis."""

    def members(self) -> "Fitted":
        """All members of the mixture on a leading axis; this model is the last."""
        last = stacked([self._replace(ensemble=None)])
        if self.ensemble is None:
            return last
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), self.ensemble, last)
