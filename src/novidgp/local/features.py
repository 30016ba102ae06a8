"""The inputs of the local layer: the deep GP's inputs x, and its hidden features h.

`h` is the input of the last layer when every hidden layer follows its mean at the posterior's mean V. It is a
smooth function of x, costs one path, and for two layers it is the mean of h over all paths.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from novidgp.numerics.blocks import blocks
from novidgp.numerics.compilation import COMPILER_OPTIONS, precision
from novidgp.numerics.linalg import single_threaded_lapack
from novidgp.numerics.trees import on_device
from novidgp.posteriors.fitted import Fitted

_BLOCK = 1_024
_DRAWS = 256
MOST_COLUMNS = 256
"""With more input columns than this the hidden features stand alone."""


def local_inputs(fitted: Fitted, x: np.ndarray) -> np.ndarray:
    """Columns `[x, h]` for scaled rows `x` `(n, d)`; x alone where the model has no hidden layer."""
    if len(fitted.model.layers) == 1:
        return x
    last = fitted._replace(ensemble=None)
    parts = []
    with precision(fitted.model.dtype.name), single_threaded_lapack():
        last = jax.device_put(last)
        for rows, padded in blocks(len(x), _BLOCK):
            hidden = _hidden_features(last, on_device(x[padded], fitted.model.dtype))
            parts.append(np.asarray(hidden)[: rows.stop - rows.start])
    hidden = np.concatenate(parts)
    return hidden if x.shape[1] > MOST_COLUMNS else np.concatenate([x, hidden], axis=1)


@functools.partial(jax.jit, compiler_options=COMPILER_OPTIONS)
def _hidden_features(fitted: Fitted, x: Float[Array, "n d"]) -> Float[Array, "n h"]:
    model = fitted.model
    draws = model.white(fitted.posterior.sample(_DRAWS, key=jax.random.key(0)))
    return model.mean_features(x, tuple(jnp.mean(v, axis=0, keepdims=True) for v in draws))
