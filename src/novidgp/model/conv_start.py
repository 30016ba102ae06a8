"""Where convolutional layers start: inducing patches by k-means, means that whiten the patches.

Patches without contrast are left out first: most of a drawing is paper. A hidden layer's mean is linear, the
leading principal components of its patches, each scaled to unit variance; its kernel adds a little to that,
as in dense layers. Inducing patches of a last layer have places too, and are clustered in the kernel's own
metric.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from novidgp.model.conv_layers import ConvGPLayer, Located, PatchSumLayer
from novidgp.model.image_layers import Layers, layer_patches
from novidgp.model.kernels import make_kernel, stationary
from novidgp.model.layers import Layer
from novidgp.model.means import Linear, Zero, linear_start
from novidgp.model.patches import ImageShape, Patches, mean_pool
from novidgp.numerics.trees import on_device

_IMAGES = 500
_PATCHES = 20_000
_CONTRAST = 0.05
"""Of the root mean square of the patches' standard deviations: what has less is left out."""
_LEAST_SPREAD = 0.01
_SUM_VARIANCE = 5.0
"""The kernel variance of a last layer: a mean over patches varies less than a patch does."""
_REACH = 0.3
"""The places' lengthscale, as a share of the grid."""

Cluster = Callable[[np.ndarray, int], np.ndarray]


def start_layers(
    layers: Layers,
    shape: ImageShape,
    inputs: np.ndarray,
    *,
    counts: Sequence[int],
    outputs: int,
    kernel: str,
    mean: str,
    lengthscale: float,
    variances: Sequence[float],
    dtype: Any,
    cluster: Cluster,
    rng: np.random.Generator,
) -> tuple[Layer, ...]:
    """The layers of a DGP of images, rows of scaled `inputs`, with `counts` inducing patches.

    `outputs` is the number of functions of the last layer, `variances` are the kernels' first ones in hidden
    layers, and `cluster` chooses so many inducing points for given rows.
    """
    images = np.asarray(inputs[rng.permutation(len(inputs))[:_IMAGES]], np.float32)
    built: list[Layer] = []
    for spec, patches, count, variance in zip(
        layers, layer_patches(layers, shape), counts, (*variances, _SUM_VARIANCE), strict=True
    ):
        cut = patches(images)
        sample, places = _with_contrast(cut, patches, rng)
        scale = lengthscale * (np.sqrt(np.sum(sample.var(0))) or 1.0)
        part = make_kernel(
            kernel, on_device(np.full((1, 1), scale), dtype), on_device(np.full(1, variance), dtype)
        )
        if spec["kind"] == "sum":
            points = sample
            if spec["location"]:
                reach = max(1.0, _REACH * max(patches.grid))
                joint = cluster(np.concatenate([sample / scale, places / reach], axis=1), count)
                points = joint * np.array([scale] * sample.shape[1] + [reach] * 2)
                place = stationary("matern32", on_device(np.full((1, 1), reach), dtype), jnp.ones(1, dtype))
                part = Located(part, place)
            else:
                points = cluster(sample, count)
            weight = on_device(np.ones(patches.count), dtype)
            built.append(
                PatchSumLayer(part, on_device(points[None], dtype), Zero(outputs), outputs, weight, patches)
            )
            continue
        points, maps = cluster(sample, count), spec["maps"]
        weight, bias = _whitening(sample, maps)
        start = Zero(maps)
        if mean != "zero":
            start = Linear(on_device(weight, dtype), on_device(bias, dtype), mean == "linear-learned")
        built.append(ConvGPLayer(part, on_device(points[None], dtype), start, maps, patches, spec["pool"]))
        values = cut @ weight.astype(np.float32) + bias.astype(np.float32)
        if mean == "zero":
            values = rng.standard_normal(values.shape, np.float32)
        images = mean_pool(values.reshape(len(images), -1), (*patches.grid, maps), spec["pool"])
    return tuple(built)


def _with_contrast(
    cut: np.ndarray, patches: Patches, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Some of the patches `(n, P, L)` that are not plain, and their places on the grid."""
    spread = cut.std(axis=-1)
    image, place = np.nonzero(spread > _CONTRAST * np.sqrt(np.mean(spread**2)))
    if not len(image):
        image, place = np.nonzero(np.ones_like(spread))
    chosen = rng.permutation(len(image))[:_PATCHES]
    image, place = image[chosen], place[chosen]
    return cut[image, place].astype(np.float64), patches.positions()[place].astype(np.float64)


def _whitening(sample: np.ndarray, maps: int) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias of the map to the leading principal components with unit variance."""
    weight = linear_start(sample, maps)
    values = sample @ weight
    spread = values.std(0)
    spread = np.maximum(spread, _LEAST_SPREAD * spread.max()) if spread.max() > 0 else np.ones(maps)
    return weight / spread, -values.mean(0) / spread
