"""The methods of a benchmark: ours by name, and what scikit-learn offers for comparison."""

import inspect
import time
import warnings
from typing import Any, cast

import numpy as np

from novidgp.bench.problems import Problem
from novidgp.bench.scoring import Classification, Regression, Scores, thin
from novidgp.bench.spec import BASELINES, Fit

EXACT_GP_ROWS = 2_000
CURVE_ROWS = 1_000
CURVE_CHUNK = 20


def available_methods() -> tuple[str, ...]:
    """The methods that can be run now."""
    from novidgp.inference import METHODS

    return (*METHODS, *BASELINES)


def why_not(fit: Fit) -> str | None:
    """Why a fit cannot be run on this machine or at all, in words; None if it can."""
    from novidgp.datasets import dataset_info, is_available

    info = dataset_info(fit.dataset)
    if not info.builtin and not is_available(fit.dataset):
        return f"data set {fit.dataset} is not on this machine; see `novidgp data info {fit.dataset}`"
    if fit.method == "exact-gp":
        if info.task == "classification":
            return "exact-gp is for regression"
        if info.rows > EXACT_GP_ROWS:
            return f"exact-gp is for at most {EXACT_GP_ROWS:,} rows, and {fit.dataset} has {info.rows:,}"
    return None


def fit_method(fit: Fit, problem: Problem) -> tuple[Regression | Classification, Scores]:
    """The fitted method, and facts about the fit itself."""
    if fit.method == "exact-gp":
        return exact_gp(fit, problem), {}
    if fit.method == "hist-gb":
        return hist_gb(fit, problem), {}
    return deep_gp(fit, problem)


# --- ours -----------------------------------------------------------------------------------------


def make_estimator(fit: Fit, task: str) -> Any:
    """The estimator of a fit; options are parameters of it where it has them, else of the method."""
    import novidgp

    kind = novidgp.DGPClassifier if task == "classification" else novidgp.DGPRegressor
    known = inspect.signature(kind.__init__).parameters
    own = {name: value for name, value in fit.options.items() if name in known}
    rest = {name: value for name, value in fit.options.items() if name not in known}
    settings: dict[str, Any] = {"random_state": fit.seed, "verbose": False, "preset": fit.preset}
    for name, value in (
        ("num_layers", fit.layers),
        ("num_inducing", fit.inducing),
        ("max_steps", fit.steps),
    ):
        if value is not None:
            settings[name] = value
    return kind(inference=fit.method, inference_options=rest or None, **settings | own)


def deep_gp(fit: Fit, problem: Problem) -> tuple[Regression | Classification, Scores]:
    """A deep GP by any of our methods."""
    model = make_estimator(fit, problem.task)
    chunk = fit.chunk or (CURVE_CHUNK if fit.curve else None)
    model._train_options = {} if chunk is None else {"chunk": chunk}
    curve = Curve(model, problem) if fit.curve else None
    if curve is not None:
        model._train_options |= {"callbacks": (curve,)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # fewer rows than inducing points; divergence is kept
        model.fit(problem.X, problem.y)
    if model.fit_status_ == "interrupted":
        raise KeyboardInterrupt
    facts: Scores = {
        "fit_status": model.fit_status_,
        "fit_notes": list(model.fit_notes_),
        "steps_done": model.n_iter_,
        "seconds_per_step": _seconds_per_step(model.history_),
    }
    if curve is not None:
        facts["curve"] = curve.points
    if problem.task == "classification":
        return Classification(model.predict_proba, model.classes_), facts

    def moments(X, y):
        mean, density = model._collect(
            X, lambda block, _: block.mean(), lambda block, rows: block.log_prob(y[rows, None])
        )
        return mean[:, 0], density

    return Regression(moments, model.predict_quantiles), facts


def _seconds_per_step(history: dict[str, np.ndarray]) -> float | None:
    """Median over chunks, without the first, which compiles, and a shorter last one; None if none is left."""
    steps = np.diff(history["chunk_step"], prepend=0)
    whole = (np.arange(len(steps)) > 0) & (steps == steps[0])
    return float(np.median(history["seconds"][whole] / steps[whole])) if whole.any() else None


class Curve:
    """A callback of the trainer: test and training scores along the way, its own time not counted."""

    def __init__(self, model: Any, problem: Problem):
        from novidgp.preprocessing import identity, standardiser

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
        """Add a point."""
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

        from novidgp.predictive import predictives

        paths, key = int(self._model.num_predict_samples), jax.random.key(0)
        wrong, densities = [], []
        for rows, block in predictives(fitted, X, self._scaling, paths, key=key):
            count, target = rows.stop - rows.start, y[rows]
            if self._classes is None:
                densities.append(block.log_prob(target[:, None])[:count])
                wrong.append((block.mean()[:count, 0] - target) ** 2)
            else:
                chances = block.probabilities()[:count]
                column = np.minimum(np.searchsorted(self._classes, target), len(self._classes) - 1)
                seen = self._classes[column] == target
                chosen = np.where(seen, chances[np.arange(count), column], 0.0)
                densities.append(np.log(np.maximum(chosen, np.finfo(float).tiny)))
                wrong.append(~seen | (np.argmax(chances, axis=1) != column))
        error = float(np.mean(np.concatenate(wrong)))
        error = error**0.5 if self._classes is None else error
        return error, float(-np.mean(np.concatenate(densities)))


# --- scikit-learn's -------------------------------------------------------------------------------


def exact_gp(fit: Fit, problem: Problem) -> Regression:
    """Exact GP regression: RBF kernel with a lengthscale per input, by marginal likelihood, three starts."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    from novidgp.preprocessing import standardiser

    scaling = standardiser(problem.X)
    kernel = ConstantKernel(1.0, (1e-2, 1e4)) * RBF(cast(Any, np.full(problem.X.shape[1], 2.0)), (5e-2, 1e3))
    kernel += WhiteKernel(0.05, (1e-6, 2.0))
    gp = GaussianProcessRegressor(kernel, n_restarts_optimizer=2, random_state=fit.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a lengthscale at its bound: an idle input
        gp.fit(scaling.inputs(problem.X), problem.y)

    def predict(X):
        mean, sd = gp.predict(scaling.inputs(X), return_std=True)  # WhiteKernel: sd includes the noise
        return mean, np.asarray(sd)

    return gaussian(predict)


def hist_gb(fit: Fit, problem: Problem) -> Regression | Classification:
    """Gradient-boosted trees; size and number of trees by 5-fold cross-validation on the training rows.

    In regression the predictive is a Gaussian with the standard deviation of the held-out residuals.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.metrics import log_loss
    from sklearn.model_selection import KFold, StratifiedKFold

    X, y = problem.X, problem.y
    classes = np.unique(y) if problem.task == "classification" else None
    kind = HistGradientBoostingRegressor if classes is None else HistGradientBoostingClassifier
    rare = 0 if classes is None else int(np.unique(y, return_counts=True)[1].min())
    folder = StratifiedKFold if rare >= 5 else KFold
    folds = list(folder(5, shuffle=True, random_state=fit.seed).split(X, y))
    most = 500 if classes is None else 200
    best: tuple[float, int, dict[str, Any]] = (np.inf, 1, {})
    for leaves, least in ((8, 5), (8, 20), (31, 5), (31, 20)):
        options = {"max_leaf_nodes": leaves, "min_samples_leaf": least, "early_stopping": False}
        loss = np.zeros(most)
        for inside, outside in folds:
            trees: Any = kind(max_iter=most, random_state=fit.seed, **options).fit(X[inside], y[inside])
            if classes is None:
                for i, mean in enumerate(trees.staged_predict(X[outside])):
                    loss[i] += np.sum((y[outside] - mean) ** 2)
                continue
            seen = np.isin(y[outside], trees.classes_)
            for i, chances in enumerate(trees.staged_predict_proba(X[outside][seen])):
                loss[i] += seen.sum() * log_loss(y[outside][seen], chances, labels=trees.classes_)
        count = int(np.argmin(loss))
        best = min(best, (float(loss[count]), count + 1, options), key=lambda entry: entry[0])
    total, count, options = best
    trees = kind(max_iter=count, random_state=fit.seed, **options).fit(X, y)
    if classes is not None:
        return Classification(trees.predict_proba, trees.classes_)
    sd = np.sqrt(total / len(y))
    return gaussian(lambda X: (trees.predict(X), np.full(len(X), sd)))


def gaussian(predict) -> Regression:
    """A method whose predictive is a Gaussian: `predict(X)` gives its mean and standard deviation."""
    from scipy.stats import norm

    def moments(X, y):
        mean, sd = predict(X)
        return mean, norm.logpdf(y, mean, sd)

    def quantiles(X, levels):
        mean, sd = predict(X)
        return mean[:, None] + sd[:, None] * norm.ppf(levels)

    return Regression(moments, quantiles)
