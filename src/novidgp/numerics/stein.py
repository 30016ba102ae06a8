"""Stein discrepancies as pure functions of a score, samples and a critic. No model in here.

Everything works on any target density known up to a constant: `score` and `critic` map a batch of rows
`(k, d)` to rows of the same shape, each row on its own.

    import jax, jax.numpy as jnp
    from novidgp import stein

    score = jax.vmap(jax.grad(lambda x: -0.5 * jnp.sum(x**2)))          # target: N(0, I)
    samples = 1.0 + jax.random.normal(jax.random.key(0), (500, 3))      # q: N(1, I)
    critic = stein.optimal_critic(score, lambda x: 1.0 - x, regularisation=0.5)
    rsd = stein.regularised_stein_discrepancy(score, critic, samples, 0.5, stein.exact_trace)
    # E[rsd] = FD / (4 lambda) = 3 / 2
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.numerics.random import normal

Rows = Float[Array, "k d"]
Field = Callable[[Rows], Rows]
Trace = Callable[[Field, Rows], Float[Array, " k"]]
TraceKind = Literal["hutchinson", "rademacher", "exact"]


@runtime_checkable
class TraceEstimator(Protocol):
    """A trace that may need noise."""

    def __call__(self, field: Field, x: Rows, *, key: PRNGKeyArray) -> Float[Array, " k"]:
        """`tr(d field / d x)` for every row."""
        ...


def make_trace(kind: TraceKind, probes: int = 1) -> TraceEstimator:
    """Hutchinson's estimate with Gaussian (`hutchinson`) or `rademacher` probes, or the `exact` trace."""
    if kind == "exact":
        return lambda field, x, *, key: exact_trace(field, x)
    return partial(hutchinson_trace, probes=probes, kind="rademacher" if kind == "rademacher" else "gaussian")


def hutchinson_trace(
    field: Field,
    x: Rows,
    *,
    probes: int = 1,
    kind: Literal["gaussian", "rademacher"] = "gaussian",
    key: PRNGKeyArray,
) -> Float[Array, " k"]:
    """Unbiased estimate of `tr(d field / d x)` for every row: `E[w^T J w]` over random probes `w`."""

    def one(probe_key):
        if kind == "rademacher":
            probe = jax.random.rademacher(probe_key, x.shape, x.dtype)
        else:
            probe = normal(probe_key, x.shape, x.dtype)
        return jnp.sum(probe * jax.jvp(field, (x,), (probe,))[1], axis=-1)

    return jnp.mean(jax.vmap(one)(jax.random.split(key, probes)), axis=0)


def exact_trace(field: Field, x: Rows) -> Float[Array, " k"]:
    """`tr(d field / d x)` for every row, one directional derivative per dimension."""

    def one(direction):
        tangent = jnp.broadcast_to(direction, x.shape)
        return jnp.sum(tangent * jax.jvp(field, (x,), (tangent,))[1], axis=-1)

    return jnp.sum(jax.lax.map(one, jnp.eye(x.shape[-1], dtype=x.dtype)), axis=0)


def langevin_stein(score: Field, critic: Field, x: Rows, trace: Trace) -> Float[Array, " k"]:
    """The Langevin-Stein operator `score . critic + tr(d critic / d x)`; its mean under p is zero."""
    return jnp.sum(score(x) * critic(x), axis=-1) + trace(critic, x)


def regularised_stein_discrepancy(
    score: Field, critic: Field, x: Rows, regularisation: float, trace: Trace
) -> Float[Array, " k"]:
    """`score . critic + tr(d critic / d x) - lambda |critic|^2`, whose mean over q the critic maximises."""
    penalty = regularisation * jnp.sum(critic(x) ** 2, axis=-1)
    return langevin_stein(score, critic, x, trace) - penalty


def optimal_critic(target_score: Field, sampler_score: Field, regularisation: float) -> Field:
    """Theorem 2: `(score_p - score_q) / (2 lambda)` maximises the discrepancy, at `FD / (4 lambda)`."""
    return lambda x: (target_score(x) - sampler_score(x)) / (2.0 * regularisation)


def fisher_divergence(target_score: Field, sampler_score: Field, x: Rows) -> Float[Array, " k"]:
    """`|score_p - score_q|^2` at samples of q; the mean is the Fisher divergence."""
    return jnp.sum((target_score(x) - sampler_score(x)) ** 2, axis=-1)


def implicit_score_matching(model_score: Field, x: Rows, trace: Trace) -> Float[Array, " k"]:
    """`|r|^2 / 2 + tr(d r / d x)`: its mean over q is least where `r` is the score of q (Hyvarinen 2005)."""
    return 0.5 * jnp.sum(model_score(x) ** 2, axis=-1) + trace(model_score, x)


def kernel_stein_discrepancy(score: Field, x: Rows, bandwidth: float | None = None) -> Float[Array, ""]:
    """Squared KSD with the inverse multiquadric kernel `(1 + |x - y|^2 / h^2)^(-1/2)`, as a U-statistic.

    Without a `bandwidth`, h is the median distance between samples.
    """
    count, size = x.shape
    difference = x[:, None] - x[None]
    square = jnp.sum(difference**2, axis=-1)
    if bandwidth is None:
        off_diagonal = square[jnp.triu_indices(count, 1)]
        h2 = jax.lax.stop_gradient(jnp.maximum(jnp.median(off_diagonal), jnp.finfo(x.dtype).tiny))
    else:
        h2 = jnp.asarray(bandwidth**2, x.dtype)
    s = score(x)
    base = 1.0 + square / h2
    kernel = base**-0.5
    slope = -(base**-1.5) / h2
    cross = jnp.einsum("id,ijd->ij", s, difference) - jnp.einsum("jd,ijd->ij", s, difference)
    trace = -size * slope - 3.0 * base**-2.5 * square / h2**2
    stein = (s @ s.T) * kernel - cross * slope + trace
    return (jnp.sum(stein) - jnp.trace(stein)) / (count * (count - 1))
