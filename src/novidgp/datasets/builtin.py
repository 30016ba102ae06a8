"""Data sets that need no file: scikit-learn's bundled ones, and a curve this package draws itself."""

import numpy as np

from novidgp.datasets.info import DatasetInfo, Fingerprint

_SKLEARN = "BSD 3-Clause (bundled with scikit-learn)"

BUILTIN = (
    DatasetInfo(
        name="steps",
        task="regression",
        target="a curve that is smooth, jumps, then oscillates ever faster",
        licence="MIT (drawn by this package)",
        citation="novidgp",
        source="novidgp.datasets.nonstationary_curve",
        fingerprint=Fingerprint(
            (200, 1), -0.1186003, 1.389252, feature_mean=0.07925934, feature_sd=0.6027042
        ),
        builtin=True,
    ),
    DatasetInfo(
        name="diabetes",
        task="regression",
        target="disease progression after one year",
        citation="Efron et al. (2004), Least angle regression",
        source="https://scikit-learn.org/stable/datasets/toy_dataset.html",
        fingerprint=Fingerprint((442, 10), 152.1335, 77.00575, feature_mean=0.0, feature_sd=0.04756515),
        licence=_SKLEARN,
        builtin=True,
    ),
    DatasetInfo(
        name="breast_cancer",
        task="classification",
        target="malignant 0, benign 1",
        citation="Wolberg, Street and Mangasarian (1995), Breast Cancer Wisconsin (Diagnostic)",
        source="https://archive.ics.uci.edu/dataset/17/breast+cancer+wisconsin+diagnostic",
        fingerprint=Fingerprint(
            (569, 30), class_counts=(212, 357), feature_mean=61.89071, feature_sd=228.2974
        ),
        licence=_SKLEARN,
        builtin=True,
    ),
    DatasetInfo(
        name="wine",
        task="classification",
        target="cultivar",
        citation="Aeberhard and Forina (1991), Wine",
        source="https://archive.ics.uci.edu/dataset/109/wine",
        fingerprint=Fingerprint(
            (178, 13), class_counts=(59, 71, 48), feature_mean=69.13366, feature_sd=215.7462
        ),
        licence=_SKLEARN,
        builtin=True,
    ),
    DatasetInfo(
        name="digits",
        task="classification",
        target="digit",
        citation="Alpaydin and Kaynak (1998), Optical recognition of handwritten digits",
        source="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
        fingerprint=Fingerprint(
            (1797, 64),
            class_counts=(178, 182, 177, 183, 181, 182, 181, 179, 174, 180),
            feature_mean=4.884165,
            feature_sd=6.016788,
        ),
        licence=_SKLEARN,
        builtin=True,
    ),
    DatasetInfo(
        name="iris",
        task="classification",
        target="species",
        citation="Fisher (1936), The use of multiple measurements in taxonomic problems",
        source="https://archive.ics.uci.edu/dataset/53/iris",
        fingerprint=Fingerprint(
            (150, 4), class_counts=(50, 50, 50), feature_mean=3.4645, feature_sd=1.973843
        ),
        licence=_SKLEARN,
        builtin=True,
    ),
)


def nonstationary_curve(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw the noisy curve of the data set `steps`: `X` of shape (n, 1) on [-1, 1], `y` of shape (n,).

    Left of zero it is half a slow sine. At zero it jumps up by 2. Right of zero it is a chirp whose frequency
    grows from 1 to 9. No single lengthscale fits both halves, so that a second layer helps. The noise has
    standard deviation 0.1.
    """
    _check_count(n)
    generator = np.random.default_rng(seed)
    x = np.sort(generator.uniform(-1.0, 1.0, size=n))
    return x[:, None], curve_without_noise(x) + 0.1 * generator.standard_normal(n)


def curve_without_noise(x: np.ndarray) -> np.ndarray:
    """The function behind `nonstationary_curve`, at any points."""
    chirp = 1.0 + 0.6 * np.sin(2.0 * np.pi * (x + 4.0 * x**2))
    return np.where(x < 0.0, np.sin(np.pi * x) - 1.0, chirp)


def town_houses(n: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Draw houses of a made-up town: `X` of shape (n, 5) on [-1, 1], and their prices `y` of shape (n,).

    Columns are longitude, latitude, size, age and condition. The price is a smooth function of size and age,
    a threshold in condition, and what the quarter is worth: three hundred bumps on the map, finer than a
    hundred inducing points can follow. The noise has standard deviation 0.08.
    """
    _check_count(n)
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1.0, 1.0, size=(n, 5))
    return X, town_prices(X) + 0.08 * generator.standard_normal(n)


def town_prices(X: np.ndarray) -> np.ndarray:
    """The function behind `town_houses`: `(n,)` prices without noise."""
    town = np.random.default_rng(7)
    centres, heights = town.uniform(-1.0, 1.0, size=(300, 2)), 0.6 * town.normal(size=300)
    radii = town.uniform(0.03, 0.12, 300)
    place, (size, age, condition) = X[:, :2], X[:, 2:].T
    distances = np.sum((place[:, None] - centres) ** 2, axis=-1)
    quarter = np.exp(-0.5 * distances / radii**2) @ heights
    house = 1.2 * np.tanh(2.0 * size) + 0.5 * np.cos(3.0 * age) * (1.0 + size)
    return house + 0.3 * np.where(condition > 0.3, 1.0, -1.0) + quarter


def _check_count(n: int) -> None:
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}")


def load_builtin(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The arrays `X`, `y` of a built-in data set."""
    if name == "steps":
        return nonstationary_curve()
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    return bunch.data, bunch.target
