"""Heads on trained CIFAR-10 ResNets, with features kept in a folder: what docs/results.md says of them.

    NOVIDGP_DATA=... python benchmarks/cifar_heads.py FOLDER 20+32+44+56

The GP is fitted to the first 5,000 training images in crops and flips, a temperature to these and to the
first 15,000 in harder views. Scores are on all test images, and on 2,000 each of noise and MNIST in colour.
Features of all four networks take 28 s of CPU for 5,000 images.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.special import softmax
from sklearn.metrics import roc_auc_score

from novidgp import DGPClassifier
from novidgp.bench.image_features import best_temperature, weights
from novidgp.bench.views import harder_views, usual_views
from novidgp.datasets import load_dataset
from novidgp.features import CifarResNet
from novidgp.prediction.scores import classification_scores

DEPTHS = (20, 32, 44, 56)


def main(folder: Path, depths: tuple[int, ...], method: str) -> None:
    cifar, digits = load_dataset("cifar10"), load_dataset("mnist")
    train, test = cifar.X[:50_000], cifar.X[50_000:]
    y, y_test = cifar.y[:50_000], cifar.y[50_000:]
    paths = [path for path in weights("resnets") if path is not None]
    every = CifarResNet(paths)

    def features(name: str, images: Callable[[], np.ndarray]) -> np.ndarray:
        file = folder / f"{name}.npy"
        if not file.exists():
            np.save(file, every.transform(images()))
        parts = np.split(np.load(file), len(DEPTHS), axis=1)
        return np.concatenate([parts[DEPTHS.index(depth)] for depth in depths], axis=1)

    def block(index: int) -> np.ndarray:
        return train[5000 * index : 5000 * index + 5000]

    rng = np.random.default_rng(0)
    colours = rng.random((2000, 1, 1, 3))
    noise = rng.integers(0, 256, (2000, 32, 32, 3)).astype(np.uint8)
    framed = np.pad(digits.X[60_000:62_000].reshape(-1, 28, 28), ((0, 0), (2, 2), (2, 2)))[..., None]
    usual = features("usual_0", lambda: usual_views(block(0), np.random.default_rng(0)))
    harder = np.concatenate(
        [
            features(f"harder_{c}", lambda c=c: harder_views(block(c), np.random.default_rng(c + 1)))
            for c in range(3)
        ]
    )
    tested = np.concatenate(
        [features(f"test_{k}", lambda k=k: test[2000 * k : 2000 * k + 2000]) for k in range(5)]
    )
    outside = {
        "noise": features("noise", lambda: noise),
        "MNIST": features("mnist", lambda: (framed * colours).astype(np.uint8)),
    }
    net = CifarResNet([paths[DEPTHS.index(depth)] for depth in depths])

    def heads(temperature: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda rows: softmax(net.logits_of_features(rows) / temperature, axis=-1).mean(0)

    def show(name: str, probabilities: Callable[[np.ndarray], np.ndarray]) -> None:
        chances = probabilities(tested)
        scores = classification_scores(y_test, chances / chances.sum(1, keepdims=True))
        inside = chances[:2000].max(1)
        line = [f"{key} {scores[key]:.4f}" for key in ("accuracy", "log_loss", "ece", "brier")]
        for key, rows in outside.items():
            sure = np.concatenate([inside, probabilities(rows).max(1)])
            line.append(f"AUROC {key} {roc_auc_score(np.arange(4000) < 2000, sure):.4f}")
        print(f"{name}: {', '.join(line)}", flush=True)

    show("softmax", heads(1.0))
    for name, views, labels in (("crops and flips", usual, y[:5000]), ("harder views", harder, y[:15_000])):
        best = best_temperature(lambda t, views=views: heads(t)(views), labels)
        show(f"temperature {best:.2f} from {name}", heads(best))
    began = time.perf_counter()
    options = {"num_layers": 1, "num_inducing": 100, "max_steps": 400, "batch_size": 500, "random_state": 0}
    model = DGPClassifier(inference=method, num_predict_samples=50, **options).fit(usual, y[:5000])
    show(f"{method}, {time.perf_counter() - began:.0f} s", model.predict_proba)


if __name__ == "__main__":
    chosen = tuple(int(depth) for depth in sys.argv[2].split("+"))
    main(Path(sys.argv[1]), chosen, sys.argv[3] if len(sys.argv) > 3 else "novi")
