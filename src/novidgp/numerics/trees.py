"""Pytrees of arrays."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp


def stacked(trees: Sequence[Any]) -> Any:
    """Pytrees of equal structure and shapes as one, on a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
