"""Scores against closed forms, scikit-learn and hand counts."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as reference

from novidgp.prediction import metrics


@pytest.fixture
def labels_and_probabilities():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), size=200)
    return rng.integers(3, size=200), probabilities


def _gaussian_crps(y, mean, std):
    z = (y - mean) / std
    return std * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))


def test_crps_of_a_gaussian_by_quantiles():
    """Closed form (Gneiting & Raftery 2007); the midpoint rule is within 2 %."""
    y = np.array([-1.0, 0.3, 2.5])
    mean, std = np.array([0.0, 0.5, 1.0]), np.array([1.0, 2.0, 0.7])
    exact = _gaussian_crps(y, mean, std).mean()
    levels = metrics.quantile_levels(200)
    quantiles = mean[:, None] + std[:, None] * stats.norm.ppf(levels)
    assert metrics.crps_from_quantiles(y, quantiles) == pytest.approx(exact, rel=0.02)


def test_crps_of_several_targets_is_their_average():
    y = np.array([[0.0, 1.0], [2.0, np.nan]])
    quantiles = np.random.default_rng(0).standard_normal((2, 9, 2))
    parts = [
        metrics.crps_from_quantiles(y[:1], quantiles[:1]),
        metrics.crps_from_quantiles(y[1:, 0], quantiles[1:, :, 0]),
    ]
    assert metrics.crps_from_quantiles(y, quantiles) == pytest.approx((2 * parts[0] + parts[1]) / 3)


def test_coverage_counts_targets_inside_their_intervals():
    y = np.array([0.0, 1.0, 2.0, np.nan])
    assert metrics.interval_coverage(y, np.full(4, -0.5), np.full(4, 1.5)) == pytest.approx(2 / 3)
    assert metrics.interval_levels(0.9) == pytest.approx((0.05, 0.95))


def test_rmse_and_nll():
    assert metrics.rmse(np.array([1.0, 3.0, np.nan]), np.array([1.0, 1.0, 5.0])) == pytest.approx(np.sqrt(2))
    assert metrics.nll(np.array([-1.0, -3.0])) == 2.0


def test_classification_scores_agree_with_scikit_learn(labels_and_probabilities):
    labels, probabilities = labels_and_probabilities
    assert metrics.log_loss(labels, probabilities) == pytest.approx(reference.log_loss(labels, probabilities))
    predicted = probabilities.argmax(1)
    assert metrics.accuracy(labels, probabilities) == reference.accuracy_score(labels, predicted)
    binary = labels == 0
    two = np.stack([1 - probabilities[:, 0], probabilities[:, 0]], axis=1)
    twice = 2 * reference.brier_score_loss(binary, probabilities[:, 0])
    assert metrics.brier(binary, two) == pytest.approx(twice)


def test_ece_is_zero_for_the_calibrated_and_the_gap_for_the_overconfident():
    always = np.tile([0.75, 0.25], (8, 1))
    assert metrics.ece(np.array([0] * 6 + [1] * 2), always) == pytest.approx(0.0)
    assert metrics.ece(np.array([0] * 4 + [1] * 4), always) == pytest.approx(0.25)
