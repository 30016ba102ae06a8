"""Fits on several devices, in a process that has them: `python -m support.devices FILE METHOD...`.

For each method the model of one device, and how far that of others is from it, in FILE as JSON.
"""

import json
import sys

import jax
import numpy as np

from novidgp.inference import METHODS
from novidgp.model.build import ModelConfig, build_model, starting_models
from novidgp.model.dgp import Batch
from novidgp.numerics.trees import on_device
from novidgp.training.loop import fit

ROWS, STEPS = 60, 50
CASES = {"full": {}, "batches": {"batch_size": 21}, "weights": {"batch_size": 20}}
"""No divisor of the devices, on purpose: 21 rows in two or three parts."""


def rows() -> tuple[np.ndarray, ...]:
    """Inputs, targets with a gap, and weights; the last four rows are padding."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, 2))
    y = np.sin(2.0 * x[:, :1]) + 0.1 * rng.standard_normal((ROWS, 1))
    y[-4:] = np.nan
    return x, y, np.where(np.isnan(y), 0.0, rng.uniform(0.5, 2.0, (ROWS, 1)))


def run(
    name: str, devices, *, case: str = "full", starts: int = 1, dtype: str = "float64", steps: int = STEPS
):
    """The fitted model of a short run."""
    x, y, weight = rows()
    columns = (x, y, weight) if case == "weights" else (x, y)
    method = METHODS[name]()
    config = ModelConfig(num_inducing=6, latent_dim=int(method.uses_local_variable), dtype=dtype)
    with jax.enable_x64(dtype == "float64"):
        key = jax.random.key(0)
        model = (
            build_model(config, x, key=key)
            if starts == 1
            else starting_models(config, x, key=key, starts=starts)
        )
        data = Batch(*(on_device(part, dtype) for part in columns))
        result = fit(
            model,
            method,
            data,
            steps=steps,
            num_data=ROWS - 4,
            starts=starts,
            devices=devices,
            key=jax.random.key(1),
            progress=False,
            chunk=25,
            **CASES[case],
        )
        return jax.tree.map(np.asarray, result.fitted)


def apart(one, other) -> float:
    """The largest difference of two models, relative to the size of each array."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.max(np.abs(a - b)) / (np.max(np.abs(a)) + 1e-12)) for a, b in pairs if a.size)


def main(path: str, *names: str) -> None:
    """Write the distances."""
    found = {}
    for name in names:
        method, _, case = name.partition(":")
        options = {"starts": 4} if case == "starts" else {"case": case or "full"}
        counts = ["all"] if case == "starts" else [2, "all"]
        alone = run(method, None, **options)
        for count in counts:
            found[f"{name} {count}"] = apart(alone, run(method, count, **options))
    with open(path, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
