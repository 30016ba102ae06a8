"""What the image features ask of their inputs."""

from typing import Any

import numpy as np


def check_images(X: Any, *, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Images as `(n, height, width, channels)` of any numeric type; grey ones get an axis of one channel.

    `shape` is what one image has to be: `(height, width, channels)`.
    """
    images = np.asarray(X)
    if images.dtype.kind not in "buif":
        raise TypeError(f"X holds {images.dtype} values; images are arrays of numbers.")
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4:
        raise ValueError(
            f"X has shape {np.shape(X)}; images are (n, height, width) or (n, height, width, channels). "
            "Flat rows become images by X.reshape(-1, height, width, channels)."
        )
    if shape is not None and images.shape[1:] != shape:
        raise ValueError(
            f"X has images of shape {images.shape[1:]}, and these features are for {shape}: "
            "(height, width, channels), channels last."
        )
    if not np.isfinite(images).all():
        raise ValueError("X holds NaN or infinite pixels; fill them in or drop these images.")
    return images


def unit_pixels(images: np.ndarray) -> np.ndarray:
    """Pixels from 0 to 1: integers are divided by 255, other numbers have to be in that range."""
    if images.dtype.kind in "bui":
        if images.size and (images.min() < 0 or images.max() > 255):
            raise ValueError(f"X holds pixels from {images.min()} to {images.max()}; integers are 0 to 255.")
        return images.astype(np.float32) / np.float32(255.0)
    if images.size and (images.min() < 0 or images.max() > 1):
        raise ValueError(
            f"X holds pixels from {images.min():g} to {images.max():g}; other numbers than integers are 0 to "
            "1. Divide by 255, or pass integers (X.astype('uint8'))."
        )
    return images.astype(np.float32)
