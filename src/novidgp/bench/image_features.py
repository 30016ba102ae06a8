"""CIFAR-10 by fixed features: trained ResNets alone, scaled by a temperature, and under a deep GP; patches.

Heads are fitted to one view of every training image, of the kind that the networks were trained on. There the
networks make no mistakes, and a temperature would learn to be sure of everything: it is fitted to one harder
view of every image instead (`views.py`). The test images are seen by nobody.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from novidgp.bench.problems import Problem
from novidgp.bench.scoring import Classification
from novidgp.bench.spec import Fit
from novidgp.bench.views import harder_views, usual_views

NETWORKS = {"resnet20": (20,), "resnet56": (56,), "resnets": (20, 32, 44, 56)}
_TEMPERATURES = np.geomspace(0.25, 8.0, 101)
_HEAD: dict[str, Any] = {"num_layers": 1, "num_inducing": 100, "batch_size": 500, "max_steps": 400}
"""As in benchmarks/cifar_heads.py, whose test scores were in view when steps and views were chosen."""


def weights(network: str) -> list[Path | None]:
    """The files of a row's networks; None for those that are not on this machine."""
    from novidgp.datasets.cache import search_path

    def locate(depth: int) -> Path | None:
        paths = (folder / f"cifar10_resnet{depth}.safetensors" for folder in search_path())
        return next((path for path in paths if path.exists()), None)

    return [locate(depth) for depth in NETWORKS[network]]


def unavailable_reason(fit: Fit) -> str | None:
    """Why a row cannot be run; None if it can."""
    network = fit.method.partition("-")[0]
    if fit.dataset != "cifar10":
        return f"{fit.method} is for cifar10"
    if network in NETWORKS and None in weights(network):
        return f"{fit.method} needs cifar10_resnet*.safetensors beside the data sets (NOVIDGP_DATA)"
    return None


def as_images(X: np.ndarray) -> np.ndarray:
    """Images as the networks take them, from images or flat rows."""
    return np.asarray(X).reshape(-1, 32, 32, 3).astype(np.uint8)


def resnet(fit: Fit, problem: Problem) -> Classification:
    """A row of ResNets: `<network>` is the softmax, `-scaled` with a temperature, `-novi` with a deep GP."""
    from scipy.special import softmax

    from novidgp import DGPClassifier
    from novidgp.features import CifarResNet
    from novidgp.features.transformers import feature_rows

    network, _, head = fit.method.partition("-")
    net = CifarResNet([path for path in weights(network) if path is not None])
    classes = np.unique(problem.y)

    def features(X: np.ndarray) -> np.ndarray:
        return feature_rows(net, as_images(X))

    def probabilities(features: np.ndarray, temperature: float = 1.0) -> np.ndarray:
        return softmax(net.logits_of_features(features) / temperature, axis=-1).mean(0)

    if not head:
        return Classification(lambda X: probabilities(features(X)), classes)
    rng = np.random.default_rng([fit.seed, 2])
    if head == "scaled":
        views = features(harder_views(as_images(problem.X), rng))
        best = best_temperature(lambda t: probabilities(views, t), np.searchsorted(classes, problem.y))
        return Classification(lambda X: probabilities(features(X), best), classes)
    views = features(usual_views(as_images(problem.X), rng))
    model = DGPClassifier(random_state=fit.seed, verbose=False, **_HEAD).fit(views, problem.y)
    return Classification(lambda X: model.predict_proba(features(X)), model.classes_)


def best_temperature(probabilities: Callable[[float], np.ndarray], labels: np.ndarray) -> float:
    """The temperature with the least log loss of `labels`, which are column numbers."""

    def loss(temperature: float) -> float:
        chosen = probabilities(temperature)[np.arange(len(labels)), labels]
        return -float(np.mean(np.log(np.maximum(chosen, 1e-12))))

    return float(min(_TEMPERATURES, key=loss))


def patches(fit: Fit, problem: Problem) -> Classification:
    """A deep GP on patch features, which are learned from the training images."""
    from novidgp import DGPClassifier
    from novidgp.features import PatchFeatures

    features = PatchFeatures(num_centres=1600, components=64, class_scores=True, random_state=fit.seed)
    options: dict[str, Any] = {"num_layers": 1, "num_inducing": 200, "batch_size": 500, "max_steps": 1000}
    model = DGPClassifier(features=features, random_state=fit.seed, verbose=False, **options)
    model.fit(as_images(problem.X), problem.y)
    return Classification(lambda X: model.predict_proba(as_images(X)), model.classes_)


FITTERS: dict[str, Callable[[Fit, Problem], Classification]] = {
    **{name + head: resnet for name in NETWORKS for head in ("", "-scaled", "-novi")},
    "patches-novi": patches,
}
