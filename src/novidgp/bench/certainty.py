"""What a classifier is sure of, as plain values that are kept with its scores."""

import base64
from typing import Any

import numpy as np

_BINS = 10
LEAST = 8
"""Images that are kept."""


def certainty(labels: np.ndarray, probabilities: np.ndarray, images: np.ndarray) -> dict[str, Any]:
    """Plain values for a result line.

    `reliability` has, for every tenth of the largest probability that occurs, its mean, the share of right
    guesses and the share of images; `unsure` the images with the smallest largest probability, as bytes.
    """
    guess, sure = probabilities.argmax(1), probabilities.max(1)
    tenth = np.minimum((_BINS * sure).astype(int), _BINS - 1)
    bins = [tenth == index for index in range(_BINS)]
    reliability = [
        [float(sure[own].mean()), float((guess == labels)[own].mean()), float(own.mean())]
        for own in bins
        if own.any()
    ]
    if images.ndim < 3:
        return {"reliability": reliability}
    shown = [
        {
            "label": int(labels[row]),
            "guess": int(guess[row]),
            "chance": float(sure[row]),
            "pixels": base64.b64encode(_as_bytes(images[row]).tobytes()).decode(),
        }
        for row in np.argsort(sure)[:LEAST]
    ]
    return {"reliability": reliability, "unsure": {"shape": list(images.shape[1:]), "images": shown}}


def _as_bytes(image: np.ndarray) -> np.ndarray:
    """Pixels from 0 to 255; a last axis of one channel stays."""
    if image.dtype == np.uint8:
        return image
    low, high = float(image.min()), float(image.max())
    return np.rint(255 * (image - low) / ((high - low) or 1.0)).astype(np.uint8)
