"""What every test needs: no window for plots, and benchmark data where it lies beside the project."""

import os
from pathlib import Path

import jax
import pytest

os.environ.setdefault("MPLBACKEND", "Agg")

_SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
if _SHARED_DATA.is_dir():
    os.environ.setdefault("NOVIDGP_DATA", str(_SHARED_DATA))


@pytest.fixture
def x64():
    """Double precision, for this test only."""
    with jax.enable_x64(True):
        yield
