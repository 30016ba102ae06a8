"""One small problem for most tests of methods and estimators: 20 rows, two features, five inducing points.

Tests that share shapes share compiled programs, and compiling is what takes their time.
"""

import jax
import jax.numpy as jnp
import numpy as np

from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import DGP, Batch

ROWS = 20
SMALL = {"num_inducing": 5, "num_predict_samples": 4, "random_state": 0}
"""Parameters of an estimator."""


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Inputs `(20, 2)` and two targets."""
    x = np.random.default_rng(0).standard_normal((ROWS, 2))
    return x, np.column_stack([np.sin(x[:, 0]), x[:, 1] ** 2])


def small_model(dtype: str = "float32", *, seed: int = 0, **settings) -> DGP:
    """A model of two layers at its start, unless `settings` say otherwise."""
    config = ModelConfig(**{"num_inducing": 5, "dtype": dtype} | settings)
    return build_model(config, rows()[0], key=jax.random.key(seed))


def small_batch(dtype: str = "float32", *, targets: int = 1) -> Batch:
    """All rows."""
    x, y = rows()
    return Batch(jnp.asarray(x, dtype), jnp.asarray(y[:, :targets], dtype))


def run(inference, model, batch, steps: int, *, key):
    """State and history after `steps` steps, in one compiled scan."""

    def fit(key):
        init_key, step_key = jax.random.split(key)
        state = inference.init(model, batch, key=init_key)
        keys = jax.random.split(step_key, steps)
        return jax.lax.scan(lambda state, key: inference.step(state, batch, key=key), state, keys)

    return jax.jit(fit)(key)


def assert_close(first, second, **tolerance) -> None:
    """Compare two pytrees of arrays."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), first, second)
