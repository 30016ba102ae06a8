"""Observation models: the distribution of a target given a Gaussian function value.

Every likelihood answers four questions about `f ~ N(mean, variance)`, element by element: `expected_log_prob`
(`E[log p(y|f)]`), `log_prob` (`log E[p(y|f)]`, the predictive density), `moments` of y, and `sample`. Closed
forms where they exist, Gauss-Hermite quadrature where one function is integrated, Monte Carlo only for the
softmax.
"""

import abc
from typing import Any, ClassVar, Literal, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, log_ndtr, logsumexp, ndtr
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import ndtri

from novidgp.numerics.random import normal
from novidgp.numerics.trees import on_device

_NODES, _WEIGHTS = np.polynomial.hermite.hermgauss(20)
_HALF_LOG_2PI = 0.5 * np.log(2.0 * np.pi)
_SOFTMAX_DRAWS = 8
_MAX_LOG_RATE = 20.0


def _quadrature(mean, variance):
    """Nodes `f_i` (leading axis) and weights of an expectation over N(mean, variance)."""
    nodes = jnp.asarray(_NODES, mean.dtype).reshape(-1, *([1] * mean.ndim))
    weights = jnp.asarray(_WEIGHTS / np.sqrt(np.pi), mean.dtype).reshape(nodes.shape)
    return mean + jnp.sqrt(2.0 * variance) * nodes, weights


def _expect(function, mean, variance):
    points, weights = _quadrature(mean, jnp.broadcast_to(variance, mean.shape))
    return jnp.sum(weights * function(points), axis=0)


def _log_expect(log_function, mean, variance):
    points, weights = _quadrature(mean, jnp.broadcast_to(variance, mean.shape))
    return logsumexp(log_function(points) + jnp.log(weights), axis=0)


def _gaussian_log_density(residual_square, variance):
    return -0.5 * (residual_square / variance + jnp.log(variance)) - _HALF_LOG_2PI


class Likelihood(eqx.Module):
    """`p(y | f)` for targets `y` of width t and functions `f` of width `num_functions(t)`."""

    task: ClassVar[Literal["regression", "classification"]] = "regression"
    scales_targets: ClassVar[bool] = True
    """Whether targets are standardised first. Labels and counts are not."""
    functions_per_target: ClassVar[int] = 1
    one_function_per_class: ClassVar[bool] = False

    @classmethod
    def num_functions(cls, targets: int, classes: int | None = None) -> int:
        """How many functions the last layer has for so many target columns, or classes."""
        return int(classes or 0) if cls.one_function_per_class else cls.functions_per_target * targets

    @classmethod
    @abc.abstractmethod
    def start(cls, targets: int, *, noise: float, count_rate: float, dtype: Any) -> "Likelihood":
        """The likelihood at its initial parameters: `noise` is in units of the targets' standard deviation,
        `count_rate` the mean of targets that are not standardised."""

    @classmethod
    def refusal(cls, y: np.ndarray) -> str | None:
        """Why observed targets cannot have this distribution, in words; None if they can."""
        return None

    @abc.abstractmethod
    def expected_log_prob(self, y, mean, variance, *, key: PRNGKeyArray) -> Float[Array, "*k n t"]:
        """`E[log p(y | f)]`, `f ~ N(mean, variance)`."""

    @abc.abstractmethod
    def log_prob(self, y, mean, variance, *, key: PRNGKeyArray) -> Float[Array, "*k n t"]:
        """`log E[p(y | f)]`, `f ~ N(mean, variance)`."""

    @abc.abstractmethod
    def moments(self, mean, variance) -> tuple[Float[Array, "*k n t"], Float[Array, "*k n t"]]:
        """Mean and variance of y."""

    @abc.abstractmethod
    def sample(self, f: Float[Array, "*k n p"], *, key: PRNGKeyArray) -> Float[Array, "*k n t"]:
        """One target for each function value."""


@final
class GaussianNoise(Likelihood):
    """`y = f + sigma eps`, one sigma per target. Everything is closed form."""

    log_scale: Float[Array, " t"]

    @classmethod
    def start(cls, targets, *, noise, count_rate, dtype):
        return cls(on_device(np.full(targets, np.log(noise)), dtype))

    @property
    def variance(self) -> Float[Array, "*k t"]:
        """The noise variance of every target."""
        return jnp.exp(2.0 * self.log_scale)

    def expected_log_prob(self, y, mean, variance, *, key):
        """`log N(y; mean, sigma^2) - variance / (2 sigma^2)`."""
        return _gaussian_log_density((y - mean) ** 2 + variance, self.variance)

    def log_prob(self, y, mean, variance, *, key):
        """`log N(y; mean, variance + sigma^2)`."""
        return _gaussian_log_density((y - mean) ** 2, variance + self.variance)

    def moments(self, mean, variance):
        """The function's moments with the noise added."""
        return mean, jnp.broadcast_to(variance + self.variance, mean.shape)

    def sample(self, f, *, key):
        """`f` plus Gaussian noise."""
        return f + jnp.exp(self.log_scale) * normal(key, f.shape, f.dtype)


@final
class StudentT(Likelihood):
    """`y = f + scale * t_df`: heavy tails for targets with outliers. `df > 2` keeps the variance finite."""

    log_scale: Float[Array, " t"]
    log_excess_df: Float[Array, " t"]

    @classmethod
    def start(cls, targets, *, noise, count_rate, dtype):
        logs = np.log(noise), np.log(3.0)
        return cls(*(on_device(np.full(targets, log), dtype) for log in logs))

    @property
    def df(self) -> Float[Array, "*k t"]:
        """Degrees of freedom, above two."""
        return 2.0 + jnp.exp(self.log_excess_df)

    def _log_density(self, y, f):
        df, scale = self.df, jnp.exp(self.log_scale)
        normaliser = gammaln(0.5 * (df + 1)) - gammaln(0.5 * df) - 0.5 * jnp.log(df * jnp.pi) - self.log_scale
        return normaliser - 0.5 * (df + 1) * jnp.log1p(((y - f) / scale) ** 2 / df)

    def expected_log_prob(self, y, mean, variance, *, key):
        """By quadrature."""
        return _expect(lambda f: self._log_density(y, f), mean, variance)

    def log_prob(self, y, mean, variance, *, key):
        """By quadrature."""
        return _log_expect(lambda f: self._log_density(y, f), mean, variance)

    def moments(self, mean, variance):
        """Variance `scale^2 df / (df - 2)` on top of the function's."""
        extra = jnp.exp(2.0 * self.log_scale) * self.df / (self.df - 2.0)
        return mean, jnp.broadcast_to(variance + extra, mean.shape)

    def sample(self, f, *, key):
        """`f` plus a scaled t variate."""
        return f + jnp.exp(self.log_scale) * jax.random.t(key, self.df, f.shape, f.dtype)


@final
class Heteroscedastic(Likelihood):
    """`y = f + exp(g) eps`: the second half of the functions is the log noise scale over `log_scale`."""

    log_scale: Float[Array, " t"]
    functions_per_target: ClassVar[int] = 2

    @classmethod
    def start(cls, targets, *, noise, count_rate, dtype):
        return cls(on_device(np.full(targets, np.log(noise)), dtype))

    def _split(self, mean, variance):
        variance = jnp.broadcast_to(variance, mean.shape)
        (f, g), (f_var, g_var) = jnp.split(mean, 2, axis=-1), jnp.split(variance, 2, axis=-1)
        return f, f_var, g + self.log_scale, g_var

    def expected_log_prob(self, y, mean, variance, *, key):
        """Closed form: `E[exp(-2 g)] = exp(-2 E[g] + 2 var[g])`."""
        f, f_var, g, g_var = self._split(mean, variance)
        precision = jnp.exp(2.0 * g_var - 2.0 * g)
        return -0.5 * precision * ((y - f) ** 2 + f_var) - g - _HALF_LOG_2PI

    def log_prob(self, y, mean, variance, *, key):
        """The function in closed form, the noise by quadrature."""
        f, f_var, g, g_var = self._split(mean, variance)
        return _log_expect(
            lambda log_noise: _gaussian_log_density((y - f) ** 2, f_var + jnp.exp(2.0 * log_noise)), g, g_var
        )

    def moments(self, mean, variance):
        """`E[exp(2 g)] = exp(2 E[g] + 2 var[g])` is the expected noise variance."""
        f, f_var, g, g_var = self._split(mean, variance)
        return f, f_var + jnp.exp(2.0 * g + 2.0 * g_var)

    def sample(self, f, *, key):
        """Noise of the scale that the second half of the functions gives."""
        mean, log_noise = jnp.split(f, 2, axis=-1)
        return mean + jnp.exp(log_noise + self.log_scale) * normal(key, mean.shape, mean.dtype)


class ClassLikelihood(Likelihood):
    """Labels, as numbers of classes, whose probabilities are a function of f."""

    task: ClassVar[Literal["regression", "classification"]] = "classification"
    scales_targets: ClassVar[bool] = False

    @abc.abstractmethod
    def probabilities(self, f: Float[Array, "*k n p"]) -> Float[Array, "*k n c"]:
        """Of the classes, given function values."""

    @abc.abstractmethod
    def functions(self, probabilities: np.ndarray) -> np.ndarray:
        """Function values `(n, p)` that give these probabilities `(n, c)`, on the host."""


@final
class Bernoulli(ClassLikelihood):
    """Binary targets through a probit link: `p(y = 1 | f) = Phi(f)`."""

    @classmethod
    def start(cls, targets, *, noise, count_rate, dtype):
        return cls()

    def expected_log_prob(self, y, mean, variance, *, key):
        """By quadrature."""
        sign = 2.0 * y - 1.0
        return _expect(lambda f: log_ndtr(sign * f), mean, variance)

    def log_prob(self, y, mean, variance, *, key):
        """Closed form: `log Phi(+-mean / sqrt(1 + variance))`."""
        return log_ndtr((2.0 * y - 1.0) * mean / jnp.sqrt(1.0 + variance))

    def moments(self, mean, variance):
        """The probability of class one, and its Bernoulli variance."""
        p = ndtr(mean / jnp.sqrt(1.0 + variance))
        return p, p * (1.0 - p)

    def probabilities(self, f):
        """Of zero and one."""
        return jnp.concatenate([ndtr(-f), ndtr(f)], axis=-1)

    def functions(self, probabilities):
        """The probit of class one, from the smaller of the two probabilities, which has more digits."""
        smaller = ndtri(np.minimum(probabilities[:, :1], probabilities[:, 1:]))
        return np.where(probabilities[:, :1] < probabilities[:, 1:], -smaller, smaller)

    def sample(self, f, *, key):
        """Zeros and ones."""
        return jax.random.bernoulli(key, ndtr(f)).astype(f.dtype)


@final
class Softmax(ClassLikelihood):
    """Class indices through a softmax over as many functions as classes; expectations by Monte Carlo."""

    one_function_per_class: ClassVar[bool] = True

    @classmethod
    def start(cls, targets, *, noise, count_rate, dtype):
        return cls()

    def _draws(self, mean, variance, key):
        half = normal(key, (_SOFTMAX_DRAWS // 2, *mean.shape), mean.dtype)
        return mean + jnp.sqrt(variance) * jnp.concatenate([half, -half])

    def _log_probs(self, y, mean, variance, key):
        logits = jax.nn.log_softmax(self._draws(mean, variance, key), axis=-1)
        label = jnp.broadcast_to(y.astype(jnp.int32), (*logits.shape[:-1], 1))
        return jnp.take_along_axis(logits, label, axis=-1)

    def expected_log_prob(self, y, mean, variance, *, key):
        """Average log probability over antithetic draws of the functions."""
        return jnp.mean(self._log_probs(y, mean, variance, key), axis=0)

    def log_prob(self, y, mean, variance, *, key):
        """Log of the average probability."""
        return logsumexp(self._log_probs(y, mean, variance, key), axis=0) - np.log(_SOFTMAX_DRAWS)

    def moments(self, mean, variance):
        """Class probabilities (last axis: classes) and their Bernoulli variances."""
        draws = self._draws(mean, variance, jax.random.key(0))
        p = jnp.mean(jax.nn.softmax(draws, axis=-1), axis=0)
        return p, p * (1.0 - p)

    def probabilities(self, f):
        """The softmax itself."""
        return jax.nn.softmax(f, axis=-1)

    def functions(self, probabilities):
        """Logarithms."""
        return np.log(probabilities)

    def sample(self, f, *, key):
        """Class indices."""
        return jax.random.categorical(key, f, axis=-1)[..., None].astype(f.dtype)


@final
class Poisson(Likelihood):
    """Counts with rate `exp(f + log_rate)`; the offset is where the function starts."""

    log_rate: Float[Array, " t"]
    scales_targets: ClassVar[bool] = False

    @classmethod
    def start(cls, targets, *, noise, count_rate, dtype):
        return cls(on_device(np.full(targets, np.log(count_rate)), dtype))

    @classmethod
    def refusal(cls, y):
        wrong = y[(y < 0) | (y != np.round(y))]
        if not wrong.size:
            return None
        return (
            f"{wrong[0]:g}, but likelihood='poisson' needs counts: non-negative integers. "
            "Use likelihood='gaussian' or 'student-t' for real-valued targets."
        )

    def _log_rate(self, f):
        return jnp.minimum(f + self.log_rate, _MAX_LOG_RATE)

    def _log_density(self, y, f):
        log_rate = self._log_rate(f)
        return y * log_rate - jnp.exp(log_rate) - gammaln(y + 1.0)

    def expected_log_prob(self, y, mean, variance, *, key):
        """Closed form: `E[exp f] = exp(mean + variance / 2)`."""
        rate = jnp.exp(self._log_rate(mean + 0.5 * variance))
        return y * (mean + self.log_rate) - rate - gammaln(y + 1.0)

    def log_prob(self, y, mean, variance, *, key):
        """By quadrature."""
        return _log_expect(lambda f: self._log_density(y, f), mean, variance)

    def moments(self, mean, variance):
        """Mean rate, and rate plus the rate's own variance (log-normal)."""
        variance = jnp.broadcast_to(variance, mean.shape)
        rate = jnp.exp(self._log_rate(mean + 0.5 * variance))
        return rate, rate + rate**2 * jnp.expm1(variance)

    def sample(self, f, *, key):
        """Counts."""
        return jax.random.poisson(key, jnp.exp(self._log_rate(f)), f.shape).astype(f.dtype)


LIKELIHOODS: dict[str, type[Likelihood]] = {
    "gaussian": GaussianNoise,
    "student-t": StudentT,
    "heteroscedastic": Heteroscedastic,
    "poisson": Poisson,
    "bernoulli": Bernoulli,
    "softmax": Softmax,
}
"""Likelihoods by name. Add one of your own here, and the estimator of its task knows it."""
