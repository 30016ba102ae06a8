"""Sets of scores: against closed forms, and every quantity asked for once."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as reference

from novidgp.prediction.scores import Gaussian, classification_scores, regression_scores

ROWS = 400


class Counted(Gaussian):
    """A distribution that notes what it was asked for."""

    def __init__(self, inner):
        super().__init__(inner.means, inner.deviations)
        object.__setattr__(self, "asked", [])

    def mean(self):
        self.asked.append("mean")
        return super().mean()

    def quantile(self, levels):
        self.asked.append("quantile")
        return super().quantile(levels)

    def log_prob(self, y):
        self.asked.append("log_prob")
        return super().log_prob(y)


def standard_normal_rows():
    """Targets at the quantiles of a standard normal, so that shares of intervals are known exactly."""
    return stats.norm.ppf((np.arange(ROWS) + 0.5) / ROWS), Gaussian(np.zeros(ROWS), np.ones(ROWS))


def test_regression_scores_of_a_gaussian_are_the_closed_forms():
    """The CRPS of N(0, 1) averaged over its own targets is 1 / sqrt(pi); ROWS points come within 1 %."""
    y, predictive = standard_normal_rows()
    scores = regression_scores([predictive], y)
    assert scores["rmse"] == pytest.approx(1.0, rel=0.01)
    assert scores["nll"] == pytest.approx(-np.mean(stats.norm.logpdf(y)))
    assert scores["coverage_50"] == pytest.approx(0.5)
    assert scores["coverage_90"] == pytest.approx(0.9)
    assert scores["crps"] == pytest.approx(1 / np.sqrt(np.pi), rel=0.01)


def test_coverages_are_those_asked_for():
    y, predictive = standard_normal_rows()
    scores = regression_scores([predictive], y, coverages=(0.2, 0.8))
    assert list(scores) == ["rmse", "nll", "coverage_20", "coverage_80", "crps"]
    assert scores["coverage_20"] == pytest.approx(0.2)


def test_a_distribution_is_asked_once_for_each_quantity():
    y, predictive = standard_normal_rows()
    counted = Counted(predictive)
    regression_scores([counted], y)
    assert sorted(counted.asked) == ["log_prob", "mean", "quantile"]


def test_blocks_of_rows_score_like_all_rows_together():
    y, whole = standard_normal_rows()
    parts = [Gaussian(whole.means[rows], whole.deviations[rows]) for rows in (slice(0, 30), slice(30, None))]
    assert regression_scores(parts, y) == regression_scores([whole], y)


def test_classification_scores_agree_with_scikit_learn():
    generator = np.random.default_rng(0)
    probabilities, labels = generator.dirichlet(np.ones(3), size=ROWS), generator.integers(3, size=ROWS)
    scores = classification_scores(labels, probabilities)
    assert scores.keys() == {"accuracy", "log_loss", "brier", "ece"}
    assert scores["log_loss"] == pytest.approx(reference.log_loss(labels, probabilities))
    assert scores["accuracy"] == reference.accuracy_score(labels, probabilities.argmax(1))
