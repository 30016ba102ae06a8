"""Patches of images, cut out by slices.

An image is a row of numbers in the order height, width, channel. `size^2` strided slices, one for each place
in a patch, concatenated on the channels, are all patches of all images: one copy, whose gradient is a sum of
padded pieces. There is no convolution in it: XLA's are slow on a CPU inside a loop, and slower in reverse.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

ImageShape = tuple[int, int, int]
"""Height, width and channels."""


@dataclasses.dataclass(frozen=True)
class Patches:
    """All square patches of an image, `stride` pixels apart, without padding."""

    image: ImageShape
    size: int
    stride: int = 1

    @property
    def grid(self) -> tuple[int, int]:
        """Numbers of patches down and across."""
        height, width, _ = self.image
        return (height - self.size) // self.stride + 1, (width - self.size) // self.stride + 1

    @property
    def count(self) -> int:
        """The number of patches of an image, `P`."""
        return self.grid[0] * self.grid[1]

    @property
    def width(self) -> int:
        """Numbers in a patch, `L`: places times channels."""
        return self.size**2 * self.image[2]

    def positions(self) -> np.ndarray:
        """Row and column of every patch on the grid, `(P, 2)`."""
        return np.stack(np.meshgrid(*map(np.arange, self.grid), indexing="ij"), axis=-1).reshape(-1, 2)

    def __call__(self, x: Any) -> Any:
        """`(*k, n, H W C)` to `(*k, n, P, L)`, for arrays of JAX or NumPy."""
        numpy = np if isinstance(x, np.ndarray) else jnp
        images = x.reshape(-1, *self.image)
        (rows, columns), reach = self.grid, self.stride
        pieces = [
            images[:, i : i + reach * (rows - 1) + 1 : reach, j : j + reach * (columns - 1) + 1 : reach]
            for i in range(self.size)
            for j in range(self.size)
        ]
        return numpy.concatenate(pieces, axis=-1).reshape(*x.shape[:-1], self.count, self.width)


def mean_pool(x: Any, shape: ImageShape, pool: int) -> Any:
    """Means over squares of `pool` x `pool` pixels of images `(*k, n, H W C)`; what is left over at the lower
    and right edge is cut off."""
    if pool == 1:
        return x
    height, width, channels = shape
    images = x.reshape(*x.shape[:-1], height, width, channels)
    down, across = height // pool, width // pool
    images = images[..., : down * pool, : across * pool, :]
    squares = images.reshape(*x.shape[:-1], down, pool, across, pool, channels)
    return squares.mean(axis=(-4, -2)).reshape(*x.shape[:-1], down * across * channels)
