"""Draws `posteriors.png`: one posterior of a small deep GP as every method sees it.

python docs/pictures/posteriors.py

Hyper-parameters stay where they are. IWVI and IWVI-DREG are one curve: they differ in the gradient of the
latent variable's encoder, and this model has none. Maximum likelihood is a point.
"""

from pathlib import Path

import equinox as eqx
import jax
import numpy as np

from novidgp.cli import demo_posterior
from novidgp.inference import make_inference
from novidgp.plots import save_png

IPVI = ("ipvi", 4, {"num_samples": 64, "noise_dim": 8, "model_rate": 0.0})


def with_model_held(name: str, steps: int = 3000, count: int = 4000) -> np.ndarray:
    """Draws from a method without a rate for the hyper-parameters: the model is put back after every step."""
    model, data = demo_posterior.problem()
    inference = make_inference(name, len(data.x), steps)

    def step(state, key):
        state, _ = inference.step(state, data, key=key)
        return eqx.tree_at(lambda s: s.fitted.model, state, model), None

    def run(key):
        state, _ = jax.lax.scan(step, inference.init(model, data, key=key), jax.random.split(key, steps))
        return inference.fitted(state).posterior.sample(count, key=key)

    return np.concatenate([np.asarray(v).reshape(count, -1) for v in jax.jit(run)(jax.random.key(0))], axis=1)


methods = {name.replace("best Gaussian", "DSVI"): run for name, run in demo_posterior.METHODS.items()}
rows = demo_posterior.draws(1500, 0, methods | {"IPVI": IPVI}) | {"IWVI": with_model_held("iwvi")}
for name, values in rows.items():
    first, second = values[:, 0], values[:, demo_posterior.NUM_POINTS]
    print(
        f"{name:16s} std {first.std():.2f} {second.std():.2f}  corr {np.corrcoef(first, second)[0, 1]:+.2f}"
    )

figure = demo_posterior.figure(rows)
point = with_model_held("ml", count=1)[0, [0, demo_posterior.NUM_POINTS]]
print("ML               at", *point.round(2))
marginals, joint = figure.axes[:2], figure.axes[2]
for ax, value in zip(marginals, point, strict=True):
    ax.axvline(value, color="black", linestyle=":", label="ML")
joint.plot(*point, "k*", markersize=9)
marginals[0].legend()
save_png(figure, Path(__file__).with_name("posteriors.png"))
