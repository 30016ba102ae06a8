"""The local layer of a classifier: what it does to the deep GP's class probabilities.

The deep GP gives a row the probabilities `p`. What they leave of the label, `1[y = c] - p_c`, are the
residuals of the classes. They add up to zero over the classes, and local GPs with one covariance for all of
them predict them from the nearest rows by one factorisation: their means `g` add up to zero too. The new
probabilities are

    q = max(p + g, min(p, 0.003)),      over their sum,

so neighbours make no class impossible, and where they have nothing to say q is p. The noise variance of a row
follows `1 - sum_c p_c^2`, the variance of its label under the deep GP. The loss in training is `-log q_y`.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from novidgp.local.conditional import Neighbourhoods
from novidgp.local.gp import LocalGP
from novidgp.local.rows import ConditionedGP
from novidgp.numerics.compilation import COMPILER_OPTIONS, WIDE_VECTORS
from novidgp.numerics.scaling import Standardiser

IMPOSSIBLE = 1e-12
"""No probability is less: its logarithm must be finite."""
_LEAST = 0.003
"""Probability that neighbours leave to a class, unless the deep GP gives it less."""


@dataclass(frozen=True, eq=False)
class ClassLayer:
    """The local layer of all classes."""

    features: Standardiser
    """Scaling of the columns `[x, h]`."""
    neighbours: int
    conditioned: ConditionedGP

    @property
    def num_rows(self) -> int:
        """How many training rows it holds."""
        return len(self.conditioned.rows)

    def correct(self, probabilities: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Class probabilities `(n, c)` with the local layer, from those of the deep GP and the layer's
        unscaled inputs `columns` `(n, d)`."""
        dtype = self.conditioned.rows.inputs.dtype
        inputs = self.features.inputs(columns).astype(dtype)
        found = self.conditioned.nearest(inputs, self.neighbours)
        return corrected(self.conditioned, inputs, probabilities.astype(dtype), found)


def corrected(
    conditioned: ConditionedGP, inputs: np.ndarray, probabilities: np.ndarray, found: np.ndarray
) -> np.ndarray:
    """The deep GP's `probabilities` `(m, c)` at scaled `inputs`, corrected by the rows `found` `(m, k)`."""
    return conditioned.over_rows(_corrected_block, inputs, probabilities, found)


def label_variance(probabilities: np.ndarray) -> np.ndarray:
    """`(n,)` of class probabilities `(n, c)`: how unsure the deep GP is of the label."""
    return np.maximum(1.0 - np.sum(probabilities**2, axis=1), 1e-3)


def _corrected(gp: LocalGP, hoods: Neighbourhoods, probabilities: Float[Array, "n c"]):
    shifted = probabilities + gp.conditional(hoods)[0]
    shifted = jnp.maximum(shifted, jnp.clip(probabilities, IMPOSSIBLE, _LEAST))
    return shifted / jnp.sum(shifted, axis=1, keepdims=True)


_corrected_block = jax.jit(_corrected, compiler_options=COMPILER_OPTIONS | WIDE_VECTORS)


@functools.partial(jax.jit, compiler_options=COMPILER_OPTIONS)
def label_loss(gp: LocalGP, hoods: Neighbourhoods, indicators, probabilities, weight):
    """Of labels, as `indicators` `(n, c)`, where the deep GP gives these probabilities."""

    def loss(gp):
        told = jnp.sum(indicators * _corrected(gp, hoods, probabilities), axis=1)
        return -jnp.sum(weight * jnp.log(told))

    return jax.value_and_grad(loss)(gp)
