"""Augmentation: every step sees the images of its batch shifted by a few pixels or mirrored, at random.

The images of a batch are gathered anew inside the compiled step, so that the data stay as they are. Which
shift and which side are functions of (key, step), as all noise is.
"""

import dataclasses
from typing import ClassVar, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.inference.base import Wrapping

AUGMENTATIONS = ("shift", "flip", "shift+flip")
_PIXELS_A_SHIFT = 14


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Random shifts by up to `shift` pixels up, down and sideways, and mirror images where `flip` is set."""

    image: tuple[int, int, int]
    """Height, width and channels."""
    shift: int
    flip: bool

    def __call__(self, x: Float[Array, "n hwc"], *, key: PRNGKeyArray) -> Float[Array, "n hwc"]:
        """Each image changed in its own way. What a shift uncovers repeats the image's edge."""
        height, width, channels = self.image
        down_key, across_key, flip_key = jax.random.split(key, 3)
        rows, columns = jnp.arange(height), jnp.arange(width)
        if self.flip:
            mirrored = jax.random.bernoulli(flip_key, shape=(len(x), 1))
            columns = jnp.where(mirrored, columns[::-1], columns)
        down, across = (
            jax.random.randint(key, (len(x), 1), -self.shift, self.shift + 1)
            for key in (down_key, across_key)
        )
        rows, columns = jnp.clip(rows + down, 0, height - 1), jnp.clip(columns + across, 0, width - 1)
        source = (rows[:, :, None] * width + columns[:, None, :]).reshape(len(x), -1, 1)
        pixels = x.reshape(len(x), -1, channels)
        return jnp.take_along_axis(pixels, source, axis=1).reshape(x.shape)


def augmentation(name: str, image: tuple[int, int, int]) -> Augmentation:
    """An augmentation by its name; shifts are one pixel for every fourteen of the shorter side."""
    parts = name.split("+")
    shift = max(1, round(min(image[:2]) / _PIXELS_A_SHIFT)) if "shift" in parts else 0
    return Augmentation(image, shift, "flip" in parts)


@final
@dataclasses.dataclass(frozen=True)
class Augmented(Wrapping):
    """Another method, whose steps see augmented batches."""

    name: ClassVar[str] = "augmented"
    augmentation: Augmentation

    def algorithm(self, num_data, steps, *, step_scale=1.0):
        inference = self.method.algorithm(num_data, steps, step_scale=step_scale)

        def step(state, batch, *, key):
            image_key, key = jax.random.split(key)
            return inference.step(state, batch._replace(x=self.augmentation(batch.x, key=image_key)), key=key)

        return inference._replace(step=step)
