"""Neural operator variational inference: a neural posterior trained against a regularised Stein discrepancy.

A generator `V = g(eps)` is the posterior; a critic maximises, and the generator minimises,

    RSD = E_q[ score(V) . phi(V) + tr(d phi / d V) - lambda |phi(V)|^2 ],

while the hyper-parameters ascend `E_q[log p(y, V)]` (Algorithm 1 of the paper, with its signs mended).

The default is the form that Theorem 2 says is optimal, `phi = (score_p - r) / (2 lambda)` with `r` a model of
the generator's own score. The critic then needs neither data nor the posterior's score, the generator follows
`E[J^T (score_p - r)]`, and one pass through the likelihood per step serves generator and hyper-parameters.
"""

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from novidgp.inference import closed_form as conjugate
from novidgp.inference.base import Fitted, Inference, adam, ascend, by_part, descend
from novidgp.inference.ensembles import with_snapshots
from novidgp.model.dgp import DGP, Batch, Bound, Inducing, Scales, clip_hyperparameters
from novidgp.model.likelihoods import GaussianNoise
from novidgp.numerics import stein
from novidgp.numerics.nets import MLP, mlp
from novidgp.numerics.random import normal
from novidgp.posteriors.generators import Implicit, Smooth, flatten, make_generator, unflatten

PAPER = {
    "generator": "implicit",
    "critic": "network",
    "objective": "fisher",
    "bound": "log_expected",
    "noise_dim": 200,
    "activation": "tanh",
    "regularisation": 10.0,
    "critic_steps": 5,
    "critic_rate": 1e-3,
    "network_rate": 1e-3,
    "model_rate": 2e-2,
    "clip": (1e-3, 1e3),
    "snapshots": False,
}

SMALL_DATA = 2000
"""Rows up to which hyper-parameters are soon overfitted. Beside a solved last layer they then learn at 0.01
and not at 0.02 (unless `model_rate` is given), and snapshots are kept (unless `snapshots` is)."""

NORMAL_ENTROPY = 0.5 * math.log(2.0 * math.pi * math.e)
"""Of one standard normal variable."""


class NOVIState(NamedTuple):
    """The three players and their optimisers; the sums behind a last layer in closed form; the last measured
    Fisher divergence of q and posterior, and the steps since the start."""

    model: DGP
    generator: Implicit | Smooth
    critic: MLP | None
    model_opt: optax.OptState
    generator_opt: optax.OptState
    critic_opt: optax.OptState
    sums: conjugate.Sums | None
    divergence: jax.Array
    count: jax.Array


def drawn_between(
    paths: Inducing, factors: Scales, scales: Scales, *, key
) -> tuple[Inducing, tuple[Array | None, ...]]:
    """The Gaussian part of q as the hidden layers see it: drawn once per path between the first and the last.

    Every path has inputs of its own there, and to integrate V out row by row would take a covariance product
    per output: most of a deep model's time. The bound is the same. `factors` are the scales before whitening.
    """
    keys = jax.random.split(key, len(paths))

    def between(index):
        return 0 < index < len(paths) - 1

    drawn = (
        v + jnp.einsum("pij,kjp->kip", factor, normal(k, v.shape, v.dtype)) if between(index) else v
        for index, (v, factor, k) in enumerate(zip(paths, factors, keys, strict=True))
    )
    return tuple(drawn), tuple(None if between(index) else scale for index, scale in enumerate(scales))


def novi(
    num_data: int,
    steps: int,
    *,
    generator: Literal["smooth", "implicit"] = "smooth",
    critic: Literal["residual", "network"] = "residual",
    objective: Literal["kl", "fisher"] = "kl",
    bound: Bound = "expected_log",
    gaussian_part: Literal["integrated", "sampled"] = "integrated",
    last_layer: Literal["conjugate", "gradient"] = "conjugate",
    conjugate_rate: float = 0.2,
    score_matching: Literal["denoising", "implicit"] = "denoising",
    network: bool = True,
    covariance: Literal["full", "diagonal"] = "full",
    num_samples: int = 10,
    num_paths: int = 1,
    regularisation: float = 1.0,
    critic_steps: int = 2,
    critic_samples: int = 32,
    noise_dim: int = 32,
    width: int = 64,
    depth: int = 2,
    activation: str = "tanh",
    critic_activation: str | None = None,
    compact: float = 10.0,
    trace: Literal["hutchinson", "rademacher", "exact"] = "hutchinson",
    probes: int = 1,
    mean_rate: float = 0.02,
    scale_rate: float = 0.02,
    lower_rate: float = 5e-3,
    network_rate: float = 1e-3,
    critic_rate: float = 2e-3,
    model_rate: float | None = None,
    clip: tuple[float, float] | None = None,
    hidden_scale: float = 1e-2,
    final_scale: float = 1e-1,
    measure_every: int = 50,
    snapshots: bool | None = None,
    step_scale: float = 1.0,
) -> Inference:
    """NOVI for a training set of `num_data` rows, with a learning-rate schedule over `steps`.

    `num_samples` is the paper's K, `num_paths` its S, `regularisation` its lambda and `critic_steps` its n_c.
    `network=False` switches the neural part off and leaves a Gaussian q. `gaussian_part` says how the data
    term sees the Gaussian part of a smooth q: integrated out row by row, or in joint draws (the other critics
    and objectives know draws only). `last_layer="conjugate"` solves for the last layer's Gaussian where the
    likelihood is Gaussian (`inference.closed_form`; `conjugate_rate` is the weight of the newest minibatch in
    its sums), and is otherwise as `"gradient"`. With the Gaussian part integrated no step needs the
    posterior's score at a draw, so the Stein discrepancy is measured every `measure_every` steps only.
    `snapshots` keeps models from along the way as members of the predictive mixture (None: if rows are few).
    `PAPER` holds the paper's settings.
    """

    def rate(value, updates=1):
        return adam(step_scale * value, steps * updates)

    def model_optimiser(sums):
        """With the last layer solved for, few rows are soon overfitted."""
        slow = sums is not None and num_data <= SMALL_DATA
        return rate((0.01 if slow else 0.02) if model_rate is None else model_rate)

    critic_optimiser = rate(critic_rate, critic_steps)
    generator_optimiser = by_part(
        mean=rate(mean_rate),
        log_diagonal=rate(scale_rate),
        lower=rate(lower_rate),
        network=rate(network_rate),
    )
    neural = network or generator == "implicit"

    def trace_of(field, x, *, key):
        if trace == "exact":
            return stein.exact_trace(field, x)
        kind = "rademacher" if trace == "rademacher" else "gaussian"
        return stein.hutchinson_trace(field, x, probes=probes, kind=kind, key=key)

    def init(model, batch, *, key):
        generator_key, critic_key = jax.random.split(key)
        shape = {"width": width, "depth": depth, "activation": activation}
        sampler = make_generator(
            generator,
            model,
            shape if neural else None,
            noise_dim=noise_dim,
            covariance=covariance,
            compact=compact,
            hidden_scale=hidden_scale,
            final_scale=final_scale,
            key=generator_key,
        )
        dtype = model.layers[0].inducing.dtype
        opponent = None
        if neural or critic == "network":
            size = sum(m * p for m, p in model.inducing_shapes())
            shape["activation"] = critic_activation or activation
            opponent = mlp(size, size, **shape, output_scale=0.01, dtype=dtype, key=critic_key)
        sums = conjugate.empty(model) if closed_form and conjugate.is_conjugate(model) else None
        return NOVIState(
            model,
            sampler,
            opponent,
            model_optimiser(sums).init(model),
            generator_optimiser.init(sampler),
            critic_optimiser.init(opponent),
            sums,
            jnp.zeros((), dtype),
            jnp.zeros((), jnp.int32),
        )

    def log_joint(v, model, batch, key):
        """Per draw, with the data term alongside."""
        data = model.log_likelihood(v, batch, num_data, num_paths=num_paths, bound=bound, key=key)
        return data + model.log_prior(v), data

    def score_field(model, batch, key):
        """The posterior's score as a field over flat rows."""
        shapes = model.inducing_shapes()

        def score(flat):
            return jax.grad(lambda x: jnp.sum(log_joint(unflatten(x, shapes), model, batch, key)[0]))(flat)

        return score

    def white_score(opponent):
        """`r`, the model of the generator's score in white coordinates: a Gaussian's, corrected."""
        return (lambda w: -w) if opponent is None else (lambda w: opponent(w) - w)

    def residual_loss(opponent, sampler, key):
        draw_key, trace_key = jax.random.split(key)
        white, shift = sampler.white_draw(critic_samples, key=draw_key)
        if score_matching == "denoising" and shift is not None:
            return jnp.mean(jnp.sum((opponent(white) - shift) ** 2, axis=-1))
        losses = stein.implicit_score_matching(
            white_score(opponent), white, lambda field, x: trace_of(field, x, key=trace_key)
        )
        return jnp.mean(losses)

    def network_loss(opponent, sampler, model, batch, key):
        draw_key, path_key, trace_key = jax.random.split(key, 3)
        flat = flatten(sampler.sample(num_samples, key=draw_key))
        score = score_field(model, batch, path_key)(flat)
        discrepancy = stein.regularised_stein_discrepancy(
            lambda _: score,
            opponent,
            flat,
            regularisation,
            lambda field, x: trace_of(field, x, key=trace_key),
        )
        return -jnp.mean(discrepancy)

    def train_critic(state, batch, key) -> tuple[Any, Any]:
        opponent, opt_state = state.critic, state.critic_opt
        if opponent is None:
            return opponent, opt_state
        for step_key in jax.random.split(key, critic_steps):
            if critic == "residual":
                gradient = jax.grad(residual_loss)(opponent, state.generator, step_key)
            else:
                gradient = jax.grad(network_loss)(opponent, state.generator, state.model, batch, step_key)
            opponent, opt_state = descend(critic_optimiser, gradient, opt_state, opponent)
        return opponent, opt_state

    def critic_field(score, sampler, opponent):
        """`phi` over flat rows: the network itself, or Theorem 2's form with the modelled score in it."""
        if critic == "network":
            return opponent

        def own(flat):
            white = sampler.whiten(unflatten(flat, sampler.shapes))
            return flatten(sampler.score(white_score(opponent)(white)))

        return stein.optimal_critic(score, own, regularisation)

    def discrepancy(flat, model, batch, sampler, opponent, path_key, trace_key):
        """The RSD estimate as a function of the draws: what the `fisher` generator descends.

        The critic is a fixed field here (the envelope theorem): only with the trace, whose mean over q
        depends on q, is the gradient that of the Fisher divergence.
        """
        score = score_field(model, batch, path_key)
        values = stein.regularised_stein_discrepancy(
            score,
            critic_field(score, sampler, opponent),
            flat,
            regularisation,
            lambda field, x: trace_of(field, x, key=trace_key),
        )
        return jnp.mean(values)

    def integrated_gradients(state, opponent, batch, draw_key, path_key, noise_key):
        """Ascent directions with the Gaussian part of q integrated out.

        Given eps, q is Gaussian layer by layer, so the data term needs no draw of V, as in DSVI; what remains
        of the entropy, `H(w)`, has the gradient `-E[r(w) . dg]`. A last layer in closed form is solved, not
        climbed: model and hidden layers follow the bound with the best last layer in it.
        """
        hidden_key, _, between_key = jax.random.split(path_key, 3)  # the second is the likelihood's
        newest = 1.0  # the weight of this batch in the sums
        if batch.x.shape[0] < num_data:
            newest = jnp.maximum(conjugate_rate, 1.0 / (state.count + 1.0))

        def evidence_bound(model, sampler):
            shift = sampler.displacement(num_samples, key=draw_key)

            def gaussians(sampler):
                return sampler.colour(shift), model.whiten_scales(sampler.scales())

            centres, scales = gaussians(sampler)
            paths = tuple(jnp.repeat(v, num_paths, axis=0) for v in centres) if num_paths > 1 else centres
            seen = drawn_between(paths, sampler.scales(), scales, key=between_key)
            h, sums = model.hidden(batch.x, *seen, key=hidden_key), state.sums
            if sums is not None:
                last = jnp.repeat(unflatten(shift, sampler.shapes)[-1], num_paths, axis=0)
                sums, *best = conjugate.best_response(model, sums, h, last, batch, num_data, newest)
                sampler = sampler.with_last(*best)
                centres, scales = gaussians(sampler)
            options = {"num_paths": num_paths, "bound": bound, "scales": scales, "hidden": h}
            data = jnp.mean(model.log_likelihood(centres, batch, num_data, **options, key=path_key))
            prior = jnp.mean(model.log_prior(centres)) - 0.5 * sum(jnp.sum(c * c) for c in scales)
            white = jax.lax.stop_gradient(shift) + normal(noise_key, shift.shape, shift.dtype)
            push = jax.lax.stop_gradient(-white_score(opponent)(white))
            pushed = jnp.mean(jnp.sum(push * shift, axis=-1))
            entropy = shift.shape[-1] * NORMAL_ENTROPY + sum(jnp.sum(d) for d in sampler.log_diagonal)
            return data + prior + entropy + pushed - jax.lax.stop_gradient(pushed), (data, sampler, sums)

        (value, (data, sampler, sums)), gradients = jax.value_and_grad(
            evidence_bound, argnums=(0, 1), has_aux=True
        )(state.model, state.generator)
        divergence = jax.lax.cond(
            state.count % measure_every == 0,
            lambda: fisher_divergence(state, opponent, batch, noise_key),
            lambda: state.divergence,
        )
        info = {"loss": -value / num_data, "expected_log_likelihood": data / num_data}
        return *gradients, info, divergence, sampler, sums

    def fisher_divergence(state, opponent, batch, key):
        """`E_q |score_p - score_q|^2` from joint draws, with the critic's model of q's score."""
        draw_key, path_key = jax.random.split(key)
        sampler = state.generator
        white, _ = sampler.white_draw(num_samples, key=draw_key)
        score = score_field(state.model, batch, path_key)(flatten(sampler.colour(white)))
        own = flatten(sampler.score(white_score(opponent)(white)))
        return jnp.mean(jnp.sum((score - own) ** 2, axis=-1))

    def sampled_gradients(state, opponent, batch, draw_key, path_key, trace_key):
        """Ascent directions from joint draws of V: one pass through the likelihood serves both players."""
        model, sampler = state.model, state.generator

        def draw(sampler):
            white, _ = sampler.white_draw(num_samples, key=draw_key)
            return sampler.colour(white), white

        v, pull_back, white = jax.vjp(draw, sampler, has_aux=True)

        def objective_of(v, model):
            total, data = log_joint(v, model, batch, path_key)
            return jnp.mean(total), jnp.mean(data)

        (joint, data), (v_gradient, model_gradient) = jax.value_and_grad(
            objective_of, argnums=(0, 1), has_aux=True
        )(v, model)

        if objective == "kl":
            if critic == "network":
                direction = unflatten(2.0 * regularisation * opponent(flatten(v)), sampler.shapes)
            else:
                own = sampler.score(white_score(opponent)(white))
                direction = jax.tree.map(lambda g, r: num_samples * g - r, v_gradient, own)
            ascent = jax.tree.map(lambda d: d / num_samples, direction)
            divergence = jnp.mean(jnp.sum(flatten(direction) ** 2, axis=-1))
        else:
            frozen = jax.lax.stop_gradient(sampler)
            rsd, slope = jax.value_and_grad(discrepancy)(
                flatten(v), model, batch, frozen, opponent, path_key, trace_key
            )
            ascent = unflatten(-slope, sampler.shapes)
            divergence = 4.0 * regularisation * rsd
        (generator_gradient,) = pull_back(ascent)
        info = {"loss": -joint / num_data, "expected_log_likelihood": data / num_data}
        return model_gradient, generator_gradient, info, divergence, sampler, None

    integrated = (generator, critic, objective, gaussian_part) == ("smooth", "residual", "kl", "integrated")
    closed_form = integrated and (last_layer, bound, covariance) == ("conjugate", "expected_log", "full")
    gradients = integrated_gradients if integrated else sampled_gradients

    def step(state, batch: Batch, *, key):
        critic_key, *keys = jax.random.split(key, 4)
        opponent, critic_opt = train_critic(state, batch, critic_key)
        model_gradient, generator_gradient, info, divergence, sampler, sums = gradients(
            state, opponent, batch, *keys
        )
        sampler, generator_opt = ascend(generator_optimiser, generator_gradient, state.generator_opt, sampler)
        model, model_opt = ascend(model_optimiser(state.sums), model_gradient, state.model_opt, state.model)
        if clip is not None:
            model = clip_hyperparameters(model, *clip)
        info |= {
            "rsd": divergence / (4.0 * regularisation),
            "fisher_divergence": divergence,
            "generator_gradient_norm": optax.tree.norm(generator_gradient),
            "model_gradient_norm": optax.tree.norm(model_gradient),
        }
        if isinstance(model, DGP) and isinstance(model.likelihood, GaussianNoise):
            info["noise"] = jnp.sqrt(jnp.mean(model.likelihood.variance))
        optimisers = model_opt, generator_opt, critic_opt
        return NOVIState(model, sampler, opponent, *optimisers, sums, divergence, state.count + 1), info

    method = Inference(init, step, lambda state: Fitted(state.model, state.generator))
    few = num_data <= SMALL_DATA
    return with_snapshots(method, steps) if snapshots or (snapshots is None and few) else method
