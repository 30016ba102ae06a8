"""A small posterior that is no Gaussian: a step with nothing measured where it rises, seen by three methods.

Two layers with seven inducing points each and fixed hyper-parameters, so that all three infer the same
posterior. The data do not say where the step is nor which layer makes it: the posterior is wide, skewed and
correlated between the layers, which no Gaussian with independent layers can be.
"""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from novidgp.inference import NOVI, SGHMC, Frozen, Method
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import DGP, Batch
from novidgp.plots import posterior_slices
from novidgp.training.loop import fit

NUM_POINTS = 7
METHODS: dict[str, tuple[Method, int]] = {
    "long SGHMC run": (
        SGHMC(
            num_chains=50,
            num_draws=80,
            burn_in=0.2,
            bound="expected_log",  # the bound of the others: the same posterior
            num_paths=8,
            step_size=0.02,
        ),
        10,
    ),
    "NOVI": (
        NOVI(
            num_samples=64,
            noise_dim=8,
            lower_rate=0.02,
            last_layer="gradient",
            network_rate=3e-3,
            critic_rate=3e-3,
            critic_steps=4,
            critic_samples=128,
        ),
        4,
    ),
    "best Gaussian": (NOVI(network=False, num_samples=64, lower_rate=0.02, last_layer="gradient"), 2),
}
"""Methods, and how many times the steps of `draws` they take."""


def problem() -> tuple[DGP, Batch]:
    """Twelve points of a step, and a model for them."""
    x = np.concatenate([np.linspace(-1.5, -0.5, 6), np.linspace(0.5, 1.5, 6)])[:, None]
    config = ModelConfig(
        num_inducing=NUM_POINTS, hidden_dim=1, kernel="rbf", noise=0.2, lengthscale=0.7, hidden_variance=1.0
    )
    points = jnp.linspace(-1.5, 1.5, NUM_POINTS, dtype=jnp.float32)[None, :, None]
    model = build_model(config, x, key=jax.random.key(0))
    model = eqx.tree_at(lambda m: [layer.inducing for layer in m.layers], model, [points, points])
    return model, Batch(jnp.asarray(x, jnp.float32), jnp.asarray(np.sign(x), jnp.float32))


def draws(
    steps: int, seed: int, methods: Mapping[str, tuple[Method, int]] = METHODS, count: int = 4000
) -> dict[str, np.ndarray]:
    """`(count, d)` draws of all inducing outputs from every method."""
    model, data = problem()
    key = jax.random.key(seed)
    rows = {}
    for title, (method, times) in methods.items():
        result = fit(model, Frozen(method), data, steps=times * steps, key=key, chunk=500)
        v = result.fitted.posterior.sample(count, key=jax.random.fold_in(key, 1))
        rows[title] = np.concatenate([np.asarray(w).reshape(count, -1) for w in v], axis=1)
    return rows


def figure(rows: dict[str, np.ndarray]) -> Figure:
    """The leftmost inducing output of either layer."""
    labels = ["hidden layer, leftmost inducing output", "last layer, leftmost inducing output"]
    return posterior_slices(rows, 0, NUM_POINTS, labels)
