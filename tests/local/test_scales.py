"""The law of the paths' scales, fitted to errors whose law is known."""

import numpy as np
import pytest
from scipy import stats

from novidgp.local.scales import fitted_scales, path_scales, t_scales

ROWS = 4_000


def errors_of(scales, seed=0):
    """Errors, the variances that are stated for them, and no spread of paths."""
    rng = np.random.default_rng(seed)
    variance = rng.uniform(0.5, 2.0, ROWS)
    errors = np.sqrt(variance * rng.choice(scales, ROWS)) * rng.normal(size=ROWS)
    return errors, variance, np.zeros(ROWS), 1e-3 * variance


def half_width(scales, level):
    """Half-width of the central interval of a mixture of these scales that covers `level`."""
    width = np.linspace(0.0, 20.0, 20_001)
    inside = 2.0 * stats.norm.cdf(width[:, None] / np.sqrt(scales)).mean(1) - 1.0
    return np.interp(level, inside, width)


@pytest.mark.parametrize("truth", [np.ones(1), np.array([0.3]), np.array([0.01, 4.0]), t_scales(4.0)])
def test_intervals_cover_what_they_say(truth):
    """Gaussian, overstated, bimodal and heavy-tailed errors, far from the law that the fit starts at."""
    errors, variance, share, deep = errors_of(truth)
    scales = fitted_scales(errors, variance, share, deep, df=2.6)
    fresh, variance, *_ = errors_of(truth, seed=1)
    for level in (0.5, 0.9):
        inside = np.abs(fresh) / np.sqrt(variance) < half_width(scales, level)
        assert inside.mean() == pytest.approx(level, abs=0.03)


def test_the_spread_of_the_paths_is_not_counted_twice():
    """Half of the variance is in the paths' means: Gaussian errors leave factors around one, not a half."""
    errors, variance, _, deep = errors_of(np.ones(1))
    scales = fitted_scales(errors, variance, np.full(ROWS, 0.5), deep, df=50.0)
    assert np.median(scales) == pytest.approx(1.0, abs=0.2)


def test_few_rows_keep_the_t_distribution():
    none = np.zeros(0)
    np.testing.assert_allclose(fitted_scales(none, none, none, none, 5.0), t_scales(5.0), rtol=0.12)


def test_one_wrong_row_is_left_to_the_deep_gp():
    """An error of a thousand standard deviations that the deep GP's variance explains moves no scale."""
    errors, variance, share, _ = errors_of(np.ones(1))
    deep = np.full(ROWS, 1e6)
    plain = fitted_scales(errors, variance, share, deep, 5.0)
    errors[0] = 1e3
    np.testing.assert_allclose(fitted_scales(errors, variance, share, deep, 5.0), plain, rtol=0.01)


def test_any_number_of_paths_has_the_same_law():
    many, few = path_scales(1_000, t_scales(4.0)), path_scales(10, t_scales(4.0))
    assert np.median(many) == pytest.approx(np.median(few), rel=0.05)
    np.testing.assert_array_equal(np.sort(path_scales(100, t_scales(4.0))), t_scales(4.0))
