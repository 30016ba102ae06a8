"""Rows in the order of groups, with a column that means something else in the last one."""

import numpy as np

NAMES = ["tag", "day", "angle"]


def runs(seed=0, days=20, rows=6):
    """Runs of days in which every day has its own effect. The last run has the tag of the first, and other
    effects: inputs `(n, 3)` and targets `(n, 1)`, in order."""
    rng = np.random.default_rng(seed)
    tags = [*range(9), 0]
    inputs, targets = [], []
    for tag in tags:
        angle = rng.uniform(-2.0, 2.0, size=(days, rows))
        day = np.repeat(np.arange(days)[:, None], rows, axis=1)
        effect = rng.standard_normal((days, 1))
        noise = 0.1 * rng.standard_normal((days, rows))
        inputs.append(np.stack([np.full_like(angle, tag), day, angle], axis=-1).reshape(-1, 3))
        targets.append((np.sin(2.0 * angle) + effect + noise).reshape(-1, 1))
    return np.concatenate(inputs), np.concatenate(targets)
