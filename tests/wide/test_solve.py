"""The posterior of a linear layer for labels: scikit-learn's logistic regression, and zero gradients."""

import numpy as np
import pytest
from scipy.special import log_ndtr, softmax
from sklearn.linear_model import LogisticRegression

from novidgp.model.likelihoods import Bernoulli, Softmax
from novidgp.wide.solve import Rows, solve

N, M = 120, 6
RNG = np.random.default_rng(0)
FEATURES = RNG.standard_normal((N, M))
LABELS = np.argmax(FEATURES[:, :3] + RNG.gumbel(size=(N, 3)), axis=1)
ONCE = np.ones(N)


def test_classes_are_those_of_logistic_regression():
    """To 2e-3: the solver stops when a step promises 1e-6 nats a row."""
    rows, scale = Rows(FEATURES, LABELS, ONCE), 1.7
    peer = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=1000).fit(
        scale * FEATURES, LABELS
    )
    mean = solve(rows, rows.gram(), Softmax(), np.zeros((M, 3)), scale=scale).mean
    np.testing.assert_allclose(mean, peer.coef_.T, atol=2e-3)


def test_two_classes_are_at_the_top_of_the_probit_posterior():
    labels = (LABELS > 0).astype(int)
    rows = Rows(FEATURES, labels, ONCE)
    mean = solve(rows, rows.gram(), Bernoulli(), np.zeros((M, 1))).mean[:, 0]
    sign = 2.0 * labels - 1.0

    def posterior(v):
        return np.sum(log_ndtr(sign * (FEATURES @ v))) - 0.5 * v @ v

    top = posterior(mean)
    for direction in np.eye(M):
        assert posterior(mean + 0.05 * direction) < top
        assert posterior(mean - 0.05 * direction) < top


@pytest.mark.parametrize(("likelihood", "outputs"), [(Softmax(), 3), (Bernoulli(), 1)])
def test_a_row_of_weight_two_is_two_rows(likelihood, outputs):
    labels = np.minimum(LABELS, max(outputs, 2) - 1)
    times = RNG.integers(1, 4, N)
    weighted = Rows(FEATURES, labels, times.astype(float))
    repeated = Rows(np.repeat(FEATURES, times, axis=0), np.repeat(labels, times), np.ones(times.sum()))
    found, expected = (
        solve(rows, rows.gram(), likelihood, np.zeros((M, outputs))) for rows in (weighted, repeated)
    )
    for part, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(part, other, atol=1e-9)


def test_the_start_does_not_matter():
    """What all classes have in common has no curvature: no start has any of it."""
    rows, start = Rows(FEATURES, LABELS, ONCE), RNG.standard_normal((M, 3))
    found = solve(rows, rows.gram(), Softmax(), start - start.mean(axis=1, keepdims=True)).mean
    expected = solve(rows, rows.gram(), Softmax(), np.zeros((M, 3))).mean
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_the_covariance_is_that_of_the_mean_curvature():
    rows = Rows(FEATURES, LABELS, ONCE)
    mean, factor = solve(rows, rows.gram(), Softmax(), np.zeros((M, 3)))
    p = softmax(FEATURES @ mean, axis=1)
    precision = np.eye(M) + np.mean(p * (1.0 - p)) * FEATURES.T @ FEATURES
    np.testing.assert_allclose(factor @ factor.T @ precision, np.eye(M), atol=1e-10)
    np.testing.assert_array_equal(factor, np.triu(factor))
