"""A small convolutional network in front of the first GP layer: deep kernel learning of images.

Convolutions of 5 x 5 and then 3 x 3 pixels, each with an activation and a mean over squares of 2 x 2, twice
as many maps after each; a linear map to the features, which are standardised at the start. Patches are
slices and a product, as in the convolutional GP layers.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.model.patches import ImageShape, Patches, mean_pool
from novidgp.numerics.nets import ACTIVATIONS

_OUTPUTS = 64
_POOL = 2
_ROWS = 500
"""Images of a block, and those that features are standardised by."""
_GAIN = 0.1


class ConvFeatureMap(eqx.Module):
    """The network. Parameters are stored times 10, as those of `FeatureMap`."""

    weights: tuple[Float[Array, "_i _o"], ...]
    biases: tuple[Float[Array, " _o"], ...]
    patches: tuple[Patches, ...] = eqx.field(static=True)
    activation: str = eqx.field(static=True)
    trainable: bool = eqx.field(static=True)

    @property
    def outputs(self) -> int:
        """The number of features."""
        return self.weights[-1].shape[1]

    def __call__(self, x: Float[Array, "n hwc"]) -> Float[Array, "n f"]:
        """The features of every image."""
        weights, biases = jax.tree.map(lambda leaf: _GAIN * leaf, (self.weights, self.biases))
        if not self.trainable:
            weights, biases = jax.lax.stop_gradient((weights, biases))
        for cut, weight, bias in zip(self.patches, weights[:-1], biases[:-1], strict=True):
            maps = ACTIVATIONS[self.activation](cut(x) @ weight + bias)
            x = mean_pool(maps.reshape(len(x), -1), (*cut.grid, len(bias)), _POOL)
        return x @ weights[-1] + biases[-1]

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """Features as a float64 NumPy array, computed eagerly even while tracing, a block at a time."""
        dtype = self.weights[0].dtype
        with jax.ensure_compile_time_eval():
            blocks = [np.asarray(self(jnp.asarray(x[i : i + _ROWS], dtype))) for i in range(0, len(x), _ROWS)]
        return np.concatenate(blocks).astype(np.float64)


def cnn_patches(settings: dict[str, Any], image: ImageShape) -> tuple[Patches, ...]:
    """What every convolution sees; refused where the image is too small for so many."""
    cuts: list[Patches] = []
    shape = image
    for index in range(settings["depth"]):
        cut = Patches(shape, 5 if index == 0 else 3)
        if min(shape[:2]) < cut.size + 1:
            raise ValueError(
                f"features: a network of depth={settings['depth']} does not fit into images of {image[0]} x "
                f"{image[1]} pixels; convolution {index + 1} sees {shape[0]} x {shape[1]}. Lower 'depth'."
            )
        cuts.append(cut)
        shape = (cut.grid[0] // _POOL, cut.grid[1] // _POOL, settings["width"] * 2**index)
    return tuple(cuts)


def make_conv_features(
    settings: dict[str, Any], image: ImageShape, inputs: np.ndarray, *, dtype: Any, key: PRNGKeyArray
) -> ConvFeatureMap:
    """The network at its start: random, with features that are standardised on the scaled `inputs`."""
    cuts = cnn_patches(settings, image)
    outputs = settings["outputs"] or _OUTPUTS
    last = cuts[-1]
    maps = [settings["width"] * 2**index for index in range(len(cuts))]
    flat = (last.grid[0] // _POOL) * (last.grid[1] // _POOL) * maps[-1]
    sizes = [*((cut.width, count) for cut, count in zip(cuts, maps, strict=True)), (flat, outputs)]
    with jax.ensure_compile_time_eval():
        keys = jax.random.split(key, len(sizes))
        weights = [
            float(np.sqrt(2.0 / size[0]) / _GAIN) * jax.random.normal(k, size, dtype)
            for k, size in zip(keys, sizes, strict=True)
        ]
        biases = [jnp.zeros(size[1], dtype) for size in sizes]

        def network() -> ConvFeatureMap:
            return ConvFeatureMap(
                tuple(weights), tuple(biases), cuts, settings["activation"], settings["trainable"]
            )

        values = network().evaluate(inputs[:_ROWS])
        scale = np.where(values.std(0) > 1e-6, values.std(0), 1.0)
        weights[-1] = jnp.asarray(weights[-1] / scale, dtype)
        biases[-1] = jnp.asarray(-values.mean(0) / scale / _GAIN, dtype)
        return network()
