"""The predictive mixture: densities integrate to one, variances add up, quantiles invert the distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from novidgp.model.layers import Moments
from novidgp.model.likelihoods import latent_width, make_likelihood
from novidgp.numerics.scaling import Standardiser, identity, standardiser
from novidgp.prediction.predictive import Predictive

pytestmark = pytest.mark.usefixtures("quick_compilation")

PATHS, ROWS = 6, 4
KEY = jax.random.key(0)


def _predictive(name, targets=1, classes=None, scaling=None):
    rng = np.random.default_rng(0)
    width = latent_width(name, targets, classes)
    mean = jnp.asarray(rng.normal(size=(PATHS, ROWS, width)), jnp.float32)
    variance = jnp.asarray(rng.uniform(0.01, 0.3, size=mean.shape), jnp.float32)
    scaling = Standardiser(np.full(targets, 50.0), np.full(targets, 8.0)) if scaling is None else scaling
    return Predictive(_per_path(name, targets), Moments(mean, variance), scaling, KEY)


def _per_path(name, targets):
    """A likelihood whose parameters have the axis of paths."""
    likelihood = make_likelihood(name, targets, 0.5, jnp.float32)
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (PATHS, *a.shape)), likelihood)


@pytest.mark.parametrize("name", ["gaussian", "student-t", "heteroscedastic"])
def test_the_density_integrates_to_one_in_the_users_units(name):
    """Trapezoid over +-400 scaled units; float32 densities leave 1e-3, Student's tails less."""
    predictive = _predictive(name)
    grid = 50.0 + 8.0 * np.sinh(np.linspace(-6.7, 6.7, 4001))
    density = np.exp([predictive.log_prob(np.full((ROWS, 1), y)) for y in grid])
    np.testing.assert_allclose(np.trapezoid(density, grid, axis=0), 1.0, atol=1e-3)


def test_the_probabilities_of_counts_sum_to_one():
    predictive = _predictive("poisson", scaling=identity(1))
    mass = np.exp([predictive.log_prob(np.full((ROWS, 1), float(y))) for y in range(200)])
    np.testing.assert_allclose(mass.sum(0), 1.0, atol=1e-4)
    counts = np.arange(200)[:, None]
    np.testing.assert_allclose((mass * counts).sum(0), predictive.mean()[:, 0], rtol=2e-3)


def test_variance_follows_the_law_of_total_variance():
    """Against the moments of the explicit mixture, computed in float64."""
    predictive = _predictive("gaussian")
    means = np.asarray(predictive.latent.mean, np.float64)[..., 0]
    variances = np.asarray(predictive.latent.variance, np.float64)[..., 0] + 0.25
    second_moment = (variances + means**2).mean(0)
    expected = 8.0 * np.sqrt(second_moment - means.mean(0) ** 2)
    np.testing.assert_allclose(predictive.std()[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(predictive.mean()[:, 0], 50.0 + 8.0 * means.mean(0), rtol=1e-6)


def test_gaussian_quantiles_invert_the_mixture_distribution():
    predictive = _predictive("gaussian", targets=2)
    levels = np.array([0.025, 0.25, 0.5, 0.9, 0.999])
    values = (predictive.quantile(levels) - 50.0) / 8.0
    mean = np.asarray(predictive.latent.mean, np.float64)
    scale = np.sqrt(np.asarray(predictive.latent.variance, np.float64) + 0.25)
    cdf = stats.norm.cdf((values[None] - mean[:, :, None]) / scale[:, :, None]).mean(0)
    np.testing.assert_allclose(cdf, np.broadcast_to(levels[:, None], cdf.shape), atol=2e-6)


@pytest.mark.parametrize("name", ["student-t", "heteroscedastic", "poisson"])
def test_quantiles_from_draws_have_the_right_probability(name):
    """4000 draws: the probability below a quantile is within four standard errors of its level."""
    predictive = _predictive(name, scaling=identity(1))
    values = predictive.quantile(np.array([0.3, 0.8]))[..., 0]
    draws = predictive.sample(40_000, path_key=jax.random.key(1), key=jax.random.key(2))[..., 0]
    for index, level in enumerate([0.3, 0.8]):
        tolerance = 4 * np.sqrt(level * (1 - level) / 4000) + 0.01
        assert np.all((draws <= values[:, index]).mean(0) >= level - tolerance)
        assert np.all((draws < values[:, index]).mean(0) <= level + tolerance)


@pytest.mark.parametrize("name", ["gaussian", "student-t", "heteroscedastic", "poisson"])
def test_draws_have_the_predictive_moments(name):
    """40,000 draws: the mean within six standard errors, the spread within 15 % (heavy tails)."""
    predictive = _predictive(name, scaling=identity(1) if name == "poisson" else None)
    draws = predictive.sample(40_000, path_key=jax.random.key(1), key=jax.random.key(2))[..., 0]
    mean, std = predictive.mean()[:, 0], predictive.std()[:, 0]
    assert np.all(np.abs(draws.mean(0) - mean) < 6 * std / np.sqrt(40_000))
    np.testing.assert_allclose(draws.std(0), std, rtol=0.15)


def test_missing_targets_are_integrated_out():
    predictive = _predictive("gaussian", targets=2)
    y = np.array([[51.0, 49.0], [55.0, np.nan], [np.nan, 45.0], [np.nan, np.nan]])
    density = predictive.log_prob(y)
    single = Predictive(
        _per_path("gaussian", 1),
        Moments(*(m[..., :1] for m in predictive.latent)),
        Standardiser(np.array([50.0]), np.array([8.0])),
        KEY,
    )
    assert density[1] == pytest.approx(single.log_prob(y[:, :1])[1], abs=1e-5)
    assert density[3] == 0.0


@pytest.mark.parametrize(("name", "classes"), [("bernoulli", 2), ("softmax", 4)])
def test_class_probabilities_sum_to_one(name, classes):
    probabilities = _predictive(name, classes=classes, scaling=identity(1)).probabilities()
    assert probabilities.shape == (ROWS, classes)
    assert np.all(probabilities > 0)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, atol=1e-12)


@pytest.mark.parametrize("unit", [1e-300, 1e-6, 1.0, 1e30, 1e300])
def test_scaling_survives_any_unit(unit):
    values = unit * np.random.default_rng(0).normal(3.0, 2.0, size=(50, 1))
    scaled = standardiser(values).inputs(values)
    np.testing.assert_allclose([scaled.mean(), scaled.std()], [0.0, 1.0], atol=1e-9)


def test_a_constant_column_carries_nothing():
    values = np.array([[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]])
    scaling = standardiser(values)
    np.testing.assert_array_equal(scaling.inputs(np.array([[7.0, 2.0]])), [[0.0, 0.0]])
