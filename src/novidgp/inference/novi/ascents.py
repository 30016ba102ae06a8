"""The directions in which NOVI's generator and hyper-parameters go, with the critic held fixed.

- `elbo_ascent`, the default: the evidence lower bound with the Gaussian part of q integrated out.
- `kl_ascent`: the same objective from joint draws of V, for any generator and either critic.
- `fisher_ascent`: the gradient of the discrepancy itself, as in Algorithm 1 of the paper; second order.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.inference.base import Info
from novidgp.inference.closed_form import Statistics, closed_form_gaussian
from novidgp.inference.novi.critics import ScoreModel, base_score, own_score
from novidgp.inference.novi.game import Ascent, Keys, Players
from novidgp.inference.novi.targets import AbstractTarget, DGPTarget
from novidgp.model.dgp import Batch, Inducing, Scales, repeat_draws
from novidgp.model.likelihoods import GaussianNoise
from novidgp.numerics import stein
from novidgp.numerics.random import normal
from novidgp.posteriors.generators import AbstractGenerator, flatten, unflatten

NORMAL_ENTROPY = 0.5 * math.log(2.0 * math.pi * math.e)
"""The entropy of one standard normal variable."""


def draw_between(
    paths: Inducing, factors: Scales, scales: Scales, *, key: PRNGKeyArray
) -> tuple[Inducing, tuple[Float[Array, "_p _m _m"] | None, ...]]:
    """In all layers but the first and the last, replace the Gaussian part of q by one draw per path.

    Every path has its own inputs there, and integrating V out row by row would take one covariance product
    per output, most of a deep model's time. The bound is the same. `factors` are the scales before whitening.
    """
    keys = jax.random.split(key, len(paths))

    def between(index):
        return 0 < index < len(paths) - 1

    drawn = (
        v + jnp.einsum("pij,kjp->kip", factor, normal(k, v.shape, v.dtype)) if between(index) else v
        for index, (v, factor, k) in enumerate(zip(paths, factors, keys, strict=True))
    )
    return tuple(drawn), tuple(None if between(index) else scale for index, scale in enumerate(scales))


def elbo_ascent(
    players: Players,
    memory: Statistics | None,
    batch: Batch,
    *,
    target: DGPTarget,
    statistics_rate: float,
    keys: Keys,
) -> Ascent:
    """Ascent of the evidence lower bound with the Gaussian part of q integrated out.

    Given eps, q is Gaussian layer by layer, so the data term needs no draw of V, as in DSVI. What remains of
    the entropy, `H(w)`, has the gradient `-E[r(w) . dg]`. With statistics in `memory` the last layer is
    solved for: the rest follows the bound with the best last layer in it.
    """
    num_paths, bound = target.num_paths, target.bound
    hidden_key, likelihood_key, between_key = jax.random.split(keys.paths, 3)

    def evidence_lower_bound(model, generator):
        shift = generator.displacement(target.num_samples, key=keys.draws)

        factors, shifts = generator.scales(), unflatten(shift, generator.shapes)
        centres = tuple(
            mean + jnp.einsum("pij,kjp->kip", factor, w)
            for mean, factor, w in zip(generator.mean, factors, shifts, strict=True)
        )
        scales = model.whiten_scales(factors)
        seen = draw_between(repeat_draws(centres, num_paths), factors, scales, key=between_key)
        h, statistics = model.last_layer_inputs(batch.x, *seen, key=hidden_key), memory
        basis = model.layers[-1].basis(h)
        if statistics is not None:
            statistics, mean, scale = closed_form_gaussian(
                model,
                statistics,
                basis.matrix,
                jnp.repeat(shifts[-1], num_paths, axis=0),
                batch,
                target.num_data,
                statistics_rate,
            )
            generator = generator.with_last(mean, scale)
            centres = *centres[:-1], mean + jnp.einsum("pij,kjp->kip", scale, shifts[-1])
            scales = *scales[:-1], scale
        options = {"num_paths": num_paths, "bound": bound, "scales": scales, "basis": basis}
        data = jnp.mean(
            model.log_likelihood_at(h, centres, batch, target.num_data, **options, key=likelihood_key)
        )
        prior = jnp.mean(model.log_prior(centres)) - 0.5 * sum(jnp.sum(c * c) for c in scales)
        base = jax.lax.stop_gradient(shift) + normal(keys.extra, shift.shape, shift.dtype)
        push = jax.lax.stop_gradient(-base_score(players.critic, base))
        pushed = jnp.mean(jnp.sum(push * shift, axis=-1))
        entropy = shift.shape[-1] * NORMAL_ENTROPY + sum(jnp.sum(d) for d in generator.log_diagonal)
        elbo = data + prior + entropy + pushed - jax.lax.stop_gradient(pushed)
        return elbo, (data, generator, statistics)

    (elbo, (data, solved, statistics)), gradients = jax.value_and_grad(
        evidence_lower_bound, argnums=(0, 1), has_aux=True
    )(players.model, players.generator)
    info = {"loss": -elbo / target.num_data, "expected_log_likelihood": data / target.num_data}
    likelihood = players.model.likelihood
    if isinstance(likelihood, GaussianNoise):
        info["noise"] = jnp.sqrt(jnp.mean(likelihood.variance))
    return Ascent(gradients[0], gradients[1], solved, statistics, info)


def kl_ascent(
    players: Players,
    memory: Any,
    batch: Batch | None,
    *,
    target: AbstractTarget,
    regularisation: float | None = None,
    keys: Keys,
) -> Ascent:
    """The generator follows `E[J^T (score_p - r)]`, the gradient of the reverse KL, from joint draws of V.

    One pass through the likelihood serves both players. With a `regularisation` the critic is the paper's
    network phi, and `2 lambda phi` takes the place of `score_p - r`.
    """
    generator, critic = players.generator, players.critic
    draws = _Draws(players, batch, target, keys)
    if regularisation is None:
        own = generator.pull_score(base_score(critic, draws.base))
        direction = jax.tree.map(lambda g, r: target.num_samples * g - r, draws.gradient, own)
    else:
        direction = unflatten(2.0 * regularisation * critic(flatten(draws.v)), generator.shapes)
    gradient = draws.pull_back(jax.tree.map(lambda d: d / target.num_samples, direction))
    divergence = jnp.mean(jnp.sum(flatten(direction) ** 2, axis=-1))
    info = draws.info | discrepancies(divergence, 1.0 if regularisation is None else regularisation)
    return Ascent(draws.model_gradient, gradient, generator, memory, info)


def fisher_ascent(
    players: Players,
    memory: Any,
    batch: Batch | None,
    *,
    target: AbstractTarget,
    regularisation: float,
    trace: stein.TraceEstimator,
    keys: Keys,
) -> Ascent:
    """The generator descends the regularised Stein discrepancy, from joint draws of V (Algorithm 1).

    The critic is a fixed field here (the envelope theorem): only with the trace, whose mean over q depends on
    q, is the gradient that of the Fisher divergence. A `ScoreModel` critic enters in the form of Theorem 2.
    """
    model, generator, critic = players
    draws = _Draws(players, batch, target, keys)
    frozen = jax.lax.stop_gradient(generator)

    def discrepancy(flat):
        score = target.score(model, batch, key=keys.paths)
        field = critic
        if critic is None or isinstance(critic, ScoreModel):
            field = stein.optimal_critic(score, lambda x: own_score(critic, frozen, x), regularisation)
        values = stein.regularised_stein_discrepancy(
            score, field, flat, regularisation, lambda field, x: trace(field, x, key=keys.extra)
        )
        return jnp.mean(values)

    rsd, slope = jax.value_and_grad(discrepancy)(flatten(draws.v))
    gradient = draws.pull_back(unflatten(-slope, generator.shapes))
    info = draws.info | discrepancies(4.0 * regularisation * rsd, regularisation)
    return Ascent(draws.model_gradient, gradient, generator, memory, info)


def fisher_divergence(
    players: Players, batch: Batch, target: AbstractTarget, *, key: PRNGKeyArray
) -> Float[Array, ""]:
    """`E_q |score_p - score_q|^2` from joint draws, with the critic's model of q's score."""
    draw_key, path_key = jax.random.split(key)
    generator = players.generator
    flat = flatten(generator.sample(target.num_samples, key=draw_key))
    score = target.score(players.model, batch, key=path_key)
    return jnp.mean(stein.fisher_divergence(score, lambda x: own_score(players.critic, generator, x), flat))


def discrepancies(divergence: Float[Array, ""], regularisation: float) -> Info:
    """The Fisher divergence, and the discrepancy that it implies at the best critic (Theorem 2)."""
    return {"rsd": divergence / (4.0 * regularisation), "fisher_divergence": divergence}


class _Draws:
    """Joint draws of V and the gradients of `log p(y, V)` there: one pass through the likelihood."""

    def __init__(self, players: Players, batch: Batch | None, target: AbstractTarget, keys: Keys):
        def draw(generator):
            base, _ = generator.sample_base(target.num_samples, key=keys.draws)
            return generator.to_outputs(base), base

        self.v, self._vjp, self.base = jax.vjp(draw, players.generator, has_aux=True)

        def log_joint(v, model):
            total, data = target.log_joint(v, model, batch, key=keys.paths)
            return jnp.mean(total), jnp.mean(data)

        (joint, data), (self.gradient, self.model_gradient) = jax.value_and_grad(
            log_joint, argnums=(0, 1), has_aux=True
        )(self.v, players.model)
        num_data = target.num_data
        self.info = {"loss": -joint / num_data, "expected_log_likelihood": data / num_data}

    def pull_back(self, direction: Inducing) -> AbstractGenerator:
        """A direction of the draws as one of the generator's parameters."""
        return self._vjp(direction)[0]
