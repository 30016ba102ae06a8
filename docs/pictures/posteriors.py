"""Draws `posteriors.png`: one posterior of a small deep GP as SGHMC, NOVI, DSVI's family and IPVI see it.

python docs/pictures/posteriors.py
"""

from pathlib import Path

import numpy as np

from novidgp.cli import demo_posterior
from novidgp.plots import save_png

IPVI = ("ipvi", 4, {"num_samples": 64, "noise_dim": 8, "model_rate": 0.0})

methods = {name.replace("best Gaussian", "DSVI"): run for name, run in demo_posterior.METHODS.items()}
rows = demo_posterior.draws(1500, 0, methods | {"IPVI": IPVI})
for name, values in rows.items():
    first, second = values[:, 0], values[:, demo_posterior.NUM_POINTS]
    print(
        f"{name:16s} std {first.std():.2f} {second.std():.2f}  corr {np.corrcoef(first, second)[0, 1]:+.2f}"
    )
save_png(demo_posterior.figure(rows), Path(__file__).with_name("posteriors.png"))
