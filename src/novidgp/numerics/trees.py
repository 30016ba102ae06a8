"""Pytrees of arrays."""

from collections.abc import Callable, Sequence
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


def flattened(tree: Any) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
    """The numbers of a tree as one vector, and the function that makes a tree of such a vector again. On the
    host, where `ravel_pytree` would compile a program for every part."""
    leaves, structure = jax.tree.flatten(tree)
    ends = np.cumsum([np.size(leaf) for leaf in leaves])[:-1]

    def unflatten(vector: np.ndarray) -> Any:
        parts = np.split(np.asarray(vector), ends)
        return structure.unflatten(
            [part.reshape(np.shape(leaf)) for part, leaf in zip(parts, leaves, strict=True)]
        )

    return np.concatenate([np.ravel(leaf) for leaf in leaves]), unflatten


def shapes(tree: Any) -> Any:
    """The shapes and types of a tree of arrays and numbers, wherever they are."""
    return jax.eval_shape(lambda tree: tree, tree)
