"""Draws `posteriors.png`: one posterior of a small deep GP as every method sees it.

python docs/pictures/posteriors.py

IWVI and IWVI-DREG are one curve: they differ in the gradient of the local variable's encoder, and this model
has none. Maximum likelihood is a point.
"""

from pathlib import Path

import numpy as np

from novidgp.bench import reference_posterior
from novidgp.inference import IPVI, IWVI, MaximumLikelihood
from novidgp.plots import save_png

OTHERS = {
    "IPVI": (IPVI(num_samples=64, noise_dim=8), 4),
    "IWVI": (IWVI(), 2),
    "ML": (MaximumLikelihood(), 2),
}

methods = {name.replace("best Gaussian", "DSVI"): run for name, run in reference_posterior.METHODS.items()}
rows = reference_posterior.draws(1500, 0, methods | OTHERS)
point = rows.pop("ML")[0, [0, reference_posterior.NUM_POINTS]]
print("ML               at", *point.round(2))
for name, values in rows.items():
    first, second = values[:, 0], values[:, reference_posterior.NUM_POINTS]
    print(
        f"{name:16s} std {first.std():.2f} {second.std():.2f}  corr {np.corrcoef(first, second)[0, 1]:+.2f}"
    )

figure = reference_posterior.figure(rows)
*marginals, joint = figure.axes
for ax, value in zip(marginals, point, strict=True):
    ax.axvline(value, color="black", linestyle=":", label="ML")
joint.plot(*point, "k*", markersize=9)
marginals[0].legend()
save_png(figure, Path(__file__).with_name("posteriors.png"))
