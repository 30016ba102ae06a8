"""Inducing points of a wide last layer."""

from typing import Any

import numpy as np
from sklearn.cluster import MiniBatchKMeans

from novidgp.model.conv_layers import Located, PatchSumLayer
from novidgp.model.conv_start import patches_with_contrast
from novidgp.model.kernels import Kernel, Projected
from novidgp.model.layers import Layer

_IMAGES = 1_000
"""Whose patches are clustered: all patches of all images would take gigabytes."""


def inducing_inputs(
    last: Layer, inputs: np.ndarray, count: int, places_across: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray | None]:
    """About `count` inducing points `(1, m, d)` for a layer with such inputs, and the places `(g, 2)` of
    patches that have some: a grid of so many down and across."""
    if not isinstance(last, PatchSumLayer):
        chosen = rng.permutation(len(inputs))[:count]
        return inputs[None, np.sort(chosen)], None
    patches, _ = patches_with_contrast(last.patches(inputs[:_IMAGES]), last.patches, rng)
    kernel, places = last.kernel, None
    if isinstance(kernel, Located):
        kernel, places = kernel.patch, _places(last.patches.grid, places_across)
        count = max(1, count // len(places))
    return _centres(kernel, patches, min(count, len(patches)), rng)[None], places


def _places(grid: tuple[int, int], across: int) -> np.ndarray:
    """Centres of equal parts of the grid."""
    parts = [min(across, length) for length in grid]
    axes = [
        (np.arange(count) + 0.5) * length / count - 0.5 for count, length in zip(parts, grid, strict=True)
    ]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)


def _centres(kernel: Kernel, patches: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Means of clusters of patches, as the kernel sees them."""
    seen = patches @ np.asarray(kernel.weight) if isinstance(kernel, Projected) else patches
    method: Any = MiniBatchKMeans
    clusters = method(count, n_init=1, random_state=int(rng.integers(2**31 - 1)))
    label = clusters.fit_predict(seen)
    sizes = np.bincount(label, minlength=count)
    sums = np.zeros((count, patches.shape[1]))
    np.add.at(sums, label, patches)
    return (sums / np.maximum(sizes, 1)[:, None])[sizes > 0]
