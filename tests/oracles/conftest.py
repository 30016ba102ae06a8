"""Oracles compare with independent, dense computations, mostly in float64."""

import jax
import pytest


@pytest.fixture
def x64():
    """Float64 for the time of one test."""
    with jax.enable_x64(True):
        yield
