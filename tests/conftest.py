"""What tests need: no window for plots, benchmark data where it lies beside the project, and fixtures."""

import os
from pathlib import Path

import jax
import pytest

os.environ.setdefault("MPLBACKEND", "Agg")

_SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
if _SHARED_DATA.is_dir():
    os.environ.setdefault("NOVIDGP_DATA", str(_SHARED_DATA))


@pytest.fixture(scope="module")
def quick_compilation():
    """Programs compiled without optimisation, here and in processes started from here.

    For modules that check contracts on tiny fits, where compiling takes nearly all of the time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        jax.config.update("jax_disable_most_optimizations", True)
        yield
        jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def x64():
    """Double precision, for this test only."""
    with jax.enable_x64(True):
        yield
