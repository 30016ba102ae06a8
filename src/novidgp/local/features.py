"""The inputs of the local layer: the deep GP's inputs x, and its hidden features h.

`h` is the input of the last layer when every hidden layer follows its mean at the posterior's mean V. It is a
smooth function of x, costs one path, and for two layers it is the mean of h over all paths.
"""

import numpy as np

MOST_COLUMNS = 256
"""With more input columns than this the hidden features stand alone."""


def local_inputs(x: np.ndarray, hidden: np.ndarray | None) -> np.ndarray:
    """Columns `[x, h]` for scaled rows `x` `(n, d)`; x alone where the model has no hidden layer."""
    if hidden is None:
        return x
    return hidden if x.shape[1] > MOST_COLUMNS else np.concatenate([x, hidden], axis=1)
