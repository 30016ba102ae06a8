"""The predictive mixture: densities integrate to one, variances add up, quantiles invert the distribution.

And the prediction of a row: it depends on no other row, nor on the blocks in which rows are propagated.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from threadpoolctl import threadpool_info, threadpool_limits

from novidgp.model.likelihoods import LIKELIHOODS
from novidgp.numerics.scaling import Standardiser, identity
from novidgp.posteriors import prepared
from novidgp.posteriors.fitted import Fitted
from novidgp.posteriors.gaussian import GaussianPosterior, gaussian_start
from novidgp.prediction import predictor as module
from novidgp.prediction.predictive import HostMoments, Predictive
from novidgp.prediction.predictor import predict
from support.small import small_model

PATHS, ROWS = 6, 4
KEY = jax.random.key(0)
USERS = Standardiser(np.array([50.0]), np.array([8.0]))


def distribution(name, targets=1, classes=None, scaling=None):
    rng = np.random.default_rng(0)
    width = LIKELIHOODS[name].num_functions(targets, classes)
    mean = rng.normal(size=(PATHS, ROWS, width)).astype(np.float32)
    variance = rng.uniform(0.01, 0.3, size=mean.shape).astype(np.float32)
    scaling = Standardiser(np.full(targets, 50.0), np.full(targets, 8.0)) if scaling is None else scaling
    return Predictive(per_path(name, targets), HostMoments(mean, variance), scaling, KEY, ROWS)


def per_path(name, targets):
    """A likelihood whose parameters have the axis of paths."""
    likelihood = LIKELIHOODS[name].start(targets, noise=0.5, count_rate=1.0, dtype=jnp.float32)
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (PATHS, *a.shape)), likelihood)


# --- the mixture ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gaussian", "student-t", "heteroscedastic"])
def test_the_density_integrates_to_one_in_the_users_units(name):
    """Trapezoid over +-400 scaled units. Steps are at most 0.04 near the means and no component is narrower
    than 0.07: the rule is exact there. Float32 densities leave 1e-3, Student's tails less."""
    predictive = distribution(name)
    grid = 50.0 + 8.0 * np.sinh(np.linspace(-6.7, 6.7, 801))
    density = np.exp([predictive.log_prob(np.full((ROWS, 1), y)) for y in grid])
    np.testing.assert_allclose(np.trapezoid(density, grid, axis=0), 1.0, atol=1e-3)


def test_the_probabilities_of_counts_sum_to_one():
    predictive = distribution("poisson", scaling=identity(1))
    mass = np.exp([predictive.log_prob(np.full((ROWS, 1), float(y))) for y in range(200)])
    np.testing.assert_allclose(mass.sum(0), 1.0, atol=1e-4)
    counts = np.arange(200)[:, None]
    np.testing.assert_allclose((mass * counts).sum(0), predictive.mean()[:, 0], rtol=2e-3)


def test_variance_follows_the_law_of_total_variance():
    """Against the moments of the explicit mixture, computed in float64."""
    predictive = distribution("gaussian")
    means = np.asarray(predictive.moments.mean, np.float64)[..., 0]
    variances = np.asarray(predictive.moments.variance, np.float64)[..., 0] + 0.25
    second_moment = (variances + means**2).mean(0)
    expected = 8.0 * np.sqrt(second_moment - means.mean(0) ** 2)
    np.testing.assert_allclose(predictive.std()[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(predictive.mean()[:, 0], 50.0 + 8.0 * means.mean(0), rtol=1e-6)


def test_gaussian_quantiles_invert_the_mixture_distribution():
    predictive = distribution("gaussian", targets=2)
    levels = np.array([0.025, 0.25, 0.5, 0.9, 0.999])
    values = (predictive.quantile(levels) - 50.0) / 8.0
    mean = np.asarray(predictive.moments.mean, np.float64)
    scale = np.sqrt(np.asarray(predictive.moments.variance, np.float64) + 0.25)
    cdf = stats.norm.cdf((values[None] - mean[:, :, None]) / scale[:, :, None]).mean(0)
    np.testing.assert_allclose(cdf, np.broadcast_to(levels[:, None], cdf.shape), atol=2e-6)


@pytest.mark.parametrize("name", ["student-t", "heteroscedastic", "poisson"])
def test_quantiles_from_draws_have_the_right_probability(name):
    """4000 draws: the probability below a quantile is within four standard errors of its level."""
    predictive = distribution(name, scaling=identity(1))
    values = predictive.quantile(np.array([0.3, 0.8]))[..., 0]
    draws = predictive.sample(40_000, key=jax.random.key(1))[..., 0]
    for index, level in enumerate([0.3, 0.8]):
        tolerance = 4 * np.sqrt(level * (1 - level) / 4000) + 0.01
        assert np.all((draws <= values[:, index]).mean(0) >= level - tolerance)
        assert np.all((draws < values[:, index]).mean(0) <= level + tolerance)


@pytest.mark.parametrize("name", ["gaussian", "student-t", "heteroscedastic", "poisson"])
def test_draws_have_the_predictive_moments(name):
    """40,000 draws: the mean within six standard errors, the spread within 15 % (heavy tails)."""
    predictive = distribution(name, scaling=identity(1) if name == "poisson" else None)
    draws = predictive.sample(40_000, key=jax.random.key(1))[..., 0]
    assert draws.shape == (40_000, ROWS)
    mean, std = predictive.mean()[:, 0], predictive.std()[:, 0]
    assert np.all(np.abs(draws.mean(0) - mean) < 6 * std / np.sqrt(40_000))
    np.testing.assert_allclose(draws.std(0), std, rtol=0.15)


def test_missing_targets_are_integrated_out():
    predictive = distribution("gaussian", targets=2)
    y = np.array([[51.0, 49.0], [55.0, np.nan], [np.nan, 45.0], [np.nan, np.nan]])
    density = predictive.log_prob(y)
    first = HostMoments(*(m[..., :1] for m in predictive.moments))
    single = Predictive(per_path("gaussian", 1), first, USERS, KEY, ROWS)
    assert density[1] == pytest.approx(single.log_prob(y[:, :1])[1], abs=1e-5)
    assert density[3] == 0.0


@pytest.mark.parametrize(("name", "classes"), [("bernoulli", 2), ("softmax", 4)])
def test_class_probabilities_sum_to_one(name, classes):
    probabilities = distribution(name, classes=classes, scaling=identity(1)).probabilities()
    assert probabilities.shape == (ROWS, classes)
    assert np.all(probabilities > 0)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, atol=1e-12)


# --- rows and blocks --------------------------------------------------------------------------------


def fitted(**settings):
    """A Gaussian around random inducing outputs, so that every row has another prediction."""
    model, rng = small_model(**settings), np.random.default_rng(0)
    mean = tuple(jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in model.inducing_shapes())
    return Fitted(model, GaussianPosterior(*gaussian_start(mean, 0.3, 0.3)))


X = np.random.default_rng(1).normal(size=(20, 2))


def at(model, x, **options):
    return predict(model, x, num_paths=8, key=jax.random.key(5), targets=USERS, **options)


def answers(predictive, y=55.0):
    """Everything that is a property of one row, rows first."""
    levels = np.array([0.1, 0.5])
    rows = np.full((len(predictive), 1), y)
    quantiles = predictive.quantile(levels)[..., 0]
    return np.column_stack([predictive.mean(), predictive.std(), quantiles, predictive.log_prob(rows)])


@pytest.mark.parametrize("local", [0, 1], ids=["plain", "local-variable"])
def test_a_rows_prediction_does_not_depend_on_other_rows(local):
    model = fitted(latent_dim=local)
    whole = answers(at(model, X))
    assert whole.shape == (20, 5)
    np.testing.assert_array_equal(answers(at(model, X[3:5])), whole[3:5])
    np.testing.assert_array_equal(answers(at(model, X[::-1])), whole[::-1])
    assert len(np.unique(whole[:, 0])) == 20


@pytest.mark.parametrize("likelihood", ["gaussian", "student-t"])
def test_all_rows_at_once_are_the_blocks_one_after_another(likelihood, monkeypatch):
    """Blocks of four. Another block size is another program of the same arithmetic: the
    moments agree to float32 rounding, and so does what follows from them."""
    model = fitted(likelihood=likelihood)
    whole = at(model, X)
    assert whole.block_size > 20
    monkeypatch.setattr(module, "_LARGEST_BLOCK", 4)
    blocks = at(model, X)
    assert blocks.block_size == 4
    np.testing.assert_allclose(answers(blocks), answers(whole), rtol=1e-4)
    parts = np.concatenate([answers(at(model, X[i : i + 4])) for i in range(0, 20, 4)])
    np.testing.assert_array_equal(answers(blocks), parts)
    draws = blocks.sample(3, key=jax.random.key(6))
    assert draws.shape == (3, 20, 1)
    np.testing.assert_array_equal(draws, blocks.sample(3, key=jax.random.key(6)))


def test_rows_without_a_finite_prediction_are_refused_by_their_inputs():
    """1e300 is infinite in the model's single precision."""
    x = np.array([[0.0, 1.0], [1e300, 2.0]])
    with pytest.raises(
        ValueError, match=r"for 1 of 2 rows, the first with the inputs \[1\.e\+300 2\.e\+000\]"
    ):
        at(fitted(), x)


def test_a_draw_follows_one_path_through_all_rows(monkeypatch):
    """Two paths far apart: all rows of a draw, in every block, are near the same one."""
    mean = np.broadcast_to(np.array([-100.0, 100.0], np.float32)[:, None, None], (2, 10, 1))
    likelihood = jax.tree.map(lambda a: a[:2], per_path("gaussian", 1))
    for own_paths in (False, True):
        predictive = Predictive(
            likelihood, HostMoments(mean, np.ones_like(mean)), identity(1), KEY, 4, own_paths=own_paths
        )
        signs = np.sign(predictive.sample(50, key=jax.random.key(7)))[..., 0]
        # With paths of their own ten rows agree in one draw of 512: 50 draws would all agree never.
        assert np.all(signs == signs[:, :1]) == (not own_paths)
        assert set(signs[:, 0]) == {-1.0, 1.0}


def test_another_row_count_compiles_nothing():
    model = fitted()
    at(model, X)
    before = module._propagate._cache_size()
    at(model, X[:7])
    assert module._propagate._cache_size() == before


def test_prediction_keeps_lapack_to_one_thread(monkeypatch):
    """Where kernel matrices are factorised; the program of the rows has no LAPACK in it."""
    seen, draw = [], prepared._draw

    def spy(*arguments):
        seen.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return draw(*arguments)

    monkeypatch.setattr(prepared, "_draw", spy)
    with threadpool_limits(limits=2, user_api="blas"):
        at(fitted(), X)
    assert seen
    assert set(seen) == {1}
