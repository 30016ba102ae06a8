"""Covariance functions: radial profiles over one shared distance routine.

A kernel carries a leading *unit* axis `q` on every parameter: `q = 1` is one kernel shared by all
outputs of a layer, `q = p` one kernel per output. Inputs are `(q, n, d)` or broadcast to it; Gram
matrices are `(q, n, m)`. Positive parameters live as logarithms.
"""

import abc
import functools
import math
import operator
from collections.abc import Callable
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from novidgp.numerics.linalg import default_jitter
from novidgp.numerics.trees import numpy_for


def squared_distance(x: Float[Array, "*q n d"], z: Float[Array, "*q m d"]) -> Float[Array, "*q n m"]:
    """`|x|^2 + |z|^2 - 2 x.z`, clipped at zero, as one product of augmented rows.

    `[x, |x|^2, 1] . [-2 z, 1, |z|^2]`: the norms ride along in the GEMM, so that its gradient is two more
    and no reduction over the tall matrix. Inputs are centred first, so that far-off data keep their digits.
    """
    centre = jax.lax.stop_gradient(jnp.mean(z, axis=-2, keepdims=True))
    x, z = x - centre, z - centre
    left = jnp.concatenate([x, jnp.sum(x * x, -1, keepdims=True), jnp.ones_like(x[..., :1])], axis=-1)
    right = jnp.concatenate([-2.0 * z, jnp.ones_like(z[..., :1]), jnp.sum(z * z, -1, keepdims=True)], axis=-1)
    return _non_negative(left @ jnp.swapaxes(right, -1, -2))


@jax.custom_jvp
def _non_negative(square):
    """Rounding below zero removed, derivatives left alone: a coincident pair keeps its curvature."""
    return jnp.maximum(square, 0.0)


@_non_negative.defjvp
def _non_negative_jvp(primals, tangents):
    return _non_negative(*primals), tangents[0]


# --- profiles: k(r^2) with unit variance; derivatives in r^2 that are finite at zero ----------------


def _rbf(r2, _shape):
    return jnp.exp(-0.5 * r2)


@jax.custom_jvp
def _rq(r2, shape):
    """Of distances in units of `sqrt(2 shape)`: XLA's loop over them then has one factor, and vectorises."""
    return jnp.exp(-shape * jnp.log(1.0 + r2))


@_rq.defjvp
def _rq_jvp(primals, tangents):
    """`dk/dr2 = -k a / (1 + r2)` and `dk/da = k log(k) / a`: in terms of the value alone, so that the
    backward pass keeps one matrix and takes no second logarithm of the distances."""
    (r2, shape), (dr2, dshape) = primals, tangents
    value = _rq(r2, shape)
    log_value = jnp.log(jnp.maximum(value, jnp.finfo(value.dtype).tiny))
    return value, (-shape * value / (1.0 + r2)) * dr2 + (value * log_value / shape) * dshape


def _largest_log_shape(dtype) -> float:
    """Where `log(1 + r2 / 2a)` rounds by as much as the jitter: about 100 in float32, where the profile is
    Gaussian to a few parts in a thousand. A larger alpha acts as this one."""
    return math.log(default_jitter(dtype) / float(jnp.finfo(dtype).eps))


def _radius(r2):
    """A square root whose derivatives stay finite at zero."""
    tiny = 1e-12 if r2.dtype == jnp.float32 else 1e-24
    return jnp.sqrt(jnp.maximum(r2, tiny))


def _matern12(r2, _shape):
    return jnp.exp(-_radius(r2))


@jax.custom_jvp
def _matern32(r2, _shape):
    r = jnp.sqrt(3.0) * _radius(r2)
    return (1.0 + r) * jnp.exp(-r)


@_matern32.defjvp
def _matern32_jvp(primals, tangents):
    r2, shape = primals
    return _matern32(r2, shape), -1.5 * jnp.exp(-jnp.sqrt(3.0) * _radius(r2)) * tangents[0]


@jax.custom_jvp
def _matern52(r2, _shape):
    r = jnp.sqrt(5.0) * _radius(r2)
    return (1.0 + r + r * r / 3.0) * jnp.exp(-r)


@_matern52.defjvp
def _matern52_jvp(primals, tangents):
    r2, shape = primals
    r = jnp.sqrt(5.0) * _radius(r2)
    return _matern52(r2, shape), -(5.0 / 6.0) * (1.0 + r) * jnp.exp(-r) * tangents[0]


PROFILES: dict[str, Callable] = {
    "rq": _rq,
    "rbf": _rbf,
    "matern12": _matern12,
    "matern32": _matern32,
    "matern52": _matern52,
}


# --- kernels ------------------------------------------------------------------------------------------


class Kernel(eqx.Module):
    """A covariance function with `units` independent copies of its parameters.

    It is kept as variance times correlation, because a layer scales its outputs by the standard deviation
    and so never multiplies a tall Gram matrix by a scalar.
    """

    @abc.abstractmethod
    def correlation(self, x: Float[Array, "#q n d"], z: Float[Array, "#q m d"]) -> Float[Array, "q n m"]:
        """`k(x_i, z_j) / k(x, x)` for every unit."""

    @abc.abstractmethod
    def variance(self) -> Float[Array, " q"]:
        """`k(x, x)`, the same everywhere: all kernels here are stationary."""


@final
class Stationary(Kernel):
    """`variance * profile(|(x - z) / lengthscale|^2)` with one lengthscale per input (ARD).

    `log_shape` is the rational-quadratic kernel's `log alpha`; other profiles ignore it.
    """

    log_variance: Float[Array, " q"]
    log_lengthscale: Float[Array, "q d"]
    log_shape: Float[Array, " q"] | None
    profile: str = eqx.field(static=True)

    def correlation(self, x, z):
        """The profile over scaled distances, for every unit."""
        scale, shape = jnp.exp(-self.log_lengthscale)[:, None, :], None
        if self.log_shape is not None:
            largest = _largest_log_shape(self.log_shape.dtype)
            shape = jnp.exp(jnp.minimum(self.log_shape, largest))[:, None, None]
            scale = scale / jnp.sqrt(2.0 * shape)
        return PROFILES[self.profile](squared_distance(x * scale, z * scale), shape)

    def variance(self):
        """The signal variance of every unit."""
        return jnp.exp(self.log_variance)


@final
class Sum(Kernel):
    """Sum of kernels over the same inputs."""

    parts: tuple[Kernel, ...]

    def correlation(self, x, z):
        """The parts' correlations, weighted by their share of the variance."""
        total = self.variance()
        return sum((p.variance() / total)[:, None, None] * p.correlation(x, z) for p in self.parts)

    def variance(self):
        """Variances add."""
        return sum(part.variance() for part in self.parts)


@final
class Product(Kernel):
    """Product of kernels over the same inputs."""

    parts: tuple[Kernel, ...]

    def correlation(self, x, z):
        """Correlations multiply, element by element."""
        return functools.reduce(operator.mul, (part.correlation(x, z) for part in self.parts))

    def variance(self):
        """Variances multiply."""
        return functools.reduce(operator.mul, (part.variance() for part in self.parts))


@final
class Projected(Kernel):
    """A kernel of `x W`: of some directions of the inputs, in a metric that is given and not learned."""

    weight: Float[Array, "d r"]
    inner: Kernel

    def correlation(self, x, z):
        """The inner kernel's, of the projections."""
        weight = jax.lax.stop_gradient(self.weight)
        return self.inner.correlation(x @ weight, z @ weight)

    def variance(self):
        """The inner kernel's."""
        return self.inner.variance()


def stationary(
    profile: str,
    lengthscale: Float[Array, "q d"],
    variance: Float[Array, " q"],
    *,
    shape: float = 1.0,
) -> Stationary:
    """A stationary kernel from parameters in natural units."""
    numpy = numpy_for(lengthscale, variance)
    log_shape = numpy.full_like(variance, math.log(shape)) if profile == "rq" else None
    logs = numpy.log(variance), numpy.log(lengthscale), log_shape
    log_variance, log_lengthscale, log_shape = jax.device_put(logs)
    return Stationary(log_variance, log_lengthscale, log_shape, profile)


KernelFactory = Callable[[Float[Array, "q d"], Float[Array, " q"]], Kernel]

KERNELS: dict[str, KernelFactory] = {name: functools.partial(stationary, name) for name in PROFILES}
"""Kernels by name: functions of lengthscales and variances. Add one of your own here, and expressions such as
`"rq+mine"` know it."""


def make_kernel(spec: str, lengthscale: Float[Array, "q d"], variance: Float[Array, " q"]) -> Kernel:
    """A kernel from its name, with `+` and `*` for sums and products: `"rbf"`, `"rq+matern12"`.

    A product binds tighter than a sum. Parts of a sum share the variance equally, and a product's first
    factor carries all of it, so that the whole has the variance asked for.
    """
    terms, numpy = spec.split("+"), numpy_for(variance)
    share, ones = jax.device_put((numpy.asarray(variance) / len(terms), numpy.ones_like(variance)))
    built = []
    for term in terms:
        names = [name.strip() for name in term.split("*")]
        factors = tuple(KERNELS[name](lengthscale, share if i == 0 else ones) for i, name in enumerate(names))
        built.append(factors[0] if len(factors) == 1 else Product(factors))
    return built[0] if len(built) == 1 else Sum(tuple(built))


def kernel_names(spec: str) -> list[str]:
    """The names that occur in a kernel expression."""
    return [name.strip() for term in spec.split("+") for name in term.split("*")]
