"""Stochastic-gradient Hamiltonian Monte Carlo (Havasi et al. 2018): chains of V, and EM for the rest.

With `U = -log p(V, y)` and a gradient of it that is right on average, every step is

    p <- (1 - friction) p - h^2 grad U + N(0, 2 friction h^2 - h^4 C),      V <- V + p,

where `h^2 = step_size^2 / rms(grad U)`, element by element, comes from running moments of the gradient whose
memory adapts to its signal (Springenberg et al. 2016), and `C` is the variance of the gradient's noise.
Momentum persists. The moments move during burn-in only, so that what is kept comes from one Markov chain.

All chains go through the model in one pass. During burn-in the hyper-parameters ascend `log p(y, V)` at the
chains' states and at states drawn from a moving window of the past (Monte-Carlo EM); afterwards they rest,
and the window fills with the draws that are the posterior.
"""

import dataclasses
from typing import ClassVar, NamedTuple, final

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from novidgp.inference.base import Inference, Method
from novidgp.inference.optim import adam, ascend, norm
from novidgp.inference.options import option
from novidgp.model.dgp import DGP, Bound, Inducing
from novidgp.numerics.random import normal
from novidgp.posteriors.draws import Empirical
from novidgp.posteriors.fitted import Fitted


class GradientMoments(NamedTuple):
    """Running moments of a gradient, shared by all chains; `memory` is their window, in steps."""

    memory: Float[Array, "..."]
    mean: Float[Array, "..."]
    square: Float[Array, "..."]


def no_moments(position: Float[Array, "c ..."]) -> GradientMoments:
    """Where `adapt` starts. Without memory the first gradient replaces the moments."""
    zero = jnp.zeros_like(position[0])
    return GradientMoments(zero, zero, zero)


def adapt(moments: GradientMoments, gradient: Float[Array, "c ..."]) -> GradientMoments:
    """The moments with one more gradient of every chain; the memory grows where noise outweighs signal."""
    memory, mean, square = moments
    rate = 1.0 / (memory + 1.0)
    return GradientMoments(
        1.0 + memory * (1.0 - mean * mean / (square + 1e-16)),
        mean + rate * (jnp.mean(gradient, axis=0) - mean),
        square + rate * (jnp.mean(gradient**2, axis=0) - square),
    )


def move(
    position: Float[Array, "c ..."],
    momentum: Float[Array, "c ..."],
    gradient: Float[Array, "c ..."],
    moments: GradientMoments,
    *,
    step_size: float | Float[Array, ""],
    friction: float,
    noise_share: float = 0.0,
    key: PRNGKeyArray,
) -> tuple[Float[Array, "c ..."], Float[Array, "c ..."]]:
    """One step of every chain down the potential's `gradient`: `(position, momentum)`.

    `noise_share` is the part of the gradient's mean square that is noise: that much less noise is injected.
    The `1 +` is the prior's curvature, a lower bound on the posterior's.
    """
    square_step = step_size**2 / jnp.sqrt(1.0 + moments.square)
    variance = jnp.maximum(2.0 * friction * square_step - noise_share * square_step**2 * moments.square, 0.0)
    noise = jnp.sqrt(variance) * normal(key, position.shape, position.dtype)
    momentum = (1.0 - friction) * momentum - square_step * gradient + noise
    return position + momentum, momentum


class SGHMCState(NamedTuple):
    """Chains `(c, m, p)` per layer, the window of their past, and the hyper-parameters' optimiser."""

    model: DGP
    position: Inducing
    momentum: Inducing
    moments: tuple[GradientMoments, ...]
    window: Empirical
    model_opt: optax.OptState
    step: Int[Array, ""]


@final
@dataclasses.dataclass(frozen=True)
class SGHMC(Method):
    """Stochastic-gradient Hamiltonian Monte Carlo.

    The share `burn_in` of the steps adapts the sampler and the hyper-parameters. From the rest, `num_draws`
    states of each of `num_chains` chains are kept at equal distances. `window_samples` is the number of past
    states that the hyper-parameters see beside the present ones.
    """

    name: ClassVar[str] = "sghmc"
    num_chains: int = 10
    num_draws: int = 20
    burn_in: float = option(0.7, most=1.0)
    window_samples: int = option(0, least=0)
    bound: Bound = "log_expected"
    num_paths: int = 1
    step_size: float = 0.05
    friction: float = option(0.05, most=1.0)
    noise_share: float = option(0.0, most=1.0)
    model_rate: float = 0.02

    def algorithm(self, num_data, steps, *, step_scale=1.0):
        thin = jnp.maximum(jnp.round((1.0 - self.burn_in) * steps / self.num_draws), 1).astype(jnp.int32)
        warm = jnp.maximum(steps - thin * self.num_draws, steps // 2).astype(jnp.int32)
        optimiser = adam(step_scale * self.model_rate, warm)

        def init(model, batch, *, key):
            position = tuple(jnp.broadcast_to(v, (self.num_chains, *v.shape)) for v in model.inducing_start())
            window = tuple(
                jnp.broadcast_to(v[:, None], (self.num_chains, self.num_draws, *v.shape[1:]))
                for v in position
            )
            return SGHMCState(
                model,
                position,
                jax.tree.map(jnp.zeros_like, position),
                tuple(no_moments(v) for v in position),
                Empirical(window),
                optimiser.init(model),
                jnp.zeros((), jnp.int32),
            )

        def log_joint(v, model, batch, key):
            values = model.log_joint(v, batch, num_data, num_paths=self.num_paths, bound=self.bound, key=key)
            return jnp.sum(values), values

        def step(state, batch, *, key):
            window_key, path_key, *keys = jax.random.split(key, 2 + len(state.position))
            burning = state.step < warm
            v = state.position
            if self.window_samples:
                past = state.window.sample(self.window_samples, key=window_key)
                v = jax.tree.map(lambda now, then: jnp.concatenate([now, then]), v, past)
            (_, values), (ascent, model_gradient) = jax.value_and_grad(
                log_joint, argnums=(0, 1), has_aux=True
            )(v, state.model, batch, path_key)
            model_gradient = jax.tree.map(lambda g: g / len(values), model_gradient)
            model, model_opt = ascend(optimiser, model_gradient, state.model_opt, state.model)

            chains = []
            for position, momentum, moments, slope, layer_key in zip(
                state.position, state.momentum, state.moments, ascent, keys, strict=True
            ):
                gradient = -slope[: self.num_chains]
                moments = jax.tree.map(
                    lambda new, old: jnp.where(burning, new, old), adapt(moments, gradient), moments
                )
                moved = move(
                    position,
                    momentum,
                    gradient,
                    moments,
                    step_size=step_scale * self.step_size,
                    friction=self.friction,
                    noise_share=self.noise_share,
                    key=layer_key,
                )
                chains.append((*moved, moments))
            position, momentum, moments = zip(*chains, strict=True)
            window = keep(state.window, position, state.step + 1)
            info = {
                "loss": -jnp.mean(values[: self.num_chains]) / num_data,
                "model_gradient_norm": norm(model_gradient),
            }
            return SGHMCState(model, position, momentum, moments, window, model_opt, state.step + 1), info

        def keep(window, position, done):
            """Every `thin` steps the states overwrite the window's oldest: at the end they are in order."""
            due = (done - warm) % thin == 0
            slot = ((done - warm) // thin - 1) % self.num_draws

            def put(past, now):
                return jnp.where(due, past.at[:, slot].set(now), past)

            return Empirical(tuple(put(p, v) for p, v in zip(window.draws, position, strict=True)))

        def fitted(state):
            """The draws kept since burn-in, and the chains' present states in place of those still to
            come."""
            ready = jnp.arange(self.num_draws)[:, None, None] < (state.step - warm) // thin

            def fill(past, now):
                return jnp.where(ready, past, now[:, None])

            draws = (fill(p, v) for p, v in zip(state.window.draws, state.position, strict=True))
            return Fitted(state.model, Empirical(tuple(draws)))

        return Inference(init, step, fitted)
