"""Fits on several devices, in a process that has them, and in processes that share them.

`compare_devices` writes for each case how far the models of several devices are from that of one, as JSON,
and the models of one device beside it. `share_processes` writes the models of a job of several processes.
"""

import json
import socket
import sys
from pathlib import Path

import jax
import numpy as np

from novidgp import distributed
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
    """The largest difference of two lists of arrays, relative to the size of each array."""
    pairs = zip(one, other, strict=True)
    return max(float(np.max(np.abs(a - b)) / (np.max(np.abs(a)) + 1e-12)) for a, b in pairs if a.size)


def arrays_of(case: str, devices, **options) -> list[np.ndarray]:
    """The arrays of a fitted model; `case` is METHOD:CASE."""
    method, _, kind = case.partition(":")
    options |= {"starts": 4} if kind == "starts" else {"case": kind or "full"}
    return jax.tree.leaves(run(method, devices, **options))


def compare_devices(path: str, *cases: str) -> None:
    """Fits on one device, on two and on all."""
    found, models = {}, {}
    for case in cases:
        models[case] = arrays_of(case, None)
        for count in ["all"] if case.endswith(":starts") else [2, "all"]:
            found[f"{case} {count}"] = apart(models[case], arrays_of(case, count))
    Path(path).write_text(json.dumps(found))
    save(models_path(path), models)


def share_processes(path: str, *cases: str) -> None:
    """Fits in a job of several processes, of which the first one writes."""
    distributed.start(timeout=120)
    assert distributed.several()
    models = {case: arrays_of(case, None) for case in cases}
    if distributed.is_first():
        save(Path(path), models)


def save(path: Path, models: dict[str, list[np.ndarray]]) -> None:
    """Models as one file of arrays."""
    named = {f"{case} {number}": a for case, arrays in models.items() for number, a in enumerate(arrays)}
    np.savez(path, **named)


def load(path: Path, case: str) -> list[np.ndarray]:
    """A model of such a file."""
    with np.load(path) as file:
        return [file[name] for name in file.files if name.startswith(f"{case} ")]


def models_path(path) -> Path:
    """Where `compare_devices` puts its models."""
    return Path(path).with_suffix(".npz")


def job_environment(processes: int) -> list[dict[str, str]]:
    """What each process of a job on this machine has to be told."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    job = {distributed.COORDINATOR: address, distributed.PROCESSES: str(processes)}
    return [job | {distributed.PROCESS: str(number)} for number in range(processes)]


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
