"""The demo's picture of a posterior: a step with nothing measured where it rises, seen by three methods.

Two layers, seven inducing points each, and hyper-parameters that stay where they are, so that all three infer
the same thing. Where the step is, and which layer makes it, the data leave open: the posterior is wide,
skewed and correlated between the layers, which no Gaussian with independent layers can be.
"""

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from novidgp.inference import Inference, make_inference
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import DGP, Batch
from novidgp.plots import posterior_slices
from novidgp.training.loop import train

NUM_POINTS = 7
_NEURAL = {
    "num_samples": 64,
    "noise_dim": 8,
    "lower_rate": 0.02,
    "last_layer": "gradient",
    "snapshots": False,
}
METHODS: dict[str, tuple[str, int, dict]] = {
    "long SGHMC run": (
        "sghmc",
        10,
        {
            "num_chains": 50,
            "num_draws": 80,
            "burn_in": 0.2,
            "bound": "expected_log",  # the bound of the others: the same posterior
            "num_paths": 8,
            "step_size": 0.02,
        },
    ),
    "NOVI": (
        "novi",
        4,
        _NEURAL | {"network_rate": 3e-3, "critic_rate": 3e-3, "critic_steps": 4, "critic_samples": 128},
    ),
    "best Gaussian": ("novi", 2, _NEURAL | {"network": False}),
}


def problem() -> tuple[DGP, Batch]:
    """Twelve points of a step, and a model for them."""
    x = np.concatenate([np.linspace(-1.5, -0.5, 6), np.linspace(0.5, 1.5, 6)])[:, None]
    config = ModelConfig(
        num_inducing=NUM_POINTS, hidden_dim=1, kernel="rbf", noise=0.2, lengthscale=0.7, hidden_variance=1.0
    )
    points = jnp.linspace(-1.5, 1.5, NUM_POINTS, dtype=jnp.float32)[None, :, None]
    model = build_model(config, x, seed=0)
    model = eqx.tree_at(lambda m: [layer.inducing for layer in m.layers], model, [points, points])
    return model, Batch(jnp.asarray(x, jnp.float32), jnp.asarray(np.sign(x), jnp.float32))


def held(inference: Inference, model: DGP) -> Inference:
    """`inference` of V alone: after every step the hyper-parameters are put back where they were."""

    def step(state, batch, *, key):
        state, info = inference.step(state, batch, key=key)
        return eqx.tree_at(lambda s: getattr(s, "fitted", s).model, state, model), info

    return inference._replace(step=step)


def draws(steps: int, seed: int, methods: Mapping = METHODS, count: int = 4000) -> dict[str, np.ndarray]:
    """`(count, d)` draws of all inducing outputs from every method."""
    model, data = problem()
    rows = {}
    for title, (name, times, options) in methods.items():
        length = times * steps

        def make(step_scale, name=name, length=length, options=options):
            return held(make_inference(name, len(data.x), length, step_scale=step_scale, **options), model)

        result = train(make, model, data, steps=length, batch_size=len(data.x), seed=seed, chunk=500)
        v = result.fitted.posterior.sample(count, key=jax.random.key(seed))
        rows[title] = np.concatenate([np.asarray(w).reshape(count, -1) for w in v], axis=1)
    return rows


def figure(rows: dict[str, np.ndarray]) -> Figure:
    """The leftmost inducing output of either layer."""
    labels = ["hidden layer, leftmost inducing output", "last layer, leftmost inducing output"]
    return posterior_slices(rows, 0, NUM_POINTS, labels)
