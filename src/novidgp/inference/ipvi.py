"""Implicit posterior variational inference (Yu et al. 2019): a generator and a discriminator in a game.

A generator `V = g(eps)` is the posterior. Its divergence from the prior has no closed form; a discriminator T
learns the log density ratio by telling draws of the generator (first) from reference draws (second),

    T* = argmin E_q[softplus(-T)] + E_r[softplus(T)] = log q - log r,

and generator and hyper-parameters ascend `E_q[log p(y | V) + log p(V) - log r(V) - T(V)]`: NOVI's game with a
discriminator for a critic.

The paper's reference is the prior (`contrast="prior"`). In a thousand dimensions q and the prior lie hundreds
of nats apart: any discriminator tells them apart at once, its loss is flat and its gradient says little. By
default (`contrast="adaptive"`, Mescheder et al. 2017) the reference is therefore the Gaussian with q's own
running moments: its part of the ratio is exact, and T learns only what is not Gaussian in q.
"""

import dataclasses
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from novidgp.inference.base import Method
from novidgp.inference.novi.game import Ascent, Players, game
from novidgp.inference.optim import adam, adam_per_field
from novidgp.inference.options import option, refuse_idle
from novidgp.model.dgp import Bound
from novidgp.numerics.nets import Activation, NetworkShape, mlp
from novidgp.numerics.random import normal
from novidgp.posteriors.generators import Flat, flatten, implicit_generator, smooth_generator

_MOMENT_DRAWS = 256
Discriminator = Callable[[Flat], Float[Array, "k 1"]]


class Reference(NamedTuple):
    """Mean and variance of the generator's draws, in its base coordinates."""

    mean: Float[Array, " dim"]
    variance: Float[Array, " dim"]

    def standardise(self, base: Flat) -> Flat:
        """Draws in units of the reference."""
        return (base - self.mean) / jnp.sqrt(self.variance)

    def follow(self, base: Flat, weight: float) -> "Reference":
        """The moments, moved towards those of new draws by `weight`."""
        spread = jnp.mean((base - self.mean) ** 2, axis=0)
        return Reference(
            self.mean + weight * (jnp.mean(base, axis=0) - self.mean),
            self.variance + weight * (spread - self.variance),
        )


def logistic_loss(discriminator: Discriminator, first: Flat, second: Flat) -> Float[Array, ""]:
    """Minimal where the discriminator is the log ratio of the two densities."""
    return jnp.mean(jax.nn.softplus(-discriminator(first))) + jnp.mean(jax.nn.softplus(discriminator(second)))


@final
@dataclasses.dataclass(frozen=True)
class IPVI(Method):
    """Implicit posterior variational inference.

    `generator` is NOVI's: `smooth` is a network's displacement of a Gaussian, whose Gaussian part the data
    term integrates out; `implicit` is the paper's network alone, bounded by `output_limit`.
    """

    name: ClassVar[str] = "ipvi"
    generator: Literal["smooth", "implicit"] = "smooth"
    contrast: Literal["adaptive", "prior"] = "adaptive"
    bound: Bound = "expected_log"
    num_samples: int = 10
    num_paths: int = 1
    discriminator_steps: int = 2
    discriminator_samples: int = 32
    noise_dim: int = 32
    width: int = 64
    depth: int = option(2, least=0)
    activation: Activation = "tanh"
    output_limit: float = 10.0
    mean_rate: float = 0.02
    scale_rate: float = 0.02
    lower_rate: float = 5e-3
    network_rate: float = 1e-3
    discriminator_rate: float = 2e-3
    reference_rate: float = option(0.05, most=1.0)
    model_rate: float = 0.02
    initial_hidden_std: float = 1e-2
    initial_final_std: float = 1e-1

    def __post_init__(self):
        super().__post_init__()
        if self.generator == "implicit":
            gaussian = ("mean_rate", "scale_rate", "lower_rate", "initial_hidden_std", "initial_final_std")
            refuse_idle(self, gaussian, "generator='implicit'")
        else:
            refuse_idle(self, ("output_limit",), "generator='smooth'")
        if self.contrast == "prior":
            refuse_idle(self, ("reference_rate",), "contrast='prior'")

    def start(self, model, *, key):
        """The players, and the first moments of the generator's draws."""
        generator_key, discriminator_key, draw_key = jax.random.split(key, 3)
        shape = NetworkShape(self.width, self.depth, self.activation)
        if self.generator == "smooth":
            generator = smooth_generator(
                model.inducing_start(),
                shape,
                noise_dim=self.noise_dim,
                initial_hidden_std=self.initial_hidden_std,
                initial_final_std=self.initial_final_std,
                key=generator_key,
            )
        else:
            generator = implicit_generator(
                model.inducing_shapes(),
                shape,
                noise_dim=self.noise_dim,
                output_limit=self.output_limit,
                dtype=model.dtype,
                key=generator_key,
            )
        base, _ = generator.sample_base(_MOMENT_DRAWS, key=draw_key)
        discriminator = mlp(
            base.shape[1], 1, **shape._asdict(), output_scale=0.01, dtype=base.dtype, key=discriminator_key
        )
        memory = Reference(jnp.mean(base, axis=0), jnp.var(base, axis=0))
        return Players(model, generator, discriminator), memory

    def discriminator_loss(self, critic, players, memory, batch, *, key):
        """The logistic loss on fresh draws of both sides, and the reference that has followed them."""
        draw_key, noise_key = jax.random.split(key)
        base, _ = players.generator.sample_base(self.discriminator_samples, key=draw_key)
        if self.contrast == "adaptive":
            memory = memory.follow(base, self.reference_rate)
            first = memory.standardise(base)
        else:
            first = flatten(players.model.white(players.generator.to_outputs(base)))
        second = normal(noise_key, first.shape, first.dtype)
        return logistic_loss(critic, first, second), memory

    def divergence(self, model, generator, base, shift, discriminator, reference):
        """`log q - log p` at every draw, with the discriminator held fixed."""
        if self.contrast == "prior":
            return discriminator(flatten(model.white(generator.to_outputs(base))))[:, 0]
        units = reference.standardise(base)
        log_density = discriminator(units)[:, 0] - 0.5 * jnp.sum(
            units**2 + jnp.log(2.0 * jnp.pi * reference.variance), axis=-1
        )
        if self.generator == "implicit":
            return log_density - model.log_prior(generator.to_outputs(base))
        spread = 0.5 * sum(jnp.sum(c * c) for c in model.whiten_scales(generator.scales()))
        prior = model.log_prior(generator.to_outputs(shift)) - spread
        return log_density - sum(jnp.sum(d) for d in generator.log_diagonal) - prior

    def algorithm(self, num_data, steps, *, step_scale=1.0):
        def rate(value, updates=1):
            return adam(step_scale * value, steps * updates)

        optimisers = Players(
            rate(self.model_rate),
            adam_per_field(
                steps,
                mean=step_scale * self.mean_rate,
                log_diagonal=step_scale * self.scale_rate,
                lower=step_scale * self.lower_rate,
                network=step_scale * self.network_rate,
            ),
            rate(self.discriminator_rate, self.discriminator_steps),
        )

        def ascent(players, memory, batch, *, keys):
            def evidence_lower_bound(model, generator):
                base, shift = generator.sample_base(self.num_samples, key=keys.draws)
                centres, scales = generator.to_outputs(base), None
                if shift is not None:
                    centres, scales = generator.to_outputs(shift), model.whiten_scales(generator.scales())
                options = {"num_paths": self.num_paths, "bound": self.bound, "scales": scales}
                data = jnp.mean(model.log_likelihood(centres, batch, num_data, key=keys.paths, **options))
                kl = jnp.mean(self.divergence(model, generator, base, shift, players.critic, memory))
                return data - kl, (data, kl)

            (elbo, (data, kl)), gradients = jax.value_and_grad(
                evidence_lower_bound, argnums=(0, 1), has_aux=True
            )(players.model, players.generator)
            info = {
                "loss": -elbo / num_data,
                "expected_log_likelihood": data / num_data,
                "divergence": kl,
            }
            return Ascent(gradients[0], gradients[1], players.generator, memory, info)

        return game(
            self.start,
            self.discriminator_loss,
            ascent,
            lambda memory: optimisers,
            critic_steps=self.discriminator_steps,
        )
