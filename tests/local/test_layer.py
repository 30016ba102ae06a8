"""The mixture over paths with a local layer."""

import numpy as np
import pytest
from scipy import stats

from novidgp.local.layer import _path_mean, corrected_paths
from novidgp.local.scales import path_scales, t_scales


def paths(spread):
    rng = np.random.default_rng(0)
    return spread * rng.normal(size=(500, 20)), rng.uniform(0.5, 1.5, (500, 20))


def test_total_variance_and_mean_are_those_of_the_layer():
    """With light tails the scales average to one to 1 in 1,000, by their strata."""
    mean, variance = paths(0.3)
    shift, total = np.linspace(-1, 1, 20), np.linspace(0.5, 2.0, 20)
    new_mean, new_variance = corrected_paths(mean, variance, shift, total, t_scales(200.0))
    np.testing.assert_allclose(new_mean.mean(0), mean.mean(0) + shift, atol=1e-12)
    np.testing.assert_allclose(new_mean - new_mean.mean(0), mean - mean.mean(0), atol=1e-12)
    np.testing.assert_allclose(new_variance.mean(0) + new_mean.var(0), total, rtol=1e-2)


def test_paths_that_spread_too_far_are_drawn_together():
    mean, variance = paths(30.0)
    new_mean, new_variance = corrected_paths(mean, variance, 0.0, np.full(20, 0.5), t_scales(200.0))
    np.testing.assert_allclose(new_mean.var(0), 0.25, rtol=1e-6)
    assert new_variance.min() > 0.0


def test_paths_that_may_not_spread_have_one_mean():
    """The total variance is what it would be with their spread; a row without any is no division by zero."""
    mean, variance = paths(0.3)
    mean[:, 0] = 0.0
    total = np.linspace(0.5, 2.0, 20)
    new_mean, new_variance = corrected_paths(mean, variance, 1.0, total, t_scales(200.0), 0.0)
    np.testing.assert_allclose(new_mean, np.broadcast_to(mean.mean(0) + 1.0, mean.shape), atol=1e-12)
    np.testing.assert_allclose(new_variance.mean(0), total, rtol=1e-2)


def test_a_layer_that_changes_nothing_leaves_the_paths():
    """No shift, the deep GP's own variance and Gaussian errors: the deep GP's own mixture."""
    mean, variance = paths(0.3)
    total = variance.mean(0) + mean.var(0)
    new_mean, new_variance = corrected_paths(mean, variance, 0.0, total, t_scales(1e9))
    np.testing.assert_allclose(new_mean, mean, atol=1e-12)
    np.testing.assert_allclose(new_variance, variance, rtol=1e-3)


@pytest.mark.parametrize("df", [2.6, 5.0, 50.0])
def test_path_scales_mix_to_a_t_distribution(df):
    """Densities within three scales of the centre; 100 strata leave an error of two percent."""
    scales = path_scales(100, t_scales(df))
    points = np.linspace(-3.0, 3.0, 13) * np.sqrt((df - 2.0) / df)
    mixed = stats.norm.pdf(points[:, None], scale=np.sqrt(scales)).mean(1)
    wanted = stats.t.pdf(points, df, scale=np.sqrt((df - 2.0) / df))
    np.testing.assert_allclose(mixed, wanted, rtol=0.02)


def test_any_run_of_paths_has_all_scales():
    """Paths of one start follow one another. Without order the worst of ten runs of ten would be half of a
    standard deviation off in most cases."""
    scales = np.log(path_scales(100, t_scales(4.0)))
    runs = scales.reshape(10, 10).mean(1)
    assert np.abs(runs - scales.mean()).max() < 0.45 * scales.std()


def test_a_twin_with_another_target_costs_no_more_than_the_deep_gp_and_the_path_s_share():
    """A layer that is sure of 0 where y is 1, and a deep GP that is not: the density is at least that of one
    path in a hundred, and rows where the layer is right lose a hundredth of theirs."""
    mean, variance = np.zeros((100, 1)), np.ones((100, 1))
    new_mean, new_variance = corrected_paths(mean, variance, np.zeros(1), np.full(1, 1e-6), t_scales(1e9))
    scale = np.sqrt(new_variance[:, 0])
    assert stats.norm.pdf(1.0, new_mean[:, 0], scale).mean() == pytest.approx(0.01 * stats.norm.pdf(1.0))
    assert stats.norm.pdf(0.0, new_mean[:, 0], scale).mean() == pytest.approx(
        0.99 * stats.norm.pdf(0.0, 0.0, 1e-3), rel=1e-2
    )


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_row_alone_has_the_mean_over_paths_that_it_has_among_others(order):
    """To the last bit, in double precision, where another order of the sum shows."""
    values = np.random.default_rng(0).lognormal(sigma=3.0, size=(300, 7)).astype(float, order=order)
    together = _path_mean(values)
    alone = [_path_mean(values[:, [row]])[0] for row in range(7)]
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_allclose(together, values.mean(axis=0), rtol=1e-13)
