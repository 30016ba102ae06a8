"""Critics: what they are, and what they minimise.

`ScoreModel` is Theorem 2's form. The best critic is `(score_p - score_q) / (2 lambda)`, so only the
generator's own score `r` has to be learned, and it is learned without data. `stein_loss` trains the paper's
critic instead, a network that is the field `phi` itself.
"""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.inference.novi.game import Players
from novidgp.inference.novi.targets import AbstractTarget
from novidgp.model.dgp import Batch
from novidgp.numerics import stein
from novidgp.numerics.nets import MLP
from novidgp.posteriors.generators import AbstractGenerator, Flat, flatten, unflatten


@final
class ScoreModel(eqx.Module):
    """`r(w) = network(w) - w`: the score of a standard normal, corrected."""

    network: MLP

    def __call__(self, base: Flat) -> Flat:
        return self.network(base) - base


def base_score(critic: ScoreModel | None, base: Flat) -> Flat:
    """The modelled score in base coordinates. Without a critic the generator is Gaussian, and it is exact."""
    return -base if critic is None else critic(base)


def denoising_loss(
    critic: ScoreModel, generator: AbstractGenerator, *, num_samples: int, key: PRNGKeyArray
) -> Float[Array, ""]:
    """`E |r(w) + xi|^2` for `w = g + xi`: it has the score of q as its minimiser (Vincent 2011)."""
    base, shift = generator.sample_base(num_samples, key=key)
    assert shift is not None, "denoising needs a generator with Gaussian noise"
    return jnp.mean(jnp.sum((critic.network(base) - shift) ** 2, axis=-1))


def hyvarinen_loss(
    critic: ScoreModel,
    generator: AbstractGenerator,
    *,
    num_samples: int,
    trace: stein.TraceEstimator,
    key: PRNGKeyArray,
) -> Float[Array, ""]:
    """`E[|r|^2 / 2 + tr(dr / dw)]`: the same minimiser for any generator, with more variance."""
    draw_key, trace_key = jax.random.split(key)
    base, _ = generator.sample_base(num_samples, key=draw_key)
    losses = stein.implicit_score_matching(critic, base, lambda field, x: trace(field, x, key=trace_key))
    return jnp.mean(losses)


def stein_loss(
    critic: MLP,
    players: Players,
    batch: Batch | None,
    *,
    target: AbstractTarget,
    regularisation: float,
    trace: stein.TraceEstimator,
    key: PRNGKeyArray,
) -> Float[Array, ""]:
    """Minus the regularised Stein discrepancy, which the paper's critic maximises."""
    draw_key, path_key, trace_key = jax.random.split(key, 3)
    flat = flatten(players.generator.sample(target.num_samples, key=draw_key))
    score = target.score(players.model, batch, key=path_key)(flat)
    discrepancy = stein.regularised_stein_discrepancy(
        lambda _: score, critic, flat, regularisation, lambda field, x: trace(field, x, key=trace_key)
    )
    return -jnp.mean(discrepancy)


def own_score(critic: ScoreModel | None, generator: AbstractGenerator, flat: Flat) -> Flat:
    """The modelled score of q at inducing outputs, over flat rows."""
    base = generator.to_base(unflatten(flat, generator.shapes))
    return flatten(generator.pull_score(base_score(critic, base)))
