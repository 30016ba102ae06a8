"""Baselines: exact GP and boosted trees of scikit-learn, XGBoost, GPyTorch's GPs, a local GP on its own.

A baseline is a function of a fit and its problem that returns the fitted method, ready to be scored.
"""

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from novidgp.bench.problems import Problem
from novidgp.bench.scoring import Classification, Regression, from_predictive
from novidgp.bench.spec import LARGE_TREES, Fit
from novidgp.prediction.scores import Gaussian

EXACT_GP_ROWS = 2_000
CROSS_VALIDATED_ROWS = 2_000
XGBOOST_DRAWS = 10
MOST_XGBOOST_TREES = 1_000
_XGBOOST_FIRST = {"max_depth": 7, "eta": 0.05, "min_child_weight": 3.0, "subsample": 0.8}
_REGRESSION_ONLY = ("exact-gp", "local-gp", "xgboost", "gpytorch-dsvi", "gpytorch-svgp", *LARGE_TREES)
MOST_TREES = {"regression": 500, "classification": 200}


def unavailable_reason(fit: Fit, task: str, rows: int) -> str | None:
    """Why a baseline cannot be run; None if it can."""
    if fit.method in _REGRESSION_ONLY and task == "classification":
        return f"{fit.method} is for regression"
    if fit.method == "exact-gp" and rows > EXACT_GP_ROWS:
        return f"exact-gp is for at most {EXACT_GP_ROWS:,} rows, and {fit.dataset} has {rows:,}"
    if fit.method.startswith("gpytorch") and importlib.util.find_spec("gpytorch") is None:
        return f"{fit.method} needs GPyTorch: pip install 'novidgp[peers]'"
    if fit.method == "xgboost" and importlib.util.find_spec("xgboost") is None:
        return "xgboost needs XGBoost: pip install 'novidgp[trees]'"
    return None


def exact_gp(fit: Fit, problem: Problem) -> Regression:
    """Exact GP regression: RBF kernel with a lengthscale per input, by marginal likelihood, three starts."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(1.0, (1e-2, 1e4)) * RBF(cast(Any, np.full(problem.X.shape[1], 2.0)), (5e-2, 1e3))
    kernel += WhiteKernel(0.05, (1e-6, 2.0))
    return from_predictive(fit_exact_gp(kernel, problem.X, problem.y, starts=3, seed=fit.seed))


def fit_exact_gp(
    kernel: Any,
    X: np.ndarray,
    y: np.ndarray,
    *,
    starts: int = 1,
    seed: int = 0,
    kernel_rows: np.ndarray | None = None,
    **options: Any,
) -> Callable[[np.ndarray], Gaussian]:
    """The predictive distribution of scikit-learn's exact GP as a function of raw inputs.

    `kernel` must have a `WhiteKernel` part, so that the standard deviations include the noise. Its parameters
    are learned from the rows number `kernel_rows`, or from all. `options` are those of
    `GaussianProcessRegressor`.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor

    from novidgp.numerics.scaling import standardiser

    scaling = standardiser(X)
    gp = GaussianProcessRegressor(kernel, n_restarts_optimizer=starts - 1, random_state=seed, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a lengthscale at its bound: an unused input
        if kernel_rows is not None and len(kernel_rows) < len(X):
            gp.fit(scaling.inputs(X[kernel_rows]), y[kernel_rows])
            gp.set_params(kernel=gp.kernel_, optimizer=None)
        gp.fit(scaling.inputs(X), y)

    def predictive(X):
        mean, sd = gp.predict(scaling.inputs(X), return_std=True)[:2]
        return Gaussian(np.asarray(mean), np.asarray(sd))

    return predictive


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
    most = MOST_TREES[problem.task]
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
    return from_predictive(lambda X: Gaussian(trees.predict(X), np.full(len(X), sd)))


def large_trees(fit: Fit, problem: Problem) -> Regression:
    """Gradient-boosted trees with scikit-learn's settings, or 1,000 rounds of trees with 127 leaves.

    All rounds are made, on all rows. The predictive is a Gaussian with the standard deviation of residuals at
    a tenth of the rows, which the trees of a first fit have not seen.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    settings: dict[str, Any] = {"random_state": fit.seed, "early_stopping": False}
    if fit.method == LARGE_TREES[1]:
        settings |= {"max_iter": 1000, "max_leaf_nodes": 127}
    trees = HistGradientBoostingRegressor(**settings)
    order = np.random.default_rng([fit.seed, 3]).permutation(len(problem.X))
    outside, inside = np.split(order, [max(1, len(order) // 10)])
    first = trees.fit(problem.X[inside], problem.y[inside])
    sd = float(np.sqrt(np.mean((first.predict(problem.X[outside]) - problem.y[outside]) ** 2)))
    trees.fit(problem.X, problem.y)
    return from_predictive(lambda X: Gaussian(trees.predict(X), np.full(len(X), sd)))


def local_gp(fit: Fit, problem: Problem) -> Regression:
    """The local layer of a model that knows nothing: a GP through nearest rows (Allison et al. 2023)."""
    from novidgp.bench.local_gp import fit_local_gp

    return from_predictive(fit_local_gp(problem.X, problem.y, seed=fit.seed))


def xgboost(fit: Fit, problem: Problem) -> Regression:
    """XGBoost; its settings and the number of trees by a random search on rows held out of the training rows.

    The first setting tried is a sound one, so that the search cannot end far below it. Up to
    `CROSS_VALIDATED_ROWS` rows every setting is cross-validated in 5 folds; beyond, one of the folds is held
    out. The predictive is a Gaussian with the standard deviation of the held-out residuals.
    """
    import xgboost  # pyright: ignore[reportMissingImports]  # an optional dependency
    from sklearn.model_selection import KFold

    X, y = problem.X, problem.y
    rng = np.random.default_rng([fit.seed, 2])
    folds = list(KFold(5, shuffle=True, random_state=fit.seed).split(X))
    folds = folds if len(X) <= CROSS_VALIDATED_ROWS else folds[:1]
    common = {"objective": "reg:squarederror", "nthread": 1, "seed": fit.seed}
    best: tuple[float, int, dict[str, Any]] = (np.inf, 1, {})
    for options in [_XGBOOST_FIRST, *(_xgboost_draw(rng) for _ in range(XGBOOST_DRAWS - 1))]:
        options = options | common
        found = xgboost.cv(
            options,
            xgboost.DMatrix(X, y),
            MOST_XGBOOST_TREES,
            folds=folds,
            early_stopping_rounds=50,
            as_pandas=False,
        )
        errors = cast(dict[str, list[float]], found)["test-rmse-mean"]
        best = min(best, (errors[-1], len(errors), options), key=lambda entry: entry[0])
    sd, count, options = best
    trees = xgboost.train(options, xgboost.DMatrix(X, y), count)

    def predictive(X):
        return Gaussian(trees.predict(xgboost.DMatrix(X)), np.full(len(X), sd))

    return from_predictive(predictive)


def _xgboost_draw(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "max_depth": int(rng.integers(3, 13)),
        "eta": float(np.exp(rng.uniform(np.log(0.02), np.log(0.2)))),
        "min_child_weight": float(np.exp(rng.uniform(0.0, np.log(20.0)))),
        "subsample": float(rng.uniform(0.5, 1.0)),
        "colsample_bynode": float(rng.uniform(0.5, 1.0)),
        "lambda": float(np.exp(rng.uniform(np.log(0.01), np.log(10.0)))),
        "gamma": float(rng.choice([0.0, 1e-3, 1e-2])),
    }


def gpytorch_dsvi(fit: Fit, problem: Problem) -> Regression:
    """GPyTorch's two-layer deep GP by DSVI."""
    from novidgp.bench.gpytorch_dsvi import fit_dsvi  # an optional dependency

    return fit_dsvi(problem, seed=fit.seed)


def gpytorch_svgp(fit: Fit, problem: Problem) -> Regression:
    """GPyTorch's sparse variational GP."""
    from novidgp.bench.gpytorch_svgp import fit_svgp  # an optional dependency

    return fit_svgp(problem, seed=fit.seed)


FITTERS: dict[str, Callable[[Fit, Problem], Regression | Classification]] = {
    "exact-gp": exact_gp,
    "local-gp": local_gp,
    "hist-gb": hist_gb,
    "xgboost": xgboost,
    "gpytorch-dsvi": gpytorch_dsvi,
    "gpytorch-svgp": gpytorch_svgp,
    **dict.fromkeys(LARGE_TREES, large_trees),
}
