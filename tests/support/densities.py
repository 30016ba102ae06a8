"""Densities that NOVI's parts can be tried on, and games made of those parts."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from novidgp.inference import Inference
from novidgp.inference.novi.critics import ScoreModel, denoising_loss
from novidgp.inference.novi.game import Players, game
from novidgp.inference.novi.targets import AbstractTarget
from novidgp.inference.optim import adam, adam_per_field
from novidgp.numerics import stein
from novidgp.numerics.nets import NetworkShape, mlp
from novidgp.posteriors.generators import smooth_generator

MEAN = np.array([1.0, -1.0, 0.5])
_ROOT = np.array([[0.9, 0.0, 0.0], [0.6, 0.5, 0.0], [-0.4, 0.3, 0.6]])
COVARIANCE = _ROOT @ _ROOT.T  # correlations of 0.77, -0.51 and -0.15
PRECISION = np.linalg.inv(COVARIANCE)
NO_MODEL = np.zeros((), np.float32)
"""In place of a model: a density has no hyper-parameters."""


def correlated(x):
    """The log density of N(MEAN, COVARIANCE), up to a constant."""
    offset = x - jnp.asarray(MEAN, x.dtype)
    return -0.5 * offset @ jnp.asarray(PRECISION, x.dtype) @ offset


class Density(AbstractTarget):
    """A 'posterior' over one layer of `size` inducing outputs with a given log density, without model and
    data."""

    log_density: Callable = eqx.field(static=True)
    size: int = eqx.field(static=True)
    num_samples: int = eqx.field(static=True, default=10)
    num_data: int = eqx.field(static=True, default=1)

    def shapes(self, model):
        return ((self.size, 1),)

    def log_joint(self, v, model, batch, *, key):
        values = jax.vmap(self.log_density)(v[0][..., 0])
        return values, values


def exact_trace(field, x, *, key):
    """The exact trace, as a critic's loss asks for one."""
    return stein.exact_trace(field, x)


def score_game(
    ascent,
    shape: NetworkShape | None,
    steps: int,
    *,
    noise_dim: int = 4,
    size: int | None = None,
    loss=denoising_loss,
    critic_steps: int = 2,
    critic_samples: int = 32,
    initial_std: float = 0.1,
    rates: dict[str, float] | None = None,
) -> Inference:
    """A game of a smooth generator and a score model under any `ascent`; a Gaussian alone where `shape` is
    None.

    Hyper-parameters do not move. `size` is the width of a `Density`; a DGP has its own.
    """
    learning = {"mean": 0.02, "scale": 0.02, "lower": 0.02, "network": 1e-3, "critic": 2e-3} | (rates or {})
    optimisers = Players(
        adam(0.0, steps),
        adam_per_field(
            steps,
            mean=learning["mean"],
            log_diagonal=learning["scale"],
            lower=learning["lower"],
            network=learning["network"],
        ),
        adam(learning["critic"], steps * critic_steps),
    )

    def start(model, *, key):
        generator_key, critic_key = jax.random.split(key)
        outputs = model.inducing_start() if size is None else (jnp.zeros((size, 1)),)
        stds = {"initial_hidden_std": initial_std, "initial_final_std": initial_std}
        generator = smooth_generator(outputs, shape, noise_dim=noise_dim, **stds, key=generator_key)
        critic = None
        if shape is not None:
            width, dtype = sum(v.size for v in outputs), outputs[0].dtype
            critic = ScoreModel(
                mlp(width, width, **shape._asdict(), output_scale=0.01, dtype=dtype, key=critic_key)
            )
        return Players(model, generator, critic), None

    def critic_loss(critic, players, memory, batch, *, key):
        return loss(critic, players.generator, num_samples=critic_samples, key=key), memory

    return game(start, critic_loss, ascent, lambda memory: optimisers, critic_steps=critic_steps)


def run_density(inference: Inference, steps: int, *, key):
    """Players and history after `steps` steps on a density."""
    advance = partial(inference.step, batch=None)

    def fit(key):
        init_key, step_key = jax.random.split(key)
        state = inference.init(NO_MODEL, None, key=init_key)
        keys = jax.random.split(step_key, steps)
        return jax.lax.scan(lambda state, key: advance(state, key=key), state, keys)

    state, info = jax.jit(fit)(key)
    return state.players, info
