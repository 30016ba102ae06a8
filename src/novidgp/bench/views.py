"""Views of training images: the usual crops and flips, and harder ones."""

import numpy as np


def usual_views(images: np.ndarray, rng: np.random.Generator, shift: int = 4) -> np.ndarray:
    """Every image `(n, h, w, c)` shifted by up to `shift` pixels, and every other one mirrored."""
    count, height, width = images.shape[:3]
    padded = np.pad(images, ((0, 0), (shift, shift), (shift, shift), (0, 0)))
    down, right = rng.integers(0, 2 * shift + 1, (2, count))
    rows, columns = down[:, None] + np.arange(height), right[:, None] + np.arange(width)
    mirrored = rng.random(count) < 0.5
    columns[mirrored] = columns[mirrored, ::-1]
    return padded[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]


def harder_views(images: np.ndarray, rng: np.random.Generator, strength: float = 0.6) -> np.ndarray:
    """Every image `(n, h, w, c)` of uint8 turned, scaled, shifted, mirrored, lit otherwise and partly hidden.

    Shifts are up to 4 pixels. At strength 1 turns are up to 20 degrees, scales 20 %, contrasts change by
    half, channels by 20 grey levels, and a square of up to 10 pixels hides a part.
    """
    blocks = [images[start : start + 1000] for start in range(0, len(images), 1000)]
    return np.concatenate([_views(block, rng, strength) for block in blocks])


def _views(images: np.ndarray, rng: np.random.Generator, strength: float) -> np.ndarray:
    count = len(images)
    shown = _sample(images.astype(np.float32), *_places(images.shape, rng, strength))
    mean = shown.mean((1, 2, 3), keepdims=True)
    contrast = np.exp(0.4 * strength * rng.uniform(-1, 1, (count, 1, 1, 1)))
    light = 20.0 * strength * rng.uniform(-1, 1, (count, 1, 1, images.shape[3]))
    hidden = _squares(images.shape, rng, int(10 * strength))
    shown = np.where(hidden[..., None], mean, (shown - mean) * contrast + mean + light)
    return np.clip(np.rint(shown), 0, 255).astype(np.uint8)


def _places(
    shape: tuple[int, ...], rng: np.random.Generator, strength: float
) -> tuple[np.ndarray, np.ndarray]:
    """Where every pixel of a view is taken from: rows and columns, both `(n, h, w)`."""
    count, height, width = shape[:3]
    angle = np.deg2rad(20.0) * strength * rng.uniform(-1, 1, count)
    scale = np.exp(0.2 * strength * rng.uniform(-1, 1, count))
    down, right = rng.uniform(-4, 4, (2, count))[..., None, None]
    mirror = np.where(rng.random(count) < 0.5, -1.0, 1.0)[:, None, None]
    cosine, sine = (f(angle)[:, None, None] / scale[:, None, None] for f in (np.cos, np.sin))
    y, x = np.meshgrid(
        np.arange(height) - (height - 1) / 2, np.arange(width) - (width - 1) / 2, indexing="ij"
    )
    rows = cosine * y - sine * x + down + (height - 1) / 2
    columns = mirror * (sine * y + cosine * x) + right + (width - 1) / 2
    return rows, columns


def _sample(images: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Pixels between pixels, by the four around them; black outside."""
    height, width = images.shape[1:3]
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    top = np.clip(np.floor(rows), -1, height - 1).astype(int)
    left = np.clip(np.floor(columns), -1, width - 1).astype(int)
    low, far = (rows - top)[..., None], (columns - left)[..., None]
    image = np.arange(len(images))[:, None, None]
    upper, lower = (
        (1 - far) * padded[image, top + down, left + 1] + far * padded[image, top + down, left + 2]
        for down in (1, 2)
    )
    inside = (rows > -1) & (rows < height) & (columns > -1) & (columns < width)
    return np.where(inside[..., None], (1 - low) * upper + low * lower, 0.0)


def _squares(shape: tuple[int, ...], rng: np.random.Generator, most: int) -> np.ndarray:
    """Which pixels are hidden, `(n, h, w)`: a square of 0 to `most` pixels somewhere."""
    count, height, width = shape[:3]
    side = rng.integers(0, most + 1, count)[:, None]

    def near(length: int) -> np.ndarray:
        centre = rng.integers(0, length, count)[:, None]
        return 2 * np.abs(np.arange(length) - centre) < side

    return near(height)[:, :, None] & near(width)[:, None, :]
