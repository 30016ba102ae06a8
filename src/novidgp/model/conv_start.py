"""Where convolutional layers start: inducing patches by k-means, means that whiten the patches.

Patches without contrast are left out first: most of a drawing is paper. A hidden layer's mean is linear, the
leading principal components of its patches, each scaled to unit variance; its kernel adds a little to that,
as in dense layers. Inducing patches of a last layer have places too, and are clustered in the kernel's own
metric.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from novidgp.model.conv_layers import ConvGPLayer, Located, PatchSumLayer
from novidgp.model.image_layers import Layers, layer_patches
from novidgp.model.kernels import Kernel, Projected, make_kernel, stationary
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
_WHITENING = 0.1
"""Added to the variances of directions, relative to the mean variance of a number of a patch."""
_REACH = 0.3
"""The places' lengthscale, as a share of the grid."""


@dataclass(frozen=True)
class Start:
    """What the first values of all layers have in common."""

    kernel: str
    mean: str
    lengthscale: float
    """Of the kernels, relative to the standard deviation of the patches."""
    dtype: Any
    cluster: Callable[[np.ndarray, int], np.ndarray]
    """Chooses so many inducing points for given rows."""
    rng: np.random.Generator


def start_layers(
    layers: Layers,
    shape: ImageShape,
    inputs: np.ndarray,
    start: Start,
    *,
    counts: Sequence[int],
    outputs: int,
    variances: Sequence[float],
) -> tuple[Layer, ...]:
    """The layers of a DGP of images, rows of scaled `inputs`, with `counts` inducing patches.

    `outputs` is the number of functions of the last layer, and `variances` are the kernels' first ones in
    hidden layers.
    """
    images = np.asarray(inputs[start.rng.permutation(len(inputs))[:_IMAGES]], np.float32)
    cuts = layer_patches(layers, shape)
    built: list[Layer] = []
    for spec, patches, count, variance in zip(layers, cuts, counts, variances, strict=False):
        layer, images = _conv_layer(spec, patches, images, count, variance, start)
        built.append(layer)
    return *built, _sum_layer(layers[-1], cuts[-1], images, counts[-1], outputs, start)


def _conv_layer(
    spec: dict[str, Any], patches: Patches, images: np.ndarray, count: int, variance: float, start: Start
) -> tuple[ConvGPLayer, np.ndarray]:
    """A hidden layer, and what its mean makes of the images."""
    cut, maps = patches(images), spec["maps"]
    sample, _ = patches_with_contrast(cut, patches, start.rng)
    weight, bias = _whitening(sample, maps)
    mean = Zero(maps)
    values = cut @ weight.astype(np.float32) + bias.astype(np.float32)
    if start.mean == "zero":
        values = start.rng.standard_normal(values.shape, np.float32)
    else:
        learned = start.mean == "linear-learned"
        mean = Linear(on_device(weight, start.dtype), on_device(bias, start.dtype), learned)
    metric = _metric(sample, spec.get("directions", 0))
    points = on_device(metric.back(start.cluster(metric(sample), count))[None], start.dtype)
    layer = ConvGPLayer(_kernel(sample, metric, variance, start), points, mean, maps, patches, spec["pool"])
    values = values.reshape(len(images), -1)
    return layer, mean_pool(values, (*patches.grid, maps), spec["pool"])


def _sum_layer(
    spec: dict[str, Any], patches: Patches, images: np.ndarray, count: int, outputs: int, start: Start
) -> PatchSumLayer:
    """The last layer."""
    sample, places = patches_with_contrast(patches(images), patches, start.rng)
    metric = _metric(sample, spec.get("directions", 0))
    kernel, seen = _kernel(sample, metric, _SUM_VARIANCE, start), metric(sample)
    if spec["location"]:
        reach = max(1.0, _REACH * max(patches.grid))
        unit = np.array([_scale(seen, start)] * seen.shape[1] + [reach] * 2)
        points = unit * start.cluster(np.concatenate([seen, places], axis=1) / unit, count)
        points = np.concatenate([metric.back(points[:, :-2]), points[:, -2:]], axis=1)
        place = stationary(
            "matern32", on_device(np.full((1, 1), reach), start.dtype), on_device(np.ones(1), start.dtype)
        )
        kernel = Located(kernel, place)
    else:
        points = metric.back(start.cluster(seen, count))
    weight = on_device(np.ones(patches.count), start.dtype)
    return PatchSumLayer(
        kernel, on_device(points[None], start.dtype), Zero(outputs), outputs, weight, patches
    )


def _scale(sample: np.ndarray, start: Start) -> float:
    return start.lengthscale * float(np.sqrt(np.sum(sample.var(0))) or 1.0)


def _kernel(sample: np.ndarray, metric: "Metric", variance: float, start: Start) -> Kernel:
    """The patches' kernel: one lengthscale for all numbers of a patch, or for all directions of it."""
    lengthscale = on_device(np.full((1, 1), _scale(metric(sample), start)), start.dtype)
    kernel = make_kernel(start.kernel, lengthscale, on_device(np.full(1, variance), start.dtype))
    return kernel if metric.weight is None else Projected(on_device(metric.weight, start.dtype), kernel)


class Metric(NamedTuple):
    """What a kernel sees of patches: projections on some directions, or with no weight all of them."""

    mean: np.ndarray
    weight: np.ndarray | None = None
    inverse: np.ndarray | None = None

    def __call__(self, patches: np.ndarray) -> np.ndarray:
        """Patches as the kernel sees them."""
        return patches if self.weight is None else patches @ self.weight

    def back(self, seen: np.ndarray) -> np.ndarray:
        """Patches that the kernel sees so; mean ones in the directions that it does not see."""
        if self.weight is None:
            return seen
        return self.mean + (seen - self.mean @ self.weight) @ self.inverse


def _metric(sample: np.ndarray, directions: int) -> Metric:
    """The leading principal directions of the patches, nearly white; 0 directions are the patches as they
    are. Neighbouring pixels are alike, so that plain distances of patches are hardly more than differences
    of brightness; edges and textures are in the directions of small variance."""
    mean = sample.mean(0)
    if not directions:
        return Metric(mean)
    values, vectors = np.linalg.eigh((sample - mean).T @ (sample - mean) / len(sample))
    kept = np.argsort(-values)[:directions]
    spread = np.sqrt(np.maximum(values[kept], 0.0) + _WHITENING * (values.mean() or 1.0))
    return Metric(mean, vectors[:, kept] / spread, (vectors[:, kept] * spread).T)


def patches_with_contrast(
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
