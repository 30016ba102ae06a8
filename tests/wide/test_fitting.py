"""What a wide layer's features are made of."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.wide.fitting import _whitening


class Correlated(eqx.Module):
    """Stands in for a layer with these correlations."""

    matrix: jax.Array

    def correlation(self):
        return self.matrix[None]


@pytest.mark.parametrize("lowest", [0.5, 0.0, -6.5e-5])
def test_correlations_that_rounding_left_without_a_factor_get_one(lowest):
    """The last is what 666 points had after 2,000 steps on scikit-learn's digits. Whitened correlations are
    the identity, but for the diagonal that it takes: 1e-4 where 1e-5 is too little."""
    rng = np.random.default_rng(0)
    rotation, _ = np.linalg.qr(rng.standard_normal((5, 5)))
    matrix = rotation * [2.0, 1.0, 1.0, 0.5, lowest] @ rotation.T
    root = _whitening(Correlated(jnp.asarray(matrix, jnp.float32)))
    jitter = 1e-4 if lowest < 0.0 else 1e-5
    whitened = root.T @ (matrix + jitter * np.eye(5)) @ root
    np.testing.assert_allclose(whitened, np.eye(5), atol=0.05)  # float32 entries, 1e-7 of 1e-5 and less
