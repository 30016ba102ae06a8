"""Result files without fits: numbers made up from the settings, for tables, figures and the report."""

import zlib

import numpy as np

from novidgp.bench.scoring import COVERAGE_LEVELS
from novidgp.bench.spec import Fit
from novidgp.bench.suites import Suite

MACHINE = {"novidgp": "0.1.0", "jax": "0.10.2", "python": "3.11", "cpu": "Some CPU", "cores": 2, "jobs": 1}
SKILL = {"novi": 0.95, "dsvi": 1.0, "sghmc": 0.98, "ipvi": 1.05, "iwvi": 1.02, "iwvi-dreg": 1.01, "ml": 1.3}


def record(fit: Fit, status: str = "ok", **scores) -> dict:
    """The record of a fit, with made-up scores where none are given."""
    generator = np.random.default_rng(zlib.crc32(fit.key.encode()))
    base = 0.05 + (zlib.crc32(fit.dataset.encode()) % 100) / 200
    skill = SKILL.get(fit.method, 1.1) * (1 + 0.03 * (fit.layers or 2)) * np.exp(0.04 * generator.normal())
    rmse = base * skill
    made_up = {
        "rmse": rmse,
        "nll": float(np.log(rmse) + 1.4),
        "rmse_raw": 20 * rmse,
        "nll_raw": float(np.log(20 * rmse) + 1.4),
        "rmse_train": 0.8 * rmse,
        "accuracy": 1 - 0.2 * rmse,
        "ece": 0.1 * rmse,
        "coverage": [float(level ** (0.8 + 0.4 * generator.random())) for level in COVERAGE_LEVELS],
        "coverage90": 0.9,
        "seconds": 30.0,
        "cpu_seconds": float(20 * (fit.layers or 1) ** 1.3 * np.exp(0.3 * generator.normal())),
        "seconds_fit": 25.0,
        "seconds_per_step": 0.03 * (fit.layers or 1),
    }
    if fit.curve:
        steps = np.arange(20, 1001, 20)
        fall = np.exp(-steps / 150)
        worse = 0.1 * (fit.method == "ml") * steps / 1000
        made_up["curve"] = {
            "step": steps.tolist(),
            "seconds": (0.03 * steps).tolist(),
            "rmse_test": (rmse + fall + worse).tolist(),
            "rmse_train": (0.8 * rmse + fall - 0.3 * worse).tolist(),
            "nll_test": fall.tolist(),
            "nll_train": fall.tolist(),
        }
    found = {"key": fit.key, "status": status, "fit": fit._asdict(), "scores": made_up | scores}
    if status != "ok":
        found |= {"error": "ValueError: made to fail", "scores": {"seconds": 1.0}}
    return found | {"machine": MACHINE}


def records(suite: Suite) -> list[dict]:
    """All of a suite that could have been run."""
    return [record(fit) for fit in suite.fits()]
