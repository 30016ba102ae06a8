"""Implicit posterior variational inference (Yu et al. 2019): a generator and a discriminator in a game.

A generator `V = g(eps)` is the posterior. Its divergence from the prior has no closed form; a discriminator T
learns the log density ratio by telling draws of the generator (first) from reference draws (second),

    T* = argmin E_q[softplus(-T)] + E_r[softplus(T)] = log q - log r,

and generator and hyper-parameters ascend `E_q[log p(y | V) + log p(V) - log r(V) - T(V)]`, in turns.

The paper's reference is the prior (`contrast="prior"`). In a thousand dimensions q and the prior lie hundreds
of nats apart: any discriminator tells them apart at once, its loss is flat and its gradient says little. By
default (`contrast="adaptive"`, Mescheder et al. 2017) the reference is therefore the Gaussian with q's own
running moments: its part of the ratio is exact, and T learns only what is not Gaussian in q.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from novidgp.inference.base import Fitted, Inference, adam, ascend, by_part, descend
from novidgp.model.dgp import DGP, Bound
from novidgp.numerics.nets import MLP, mlp
from novidgp.numerics.random import normal
from novidgp.posteriors.generators import Implicit, Smooth, flatten, make_generator

Flat = Float[Array, "k dim"]


class Reference(NamedTuple):
    """Mean and variance of the generator's draws, in its own (white) coordinates."""

    mean: Float[Array, " dim"]
    variance: Float[Array, " dim"]

    def standardise(self, white: Flat) -> Flat:
        """Draws in units of the reference."""
        return (white - self.mean) / jnp.sqrt(self.variance)

    def follow(self, white: Flat, rate: float) -> "Reference":
        """Moments that have moved towards those of new draws."""
        spread = jnp.mean((white - self.mean) ** 2, axis=0)
        return Reference(
            self.mean + rate * (jnp.mean(white, axis=0) - self.mean),
            self.variance + rate * (spread - self.variance),
        )


class IPVIState(NamedTuple):
    """The players and their optimisers, and what the discriminator compares with."""

    model: DGP
    generator: Implicit | Smooth
    discriminator: MLP
    reference: Reference
    model_opt: optax.OptState
    generator_opt: optax.OptState
    discriminator_opt: optax.OptState


def logistic_loss(discriminator, first: Flat, second: Flat):
    """Minimal where the discriminator is the log ratio of the two densities."""
    return jnp.mean(jax.nn.softplus(-discriminator(first))) + jnp.mean(jax.nn.softplus(discriminator(second)))


def ipvi(
    num_data: int,
    steps: int,
    *,
    generator: Literal["smooth", "implicit"] = "smooth",
    contrast: Literal["adaptive", "prior"] = "adaptive",
    bound: Bound = "expected_log",
    num_samples: int = 10,
    num_paths: int = 1,
    discriminator_steps: int = 2,
    discriminator_samples: int = 32,
    noise_dim: int = 32,
    width: int = 64,
    depth: int = 2,
    activation: str = "tanh",
    compact: float = 10.0,
    mean_rate: float = 0.02,
    scale_rate: float = 0.02,
    lower_rate: float = 5e-3,
    network_rate: float = 1e-3,
    discriminator_rate: float = 2e-3,
    reference_rate: float = 0.05,
    model_rate: float = 0.02,
    hidden_scale: float = 1e-2,
    final_scale: float = 1e-1,
    step_scale: float = 1.0,
) -> Inference:
    """IPVI for a training set of `num_data` rows, with a learning-rate schedule over `steps`.

    `generator` is NOVI's: `smooth` is a network's displacement of a Gaussian, whose Gaussian part the data
    term integrates out; `implicit` is the paper's network alone, bounded by `compact`.
    """

    def rate(value, updates=1):
        return adam(step_scale * value, steps * updates)

    model_optimiser, discriminator_optimiser = rate(model_rate), rate(discriminator_rate, discriminator_steps)
    generator_optimiser = by_part(
        mean=rate(mean_rate),
        log_diagonal=rate(scale_rate),
        lower=rate(lower_rate),
        network=rate(network_rate),
    )

    def init(model, batch, *, key):
        generator_key, discriminator_key, draw_key = jax.random.split(key, 3)
        shape = {"width": width, "depth": depth, "activation": activation}
        sampler = make_generator(
            generator,
            model,
            shape,
            noise_dim=noise_dim,
            compact=compact,
            hidden_scale=hidden_scale,
            final_scale=final_scale,
            key=generator_key,
        )
        white, _ = sampler.white_draw(256, key=draw_key)
        opponent = mlp(
            white.shape[1], 1, **shape, output_scale=0.01, dtype=white.dtype, key=discriminator_key
        )
        return IPVIState(
            model,
            sampler,
            opponent,
            Reference(jnp.mean(white, axis=0), jnp.var(white, axis=0)),
            model_optimiser.init(model),
            generator_optimiser.init(sampler),
            discriminator_optimiser.init(opponent),
        )

    def train_discriminator(state, key):
        """Its best response to the generator, on fresh draws of both sides."""
        opponent, opt_state, reference = state.discriminator, state.discriminator_opt, state.reference
        for step_key in jax.random.split(key, discriminator_steps):
            draw_key, noise_key = jax.random.split(step_key)
            white, _ = state.generator.white_draw(discriminator_samples, key=draw_key)
            if contrast == "adaptive":
                reference = reference.follow(white, reference_rate)
                first, second = reference.standardise(white), normal(noise_key, white.shape, white.dtype)
            else:
                first = flatten(state.model.white(state.generator.colour(white)))
                second = normal(noise_key, first.shape, first.dtype)
            loss, gradient = jax.value_and_grad(logistic_loss)(opponent, first, second)
            opponent, opt_state = descend(discriminator_optimiser, gradient, opt_state, opponent)
        return opponent, opt_state, reference, loss

    def divergence(model, sampler, white, shift, opponent, reference):
        """`log q - log p` at every draw, with the discriminator held fixed."""
        if contrast == "prior":
            return opponent(flatten(model.white(sampler.colour(white))))[:, 0]
        units = reference.standardise(white)
        log_density = opponent(units)[:, 0] - 0.5 * jnp.sum(
            units**2 + jnp.log(2.0 * jnp.pi * reference.variance), axis=-1
        )
        if generator == "implicit":
            return log_density - model.log_prior(sampler.colour(white))
        spread = 0.5 * sum(jnp.sum(c * c) for c in model.whiten_scales(sampler.scales()))
        prior = model.log_prior(sampler.colour(shift)) - spread
        return log_density - sum(jnp.sum(d) for d in sampler.log_diagonal) - prior

    def step(state, batch, *, key):
        discriminator_key, draw_key, path_key = jax.random.split(key, 3)
        opponent, discriminator_opt, reference, logistic = train_discriminator(state, discriminator_key)

        def objective(model, sampler):
            white, shift = sampler.white_draw(num_samples, key=draw_key)
            centres, scales = sampler.colour(white), None
            if generator == "smooth":
                centres, scales = sampler.colour(shift), model.whiten_scales(sampler.scales())
            options = {"num_paths": num_paths, "bound": bound, "scales": scales}
            data = jnp.mean(model.log_likelihood(centres, batch, num_data, key=path_key, **options))
            kl = jnp.mean(divergence(model, sampler, white, shift, opponent, reference))
            return data - kl, (data, kl)

        (value, (data, kl)), (model_gradient, generator_gradient) = jax.value_and_grad(
            objective, argnums=(0, 1), has_aux=True
        )(state.model, state.generator)
        sampler, generator_opt = ascend(
            generator_optimiser, generator_gradient, state.generator_opt, state.generator
        )
        model, model_opt = ascend(model_optimiser, model_gradient, state.model_opt, state.model)
        info = {
            "loss": -value / num_data,
            "expected_log_likelihood": data / num_data,
            "divergence": kl,
            "discriminator_loss": logistic,
        }
        return IPVIState(
            model, sampler, opponent, reference, model_opt, generator_opt, discriminator_opt
        ), info

    return Inference(init, step, lambda state: Fitted(state.model, state.generator))
