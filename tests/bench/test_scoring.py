"""Scores of fitted methods, against numbers worked out by hand."""

from importlib.util import find_spec

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from novidgp.bench.baselines import MOST_TREES, hist_gb, large_trees, local_gp, xgboost
from novidgp.bench.problems import Problem
from novidgp.bench.scoring import COVERAGE_LEVELS, Classification, from_predictive, score, thin
from novidgp.bench.spec import LARGE_TREES, Fit
from novidgp.prediction.scores import Gaussian


def regression_problem(rows=200):
    generator = np.random.default_rng(0)
    X = generator.uniform(-2, 2, (2 * rows, 1))
    y = np.sign(X[:, 0]) + 0.1 * generator.normal(size=2 * rows)
    return Problem("regression", X[:rows], y[:rows], X[rows:], y[rows:], target_sd=20.0)


def test_a_gaussian_method_is_scored_in_both_units():
    problem = regression_problem()
    scores = score(from_predictive(lambda X: Gaussian(np.sign(X[:, 0]), np.full(len(X), 0.1))), problem)
    rmse = np.sqrt(np.mean((problem.y_test - np.sign(problem.X_test[:, 0])) ** 2))
    assert scores["rmse"] == pytest.approx(rmse)
    assert scores["rmse_raw"] == pytest.approx(20 * rmse)
    nll = 0.5 * (rmse / 0.1) ** 2 + np.log(0.1) + 0.5 * np.log(2 * np.pi)
    assert scores["nll"] == pytest.approx(nll)
    assert scores["nll_raw"] == pytest.approx(nll + np.log(20))
    assert scores["rmse_train"] != scores["rmse"]
    # 200 draws: a share has a standard deviation of at most 0.036; three of them.
    assert scores["coverage"] == pytest.approx(COVERAGE_LEVELS, abs=0.11)
    assert scores["coverage90"] == scores["coverage"][COVERAGE_LEVELS.index(0.9)]


def test_a_class_that_training_never_saw_is_always_wrong():
    X, y = np.zeros((4, 1)), np.array([0, 0, 2, 2])
    problem = Problem("classification", X, y, X, np.array([0, 2, 1, 1]), target_sd=1.0)
    sure = Classification(lambda X: np.tile([0.75, 0.25], (len(X), 1)), np.array([0, 2]))
    scores = score(sure, problem)
    assert scores["accuracy"] == 0.25
    assert scores["error"] == 0.75
    assert scores["accuracy_train"] == 0.5
    assert scores["nll_train"] == pytest.approx(-np.mean(np.log([0.75, 0.75, 0.25, 0.25])))
    assert scores["nll"] > 100, "the log of a probability of zero, cut off"


def test_boosted_trees_find_a_step(monkeypatch):
    monkeypatch.setitem(MOST_TREES, "regression", 40)
    problem = regression_problem(rows=60)
    with threadpool_limits(1):  # threads that wait for one another on a busy machine cost minutes
        scores = score(hist_gb(Fit("steps", "random", 0, "hist-gb"), problem), problem)
    # The noise is 0.1; rows near the step may be on the wrong side of it, at most two of 60 by an error of 2.
    assert 0.1 / 1.5 < scores["rmse"] < np.sqrt(0.1**2 + 2 * 4 / 60)
    assert 0.5 < scores["coverage90"] <= 1.0


@pytest.mark.parametrize("method", LARGE_TREES)
def test_trees_for_many_rows_find_a_step(method):
    problem = regression_problem(rows=400)
    with threadpool_limits(1):
        scores = score(large_trees(Fit("steps", "random", 0, method), problem), problem)
    assert 0.1 / 1.5 < scores["rmse"] < np.sqrt(0.1**2 + 6 * 4 / 400)
    assert 0.5 < scores["coverage90"] <= 1.0


def test_a_local_gp_finds_a_step():
    problem = regression_problem(rows=60)
    scores = score(local_gp(Fit("steps", "random", 0, "local-gp"), problem), problem)
    assert 0.1 / 1.5 < scores["rmse"] < np.sqrt(0.1**2 + 3 * 4 / 60)
    assert 0.5 < scores["coverage90"] <= 1.0


@pytest.mark.skipif(find_spec("xgboost") is None, reason="needs XGBoost")
def test_xgboost_finds_a_step():
    problem = regression_problem(rows=60)
    with threadpool_limits(1):
        scores = score(xgboost(Fit("steps", "random", 0, "xgboost"), problem), problem)
    assert 0.1 / 1.5 < scores["rmse"] < np.sqrt(0.1**2 + 3 * 4 / 60)


def test_many_rows_are_thinned_evenly():
    assert thin(3, 5).tolist() == [0, 1, 2]
    assert thin(9, 3).tolist() == [0, 4, 8]
