"""Pytrees of arrays."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike


def on_device(array: Any, dtype: DTypeLike | None = None) -> jax.Array:
    """An array for JAX. Outside of compiled code `jnp.asarray` compiles a program for every new shape; this
    does not."""
    return jax.device_put(np.asarray(array, dtype))


def numpy_for(*arrays: Any) -> Any:
    """NumPy where the values of arrays are known, else `jax.numpy`. Outside of compiled code `jax.numpy`
    compiles a program for every operation."""
    return jnp if any(isinstance(array, Tracer) for array in arrays) else np


def stacked(trees: Sequence[Any]) -> Any:
    """Pytrees of equal structure and shapes as one, on a leading axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def shapes(tree: Any) -> Any:
    """The shapes and types of a tree of arrays and numbers, wherever they are."""
    return jax.eval_shape(lambda tree: tree, tree)
