"""The methods of a benchmark: ours by name, and the baselines beside them."""

import inspect
import time
import warnings
from typing import Any

import numpy as np

from novidgp.bench import baselines, image_features
from novidgp.bench.outside import outside_scores
from novidgp.bench.problems import Problem
from novidgp.bench.scoring import Classification, Regression, Scores, from_predictive, thin
from novidgp.bench.spec import BASELINES, IMAGE_FEATURES, SYSTEMS, Fit
from novidgp.prediction.scores import point_scores

CURVE_ROWS = 1_000
CURVE_CHUNK = 20
_BATCH = 1_000
"""Rows of a step where a suite gives all methods the same steps."""


def available_methods() -> tuple[str, ...]:
    """The methods that can be run now."""
    from novidgp.inference import METHODS

    return (*METHODS, *SYSTEMS, *BASELINES)


def unavailable_reason(fit: Fit) -> str | None:
    """Why a fit cannot be run on this machine or at all, in words; None if it can."""
    from novidgp.datasets import dataset_info, is_available

    info = dataset_info(fit.dataset)
    if not info.builtin and not is_available(fit.dataset):
        return f"data set {fit.dataset} is not on this machine; see `novidgp data info {fit.dataset}`"
    if fit.method in IMAGE_FEATURES:
        return image_features.unavailable_reason(fit)
    return baselines.unavailable_reason(fit, info.task, info.rows)


def fit_method(fit: Fit, problem: Problem) -> tuple[Regression | Classification, Scores]:
    """The fitted method, and facts about the fit itself."""
    if fit.method in IMAGE_FEATURES:
        method = image_features.FITTERS[fit.method](fit, problem)
        return method, outside_scores(method, problem, fit.dataset, fit.seed)
    if fit.baseline:
        return baselines.FITTERS[fit.method](fit, problem), {}
    return deep_gp(fit, problem)


def make_estimator(fit: Fit, task: str) -> Any:
    """The estimator of a fit; options are parameters of it where it has them, else of the method. A wide last
    layer would be the same one whatever the method, so that it is only where the options have it."""
    import novidgp

    kind = novidgp.DGPClassifier if task == "classification" else novidgp.DGPRegressor
    known = inspect.signature(kind.__init__).parameters
    inference, system = SYSTEMS.get(fit.method, (fit.method, {}))
    options = fit.options | system
    own = {name: value for name, value in options.items() if name in known}
    rest = {name: value for name, value in options.items() if name not in known}
    settings: dict[str, Any] = {
        "random_state": fit.seed,
        "verbose": False,
        "preset": fit.preset,
        "wide": None,
    }
    if fit.steps is not None:
        settings["batch_size"] = _BATCH
    for name, value in (
        ("num_layers", fit.layers),
        ("num_inducing", fit.inducing),
        ("max_steps", fit.steps),
    ):
        if value is not None:
            settings[name] = value
    return kind(inference=inference, inference_options=rest or None, **settings | own)


def deep_gp(fit: Fit, problem: Problem) -> tuple[Regression | Classification, Scores]:
    """A deep GP by any of our methods."""
    model = make_estimator(fit, problem.task)
    curve = Curve(model, problem) if fit.curve else None
    chunk = fit.chunk or (CURVE_CHUNK if fit.curve else None)
    watching: dict[str, Any] = {} if chunk is None else {"chunk": chunk}
    if curve is not None:
        watching["callbacks"] = (curve,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # fewer rows than inducing points; divergence is kept
        model.fit(problem.X, problem.y, **watching)
    facts: Scores = {
        "fit_status": model.fit_status_,
        "fit_notes": list(model.fit_notes_),
        "steps_done": model.n_iter_,
        "seconds_per_step": _seconds_per_step(model.history_),
    }
    if curve is not None:
        facts["curve"] = curve.points
    if problem.task == "classification":
        method = Classification(model.predict_proba, model.classes_)
        return method, facts | outside_scores(method, problem, fit.dataset, fit.seed)
    return from_predictive(model.predictive), facts


def _seconds_per_step(history: dict[str, np.ndarray]) -> float | None:
    """Median over chunks, without the first, which compiles, and a shorter last one; None if none is left."""
    steps = np.diff(history["chunk_step"], prepend=0)
    whole = (np.arange(len(steps)) > 0) & (steps == steps[0])
    return float(np.median(history["seconds"][whole] / steps[whole])) if whole.any() else None


class Curve:
    """A callback of the trainer: test and training scores during the run, its own time not counted."""

    def __init__(self, model: Any, problem: Problem):
        from novidgp.numerics.scaling import identity, standardiser

        self.points: dict[str, list[float]] = {}
        self._model = model
        self._classes = np.unique(problem.y) if problem.task == "classification" else None
        targets = identity(1) if self._classes is not None else standardiser(problem.y[:, None])
        self._scaling = (standardiser(problem.X), targets)
        train, test = thin(len(problem.X), CURVE_ROWS), thin(len(problem.X_test), CURVE_ROWS)
        self._rows = {
            "train": (problem.X[train], problem.y[train]),
            "test": (problem.X_test[test], problem.y_test[test]),
        }
        self._spent = 0.0

    def __call__(self, progress: Any) -> None:
        """Score the present model and keep the point."""
        began = time.perf_counter()
        fitted = progress.fitted()
        point: dict[str, float] = {"step": progress.step, "seconds": progress.seconds - self._spent}
        for name, (X, y) in self._rows.items():
            error, nll = self._score(fitted, X, y)
            point |= {f"{'rmse' if self._classes is None else 'error'}_{name}": error, f"nll_{name}": nll}
        for name, value in point.items():
            self.points.setdefault(name, []).append(value)
        self._spent += time.perf_counter() - began

    def _score(self, fitted, X, y) -> tuple[float, float]:
        """RMSE or share of errors, and mean negative log density."""
        import jax

        from novidgp.prediction.predictor import predict

        inputs, targets = self._scaling
        paths, key = int(self._model.num_predict_samples), jax.random.key(0)
        predictive = predict(fitted, X, num_paths=paths, key=key, inputs=inputs, targets=targets)
        if self._classes is None:
            scores = point_scores(y, predictive.mean()[:, 0], predictive.log_prob(y[:, None]))
            return scores["rmse"], scores["nll"]
        chances = predictive.probabilities()
        column = np.minimum(np.searchsorted(self._classes, y), len(self._classes) - 1)
        seen = self._classes[column] == y
        chosen = np.where(seen, chances[np.arange(len(y)), column], 0.0)
        wrong = ~seen | (np.argmax(chances, axis=1) != column)
        return float(np.mean(wrong)), float(-np.mean(np.log(np.maximum(chosen, np.finfo(float).tiny))))
