"""One Gaussian-process layer, conditioned on its inducing outputs.

With `R = chol(K_ZZ)^-1` and `A = K_hZ R^T`, a layer maps its input `h` to

    f = m(h) + A V + eps * sqrt(k(h, h) - rowsum(A * A)),

where `V` are the whitened inducing outputs, `U = m(Z) + chol(K_ZZ) V`, whose prior is N(0, I). The same
`A` serves every inference method; only what is done with `V` differs.

Axes: k posterior samples, n rows, d inputs, p outputs, m inducing points, q kernel units (1 or p).
"""

import abc
from typing import ClassVar, NamedTuple, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from novidgp.model.kernels import Kernel
from novidgp.model.means import MeanFunction
from novidgp.numerics.linalg import add_jitter, inverse_cholesky
from novidgp.numerics.sharding import over_rows

_VARIANCE_FLOOR = 1e-8


class Gaussian(NamedTuple):
    """A Gaussian over one layer's inducing outputs, independent between outputs."""

    mean: Float[Array, "m p"]
    scale: Float[Array, "p m m"]


class Moments(NamedTuple):
    """Mean and marginal variance of a layer's output; the variance broadcasts against the mean."""

    mean: Float[Array, "*k n p"]
    variance: Float[Array, "*k n q"]


class Basis(NamedTuple):
    """`A` in units of the kernel's standard deviation, and the share of the prior variance that the inducing
    points leave unexplained."""

    matrix: Float[Array, "q *k n m"]
    share: Float[Array, "q *k n"]


class Projection(NamedTuple):
    """The map from correlations with the inducing points to a basis, where it is known beforehand.

    It may be rotated, so that the variance of a Gaussian over V that is integrated out needs no product of
    its own (`posteriors.prepared`).
    """

    matrix: Float[Array, "q m m"]
    weight: Float[Array, "q m"] | None
    """What the square of each column takes off the prior variance; None is all of it."""


class Layer(eqx.Module):
    """What every GP layer has: a kernel, inducing points in the kernel's input space, a mean function.

    `q = 1` shares kernel and points between outputs. A layer differs from another in what it makes of its
    inputs: `basis` and `conditional`.
    """

    kernel: eqx.AbstractVar[Kernel]
    inducing: eqx.AbstractVar[Float[Array, "q m d"]]
    mean: eqx.AbstractVar[MeanFunction]
    outputs: eqx.AbstractVar[int]
    """Functions that have inducing outputs, `p`."""

    draws_inducing: ClassVar[bool] = False
    """Whether a Gaussian over V is drawn from and not integrated out, row by row, in `conditional`."""

    @property
    def num_inducing(self) -> int:
        """The number of inducing points, `m`."""
        return self.inducing.shape[1]

    @property
    @abc.abstractmethod
    def row_size(self) -> int:
        """Numbers in the largest array that a row makes on one path: what bounds the rows of a block."""

    @property
    def width(self) -> int:
        """Numbers in a row of the layer's output."""
        return self.outputs

    @abc.abstractmethod
    def basis(self, h: Float[Array, "*k n d"], projection: Projection | None = None) -> Basis:
        """The basis at inputs `h`. Samples and rows stay two axes, so that rows can be shared by devices."""

    @abc.abstractmethod
    def conditional(
        self,
        h: Float[Array, "*#k n d"],
        v: Float[Array, "k m p"],
        scale: Float[Array, "p m m"] | None = None,
        noise: Float[Array, "p n m"] | None = None,
        *,
        basis: Basis | None = None,
    ) -> Moments:
        """`p(f | h, V)`, or with a `scale` `p(f | h)` for `V ~ N(v, scale scale^T)`, row by row.

        An `h` without sample axis is shared: its `A` is computed once for all k. With `noise` V is not
        integrated out but drawn, once per row for all its samples: `V_kn = v_k + scale noise_n`. The `basis`
        at `h` may be given where it is known.
        """

    def correlation(self) -> Float[Array, "q m m"]:
        """The inducing outputs' correlation matrix, for every kernel unit."""
        return self.kernel.correlation(self.inducing, self.inducing)

    def root(self) -> Float[Array, "q m m"]:
        """Inverse Cholesky factor of `correlation`."""
        return inverse_cholesky(add_jitter(self.correlation())[0])

    def projection(self) -> Projection:
        """The map to `A`."""
        return Projection(jnp.swapaxes(self.root(), -1, -2), None)

    def whiten(self, u: Float[Array, "k m p"]) -> Float[Array, "k m p"]:
        """`V` from `U`: `R (U - m(Z))`, output by output."""
        centred = (u - self.inducing_mean()) / jnp.sqrt(self.kernel.variance())
        root = jnp.broadcast_to(self.root(), (self.outputs, self.num_inducing, self.num_inducing))
        return jnp.einsum("pij,kjp->kip", root, centred)

    def whiten_scale(self, scale: Float[Array, "p m m"]) -> Float[Array, "p m m"]:
        """The Cholesky factor of V's covariance from that of U's."""
        return self.root() @ scale / jnp.sqrt(self.kernel.variance())[:, None, None]

    def log_det_root(self) -> Float[Array, ""]:
        """`sum_p log |chol(K_ZZ)^-1|`: the Jacobian that separates the densities of U and V."""
        log_scale = 0.5 * jnp.log(self.kernel.variance())[:, None]
        per_unit = jnp.sum(jnp.log(jnp.diagonal(self.root(), axis1=-2, axis2=-1)) - log_scale, axis=-1)
        return jnp.sum(jnp.broadcast_to(per_unit, (self.outputs,)))

    def inducing_mean(self) -> Float[Array, "m p"]:
        """`m(Z)`, where every output has its mean at its own unit's points."""
        values = self.mean(self.inducing)
        return values[0] if len(values) == 1 else jnp.diagonal(values, axis1=0, axis2=2)


@final
class GPLayer(Layer):
    """A multi-output GP of rows of numbers, with inducing points."""

    kernel: Kernel
    inducing: Float[Array, "q m d"]
    mean: MeanFunction
    outputs: int = eqx.field(static=True)

    @property
    def row_size(self) -> int:
        return self.inducing.shape[0] * self.num_inducing

    def cross(self, h: Float[Array, "*k n d"]) -> Float[Array, "q *k n m"]:
        """Correlations of the functions at `h` with the inducing outputs."""
        return self.kernel.correlation(h[None], self.inducing)

    def basis(self, h, projection=None):
        return basis_at(self, h, projection)

    def conditional(self, h, v, scale=None, noise=None, *, basis=None):
        return moments_at(self, h, self.basis(h) if basis is None else basis, v, scale, noise)


def basis_at(layer: Layer, h: Float[Array, "*k n d"], projection: Projection | None = None) -> Basis:
    """The basis of a layer at points of its kernel's input space."""
    matrix, weight = layer.projection() if projection is None else projection

    def rows(h):
        return layer.kernel.correlation(h[None], layer.inducing) @ matrix

    basis = over_rows(rows, h)
    return Basis(basis, unexplained(jnp.ones((), basis.dtype), basis, weight))


def unexplained(
    prior: Float[Array, "*#qn"], matrix: Float[Array, "q *k m"], weight: Float[Array, "q m"] | None = None
) -> Float[Array, "q *k"]:
    """What the inducing points leave of the `prior` variance, in units of the kernel's."""
    square = matrix * matrix
    explained = jnp.sum(square, axis=-1) if weight is None else jnp.einsum("q...m,qm->q...", square, weight)
    return jnp.maximum(prior - explained, _VARIANCE_FLOOR)


def moments_at(
    layer: Layer,
    h: Float[Array, "*#k n d"],
    basis: Basis,
    v: Float[Array, "k m p"],
    scale: Float[Array, "p m m"] | None,
    noise: Float[Array, "p n m"] | None,
) -> Moments:
    """`Layer.conditional` from the basis at the inputs."""
    matrix, share = basis
    variance = layer.kernel.variance()
    shift = 0.0
    if scale is not None:
        scale = scale if h.ndim == 2 else scale[:, None]
        if noise is None:
            share = share + jnp.sum((matrix @ scale) ** 2, axis=-1)
        else:
            spread = matrix @ scale
            spread = spread[:, None] if h.ndim == 2 else spread
            drawn = jnp.sum(spread * noise[:, None], axis=-1)
            shift = jnp.sqrt(variance) * jnp.moveaxis(drawn, 0, -1)
    v = jnp.sqrt(variance) * v
    if h.ndim == 2:
        mean = _project_shared(matrix, v)
        share = share.T[None]
    else:
        mean = _project_samples(matrix, v)
        share = jnp.moveaxis(share, 0, -1)
    return Moments(layer.mean(h) + mean + shift, variance * share)


def _project_shared(basis: Float[Array, "q n m"], v: Float[Array, "k m p"]) -> Float[Array, "k n p"]:
    """`A V` for inputs that all samples share: one GEMM per kernel unit."""
    samples, points, outputs = v.shape
    if basis.shape[0] == 1:
        folded = jnp.moveaxis(v, 1, 0).reshape(points, samples * outputs)
        return jnp.moveaxis((basis[0] @ folded).reshape(-1, samples, outputs), 1, 0)
    return jnp.transpose(basis @ jnp.transpose(v, (2, 1, 0)), (2, 1, 0))


def _project_samples(basis: Float[Array, "q k n m"], v: Float[Array, "k m p"]) -> Float[Array, "k n p"]:
    """`A V` where every sample has inputs of its own."""
    if basis.shape[0] == 1:
        return jnp.einsum("knm,kmp->knp", basis[0], v)
    return jnp.einsum("pknm,kmp->knp", basis, v)
