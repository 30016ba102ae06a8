"""Patch features of CIFAR-10 under a GP: `python benchmarks/patch_features.py CENTRES TRAIN_IMAGES TEST_IMAGES`."""

import sys
import time

from sklearn.linear_model import LogisticRegression

from novidgp import DGPClassifier
from novidgp.datasets import load_dataset
from novidgp.features import PatchFeatures


def main(centres: int, rows: int, test_rows: int) -> None:
    cifar = load_dataset("cifar10")
    y, y_test = cifar.y[:rows], cifar.y[50_000 : 50_000 + test_rows]
    clock = time.process_time()
    patches = PatchFeatures(num_centres=centres, num_patches=50_000).fit(cifar.X[:rows])
    F, T = (patches.transform(images) for images in (cifar.X[:rows], cifar.X[50_000 : 50_000 + test_rows]))
    print(f"features: {time.process_time() - clock:.0f} s of CPU", flush=True)
    linear = LogisticRegression(C=0.01, max_iter=200).fit(F / F.std(0), y)
    print(f"logistic regression: accuracy {linear.score(T / F.std(0), y_test):.4f}", flush=True)
    options = {"num_layers": 1, "num_inducing": 200, "max_steps": 400, "batch_size": 500, "random_state": 0}
    model = DGPClassifier(inference="dsvi", **options).fit(F, y)
    print(f"GP: accuracy {model.score(T, y_test):.4f}, {time.process_time() - clock:.0f} s of CPU in all")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
