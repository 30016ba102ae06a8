"""Data that the tests of estimators share."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def curve():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(60, 2))
    return X, 100.0 + 20.0 * np.sin(X[:, 0]) + rng.normal(size=60)
