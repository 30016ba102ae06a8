"""A feature network in front of the first GP layer: deep kernel learning (Wilson et al. 2016).

`phi(x) = x W + network(x)`, where `W` starts as the identity: the model starts as one without features and
learns to bend its input space. All of it is trained with the model by any inference method, or frozen.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.model.means import linear_start
from novidgp.numerics.nets import MLP, mlp

FEATURE_MAP: dict[str, Any] = {
    "network": "mlp",
    "width": 64,
    "depth": 2,
    "activation": "silu",
    "outputs": None,
    "trainable": True,
}
"""The settings of `features="mlp"`; `outputs` is the number of features, None for that of the inputs."""
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": FEATURE_MAP,
    "cnn": FEATURE_MAP | {"network": "cnn", "width": 16, "activation": "relu"},
}
"""Settings by the name of the network; `width` of a `cnn` is the number of its first maps."""

_GAIN = 0.1
_START = 0.1


class FeatureMap(eqx.Module):
    """The network and its linear bypass.

    Parameters are stored times 10, so that Adam's learning rate on them is a tenth of the kernels'.
    """

    bypass: Float[Array, "d f"]
    network: MLP
    trainable: bool = eqx.field(static=True)

    @property
    def outputs(self) -> int:
        """The number of features."""
        return self.bypass.shape[1]

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, "n f"]:
        """The features of every row."""
        bypass, network = jax.tree.map(lambda leaf: _GAIN * leaf, (self.bypass, self.network))
        if not self.trainable:
            bypass, network = jax.lax.stop_gradient((bypass, network))
        return x @ bypass + network(x)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """Features as a float64 NumPy array, computed eagerly even while tracing."""
        with jax.ensure_compile_time_eval():
            return np.asarray(self(jnp.asarray(x, self.bypass.dtype)), np.float64)


def make_feature_map(
    settings: dict[str, Any], inputs: np.ndarray, *, dtype: Any, key: PRNGKeyArray
) -> FeatureMap:
    """A feature map at its start, standardised on the scaled training `inputs`."""
    outputs = settings["outputs"] or inputs.shape[1]
    shape = {name: settings[name] for name in ("width", "depth", "activation")}
    with jax.ensure_compile_time_eval():
        network = mlp(
            inputs.shape[1],
            outputs,
            **shape,
            output_scale=_START,
            dtype=dtype,
            key=key,
        )
        bypass = linear_start(inputs, outputs)
        values = inputs @ bypass + np.asarray(network(jnp.asarray(inputs, dtype)))
        scale = np.where(values.std(0) > 1e-6, values.std(0), 1.0)
        weights = (*network.weights[:-1], network.weights[-1] / scale)
        biases = (*network.biases[:-1], (network.biases[-1] - values.mean(0)) / scale)
        network = MLP(weights, biases, network.slopes, network.activation)
        network = jax.tree.map(lambda leaf: jnp.asarray(leaf / _GAIN, dtype), network)
        return FeatureMap(jnp.asarray(bypass / scale / _GAIN, dtype), network, settings["trainable"])
