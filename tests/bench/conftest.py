"""Benchmark tests: tiny fits on built-in data."""

import pytest

from novidgp.bench.spec import Fit

TINY = {"num_predict_samples": 5, "hidden_dim": 1}


@pytest.fixture
def tiny():
    """A fit that takes no time, once compiled."""
    return Fit("steps", "random", 0, "dsvi", 1, 5, 5, options=TINY)
