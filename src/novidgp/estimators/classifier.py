"""Deep Gaussian process classification."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_consistent_length
from sklearn.utils.multiclass import check_classification_targets

from novidgp.estimators.arrays import fit_arrays
from novidgp.estimators.base import DGPEstimator
from novidgp.estimators.checks import check_labels, weighted_rows
from novidgp.estimators.sources import ArrayRows, TableRows, row_source
from novidgp.estimators.streaming import fit_rows, learn_classes, note_source, open_rows, refuse_options
from novidgp.estimators.transformed import fit_transformer
from novidgp.estimators.warm import goes_on
from novidgp.inference import Method
from novidgp.local.class_choice import ClassPaths, fit_class_layer
from novidgp.training.loop import Callback


class DGPClassifier(ClassifierMixin, DGPEstimator):
    """Deep Gaussian process classification.

    Parameters and attributes are those of `DGPRegressor`, with two differences: `likelihood` is `bernoulli`
    (probit link, two classes), `softmax`, or `auto`, which takes the first for two classes and the second for
    more; and `classes_` holds the labels."""

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: str | None = None,
        callbacks: Iterable[Callback] = (),
        chunk: int = 100,
    ) -> Self:
        """Fit to rows `X` `(n, d)`, or images, and labels `y` `(n,)`: numbers or text. Weights, callbacks and
        rows that stay on disk as in `DGPRegressor.fit`."""
        method = self._check_parameters("classification")
        source = row_source(X, y, target, "classification", features=self.features)
        if source is not None:
            return self._fit_source(source, method, sample_weight, callbacks=callbacks, chunk=chunk)
        check_labels(y)
        X = fit_transformer(self, X, y)
        X, y = self._check_inputs(X, y=y, fitting=True)
        check_classification_targets(y)
        X, y, weight = weighted_rows(X, y, sample_weight)
        if goes_on(self):
            unseen = ~np.isin(y, self.classes_)
            if unseen.any():
                raise ValueError(
                    f"y holds the label {y[unseen].tolist()[0]!r}, which the last fit has not seen "
                    f"({self.classes_.tolist()}). Fit with warm_start=False."
                )
        else:
            self.classes_ = np.unique(y)
        labels = np.searchsorted(self.classes_, y)
        likelihood, count = self._class_likelihood()
        self.target_ndim_ = 1
        config = self._config(likelihood, num_targets=1, num_classes=count)
        targets = labels.astype(np.float64)[:, None]
        options = {"scale_targets": False, "callbacks": callbacks, "chunk": chunk}
        fit_arrays(self, X, targets, method, config, weight=weight, **options)
        return self

    def _class_likelihood(self) -> tuple[str, int]:
        """The likelihood for the classes, and how many there are."""
        count = len(self.classes_)
        if count < 2:
            raise ValueError(
                f"y holds one class only ({self.classes_.tolist()[0]!r}); a classifier needs two or more."
            )
        likelihood = self.likelihood
        if likelihood == "auto":
            likelihood = "bernoulli" if count == 2 else "softmax"
        if likelihood == "bernoulli" and count > 2:
            raise ValueError(
                f"likelihood='bernoulli' is for two classes and y holds {count}; use 'softmax' or 'auto'."
            )
        return likelihood, count

    def _fit_source(
        self, source: TableRows | ArrayRows, method: Method, sample_weight: Any, **options: Any
    ) -> Self:
        """Fit to rows that stay on disk."""
        refuse_options(self, sample_weight)
        self.classes_ = learn_classes(source)
        likelihood, count = self._class_likelihood()

        def numbered(y):
            return np.searchsorted(self.classes_, y).astype(np.float64)

        file = open_rows(source, numbered, dtype=self.dtype, scale_targets=False)
        self.target_ndim_ = 1
        config = self._config(likelihood, num_targets=1, num_classes=count)
        fit_rows(self, file, method, config, **options)
        note_source(self, source)
        return self

    def _local_layer(self, predict, y, settings, **options):
        def paths(rows: np.ndarray) -> ClassPaths:
            predictive = predict(rows)
            assert predictive.columns is not None
            return ClassPaths(predictive.probabilities(), predictive.class_draws(), predictive.columns)

        return fit_class_layer(paths, y[:, 0].astype(int), settings, **options)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities `(n, classes)`, in the order of `classes_`."""
        return self._collect(X, lambda predictive, _: predictive.probabilities())[0]

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of every row."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """`log p(y | X)`: the log probability of every row's label, `(n,)`."""
        probabilities = self.predict_proba(X)
        y = np.asarray(y).reshape(-1)
        check_consistent_length(probabilities, y)
        unseen = ~np.isin(y, self.classes_)
        if unseen.any():
            raise ValueError(
                f"y holds the label {y[unseen].tolist()[0]!r}, which is not in {self.classes_.tolist()}."
            )
        chosen = probabilities[np.arange(len(y)), np.searchsorted(self.classes_, y)]
        return np.log(np.maximum(chosen, np.finfo(float).tiny))
