"""The Gaussian process of the local layer: its parameters, kernel, noise and predictive density.

    k(u, u') = v_1 exp(-d) + v_2 (1 + sqrt(3) d / c) exp(-sqrt(3) d / c),       d = |(u - u') / lengthscale|,

a sum of a Matern-1/2 and a Matern-3/2 kernel, so that training chooses the roughness. The noise variance of a
row is `s + w v`, where `v` is the deep GP's own predictive variance there: densities keep what the deep GP
knows about where it errs. It is never below a ten-thousandth of the kernel's variance, so that twins with
other targets surprise nobody, and single precision can factorise. Errors have a t distribution; so rows that
their own neighbours contradict have more noise as neighbours (`ConditionedGP.with_doubts`).
"""

import math
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from novidgp.local.conditional import Neighbourhoods, condition, squared_distances

Values = Array | np.ndarray
"""Of parameters: on the device while they are trained, on the host afterwards."""
LEAST_DF = 2.5
"""Degrees of freedom stay above this, so that the variance is finite."""
_ROOT_3 = math.sqrt(3.0)
_LEAST_NOISE = 1e-4
"""In units of the kernel's variance."""
_LEAST_VARIANCE = 1e-12


@final
class LocalGP(eqx.Module):
    """Parameters of the local GP of one target."""

    log_lengthscale: Float[Values, " d"]
    log_variance: Float[Values, " 2"]
    """Of the rough and of the smooth part."""
    log_stretch: Float[Values, ""]
    """Lengthscales of the smooth part over those of the rough one."""
    log_noise: Float[Values, ""]
    log_share: Float[Values, ""]
    """How much of the deep GP's variance counts as noise."""
    log_excess_df: Float[Values, ""]

    @property
    def variance(self) -> Float[Array, ""]:
        """The prior variance of the function."""
        return jnp.sum(jnp.exp(self.log_variance))

    @property
    def num_parameters(self) -> int:
        """How many numbers were trained."""
        return sum(np.size(leaf) for leaf in jax.tree.leaves(self))

    @property
    def df(self) -> Float[Array, ""]:
        """Degrees of freedom of the errors."""
        return LEAST_DF + jnp.exp(self.log_excess_df)

    def covariance(self, squared: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """The kernel as a function of the squared scaled distance."""
        apart = squared > 0.0
        distance = jnp.where(apart, jnp.sqrt(jnp.where(apart, squared, 1.0)), 0.0)
        rough, smooth = jnp.exp(self.log_variance)
        stretched = _ROOT_3 * jnp.exp(-self.log_stretch) * distance
        return rough * jnp.exp(-distance) + smooth * (1.0 + stretched) * jnp.exp(-stretched)

    def noise(self, deep_variance: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """The noise variance of rows where the deep GP has this predictive variance."""
        least = _LEAST_NOISE * self.variance
        return least + jnp.exp(self.log_noise) + jnp.exp(self.log_share) * deep_variance

    def conditional(self, hoods: Neighbourhoods) -> tuple[Float[Array, "n *c"], Float[Array, " n"]]:
        """Mean and variance of the function at rows, given their neighbours."""
        own, mutual = squared_distances(hoods.offsets * jnp.exp(-self.log_lengthscale))
        noise = self.noise(hoods.deep_variance) * hoods.noise_factor
        noise = jnp.maximum(noise, 0.5 * _LEAST_NOISE * self.variance)  # weights make it small
        noise = jnp.eye(own.shape[1], dtype=own.dtype) * noise[:, None, :]
        mean, variance = condition(
            self.covariance(mutual) + noise, self.covariance(own), self.variance, hoods.residuals
        )
        return mean, jnp.maximum(variance, _LEAST_VARIANCE)

    def log_density(self, error: Float[Array, " n"], variance: Float[Array, " n"]) -> Float[Array, " n"]:
        """Of errors with this variance, under the t distribution."""
        df = self.df
        scale = variance * (df - 2.0) / df
        normaliser = gammaln(0.5 * (df + 1.0)) - gammaln(0.5 * df) - 0.5 * jnp.log(df * math.pi * scale)
        ratio = error**2 / (scale * df)  # `log1p` of it would be a fifth of the program's compilation
        return normaliser - 0.5 * (df + 1.0) * jnp.log(1.0 + ratio)


def starting_gp(columns: int, error_variance: float, deep_variance: float, dtype: str) -> LocalGP:
    """Where training starts: a quarter of the errors' variance in each part of kernel and noise."""
    quarter = 0.25 * max(error_variance, _LEAST_VARIANCE)
    parts = (
        np.full(columns, 0.5 * np.log(columns)),
        np.log([quarter, quarter]),
        0.0,
        np.log(quarter),
        np.log(quarter / max(deep_variance, _LEAST_VARIANCE)),
        np.log(5.0),
    )
    return LocalGP(*(jax.device_put(np.asarray(part, dtype)) for part in parts))
