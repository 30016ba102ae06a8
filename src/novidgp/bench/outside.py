"""How well a classifier of images tells its own kind of images from others: the area under the curve of its
largest probability.

MNIST against Fashion-MNIST and the other way round; CIFAR-10 against uniform noise and against MNIST in
random colours. Sets that are not on the machine are left out.
"""

from collections.abc import Callable

import numpy as np

from novidgp.bench.problems import Problem
from novidgp.bench.scoring import Classification, Scores

ROWS = 2_000
"""Images of each set."""


def outside_scores(method: Classification, problem: Problem, dataset: str, seed: int = 0) -> Scores:
    """`auroc_<set>` for all sets that belong to a data set; nothing for other data sets."""
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng([seed, 3])
    scores: Scores = {}
    inside = None
    for name, images in OUTSIDE.get(dataset, {}).items():
        found = images(rng)
        if found is None:
            continue
        inside = method.probabilities(problem.X_test[:ROWS]).max(1) if inside is None else inside
        sure = np.concatenate([inside, method.probabilities(found.reshape(-1, *problem.X.shape[1:])).max(1)])
        scores[f"auroc_{name}"] = float(roc_auc_score(np.arange(len(sure)) < len(inside), sure))
    return scores


def _last_images(name: str) -> np.ndarray | None:
    """Test images: they are the last ones."""
    from novidgp.datasets import is_available, load_dataset

    return np.asarray(load_dataset(name).X[-ROWS:]).reshape(-1, 28, 28) if is_available(name) else None


def _noise(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (ROWS, 32, 32, 3)).astype(np.uint8)


def _coloured_digits(rng: np.random.Generator) -> np.ndarray | None:
    digits = _last_images("mnist")
    if digits is None:
        return None
    framed = np.pad(digits, ((0, 0), (2, 2), (2, 2)))[..., None]
    return (framed * rng.random((len(framed), 1, 1, 3))).astype(np.uint8)


OUTSIDE: dict[str, dict[str, Callable[[np.random.Generator], np.ndarray | None]]] = {
    "mnist": {"fashion": lambda rng: _last_images("fashion_mnist")},
    "fashion_mnist": {"mnist": lambda rng: _last_images("mnist")},
    "cifar10": {"noise": _noise, "mnist": _coloured_digits},
}
"""Images that are not of a data set, by the name of the score."""
