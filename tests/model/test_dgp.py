"""The model's data term: minibatches, missing targets, paths, and two ways to propagate a Gaussian posterior.

Monte-Carlo noise depends on the shape of a batch. Tests that compare batches therefore pin it: every draw is
a fixed number per path and output, the same for every row, so that equalities hold to rounding in deep
models too.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from novidgp.model import dgp as dgp_module
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import DGP, Batch
from novidgp.model.layers import Moments
from novidgp.model.likelihoods import GaussianNoise, StudentT
from novidgp.posteriors.gaussian import GaussianPosterior
from support.dense import lower_factor, make_layer

pytestmark = pytest.mark.usefixtures("x64")
K, N, M, D, T = 2, 6, 4, 2, 2
KEY = 0


@pytest.fixture
def pinned_noise(monkeypatch):
    def constant(key, shape, dtype):
        paths, _, width = shape
        return jnp.broadcast_to(jnp.sin(jnp.arange(1.0, paths * width + 1)).reshape(paths, 1, width), shape)

    monkeypatch.setattr(dgp_module, "normal", constant)


def model(depth=2, likelihood=None):
    hidden = (make_layer(1, points=M, outputs=D, separate=True),) * (depth - 1)
    likelihood = likelihood or GaussianNoise(jnp.log(jnp.array([0.4, 0.7])))
    return DGP((*hidden, make_layer(2, points=M, outputs=T)), likelihood)


def problem(depth=2):
    rng = np.random.default_rng(3)
    v = tuple(
        jnp.asarray(rng.standard_normal((K, M, D if layer < depth - 1 else T))) for layer in range(depth)
    )
    return v, Batch(jnp.asarray(rng.standard_normal((N, D))), jnp.asarray(rng.standard_normal((N, T))))


def value_and_score(dgp, v, batch, num_data, **options):
    """The log likelihood of every draw, and its gradient in V."""

    def total(v):
        values = dgp.log_likelihood(v, batch, num_data, key=jax.random.key(KEY), **options)
        return jnp.sum(values), values

    (_, values), score = jax.value_and_grad(total, has_aux=True)(v)
    return values, score


def assert_close(ours, theirs):
    # The same float64 arithmetic in another order, on values up to a few hundred: twelve digits.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-10), ours, theirs)


def test_minibatch_likelihood_and_score_average_to_the_full_batch(pinned_noise):
    dgp, (v, data) = model(), problem()
    on_batch = jax.jit(lambda batch: value_and_score(dgp, v, batch, N))
    full = on_batch(data)
    order = np.random.default_rng(4).permutation(N).reshape(3, 2)
    parts = [on_batch(Batch(data.x[rows], data.y[rows])) for rows in order]
    assert_close(jax.tree.map(lambda *leaves: sum(leaves) / len(parts), *parts), full)
    # The parts do differ, so the average has something to do.
    assert not np.allclose(parts[0][0], parts[1][0], rtol=1e-2)


def test_missing_targets_are_as_if_dropped_output_by_output(pinned_noise):
    dgp, (v, data) = model(), problem()
    y = np.array(data.y)
    y[0, 0] = y[3, 1] = y[4, 0] = y[5] = np.nan
    values, score = jax.jit(lambda y: value_and_score(dgp, v, Batch(data.x, y), N))(y)

    def one_output(t):
        """The model of target t alone, on the rows that have it; a factor N / B of one."""
        last = dgp.layers[-1]
        mean = last.mean.__class__(last.mean.weight[:, t : t + 1], last.mean.bias[t : t + 1], True)
        layers = (*dgp.layers[:-1], last.__class__(last.kernel, last.inducing, mean, 1))
        alone = DGP(layers, GaussianNoise(dgp.likelihood.log_scale[t : t + 1]))
        rows = np.isfinite(y[:, t])
        return lambda v: value_and_score(
            alone,
            (*v[:-1], v[-1][..., t : t + 1]),
            Batch(data.x[rows], jnp.asarray(y[rows, t : t + 1])),
            int(rows.sum()),
        )

    parts = [jax.jit(one_output(t))(v) for t in range(T)]
    assert_close(values, parts[0][0] + parts[1][0])
    assert_close(score[0], parts[0][1][0] + parts[1][1][0])
    assert_close(score[1], jnp.concatenate([parts[0][1][1], parts[1][1][1]], axis=-1))


def test_a_row_without_targets_says_nothing():
    dgp, (v, data) = model(1), problem(1)
    missing = Batch(data.x, jnp.full_like(data.y, jnp.nan))
    values, score = jax.jit(lambda batch: value_and_score(dgp, v, batch, N))(missing)
    assert not values.any()
    assert not score[0].any()


def test_bounds_over_paths():
    """By hand from the same paths: mean over paths of `E log p`, log-mean-exp of `E p`; Jensen orders
    them."""
    paths = 5
    dgp = model(likelihood=StudentT(jnp.log(jnp.array([0.4, 0.7])), jnp.log(jnp.full(T, 3.0))))
    v, data = problem()

    @jax.jit
    def evaluate(v):
        key = jax.random.key(KEY)
        path_key, likelihood_key = jax.random.split(key)
        moments = dgp.propagate(data.x, tuple(jnp.repeat(w, paths, axis=0) for w in v), key=path_key)
        rows = (
            jnp.sum(function(data.y, *moments, key=likelihood_key), axis=-1).reshape(K, paths, N)
            for function in (dgp.likelihood.expected_log_prob, dgp.likelihood.log_prob)
        )
        bounds = (
            dgp.log_likelihood(v, Batch(*data), 3 * N, num_paths=paths, bound=bound, key=key)
            for bound in ("expected_log", "log_expected")
        )
        return tuple(rows), tuple(bounds), moments

    (expected_rows, log_rows), (expected_log, log_expected), moments = evaluate(v)
    assert moments.mean.shape == (K * paths, N, T)
    assert_close(expected_log, 3 * np.sum(np.mean(expected_rows, axis=1), axis=-1))
    by_hand = scipy.special.logsumexp(log_rows, axis=1) - np.log(paths)
    assert_close(log_expected, 3 * np.sum(by_hand, axis=-1))
    assert np.all(log_expected > expected_log)
    # Log of a mean over paths beats the mean of logs, row by row, before the latent's own spread.
    assert np.all(by_hand >= np.mean(log_rows, axis=1) - 1e-12)


def test_paths_of_one_layer_are_all_alike():
    dgp, (v, data) = model(1), problem(1)
    one, four = jax.jit(
        lambda v: tuple(
            dgp.log_likelihood(v, data, N, num_paths=s, bound="log_expected", key=jax.random.key(KEY))
            for s in (1, 4)
        )
    )(v)
    assert_close(one, four)


def test_log_expected_of_one_layer_is_a_gaussian_density():
    dgp, (v, data) = model(1), problem(1)
    key = jax.random.key(KEY)
    moments, value = jax.jit(
        lambda v: (
            dgp.propagate(data.x, v, key=key),
            dgp.log_likelihood(v, data, N, bound="log_expected", key=key),
        )
    )(v)
    spread = np.sqrt(np.asarray(moments.variance) + np.array([0.4, 0.7]) ** 2)
    truth = scipy.stats.norm.logpdf(data.y, moments.mean, spread).sum(axis=(1, 2))
    assert_close(value, truth)


# --- a Gaussian posterior, integrated or sampled ------------------------------------------------------


def gaussian_posterior(rng, widths):
    factors = [lower_factor(rng, p, M) for p in widths]
    return GaussianPosterior(
        tuple(jnp.asarray(rng.standard_normal((M, p))) for p in widths),
        tuple(jnp.log(jnp.diagonal(f, axis1=1, axis2=2)) for f in map(jnp.asarray, factors)),
        tuple(jnp.asarray(f) for f in factors),
    )


def test_posterior_samples_have_its_moments():
    posterior = gaussian_posterior(np.random.default_rng(5), (T,))
    count = 20_000
    draws = np.asarray(jax.jit(lambda key: posterior.sample(count, key=key))(jax.random.key(1))[0])
    (factor,) = posterior.factors()
    for p in range(T):
        covariance = np.asarray(factor.scale[p] @ factor.scale[p].T)
        deviation = draws[..., p] - factor.mean[:, p]
        spread = np.sqrt(np.diag(covariance))
        assert np.all(np.abs(deviation.mean(0)) < 5 * spread / np.sqrt(count))
        # Var of a sample covariance of Gaussians: (S_ii S_jj + S_ij^2) / count; five standard errors.
        error = np.sqrt((np.outer(spread, spread) ** 2 + covariance**2) / count)
        assert np.all(np.abs(deviation.T @ deviation / count - covariance) < 5 * error)


def test_marginal_and_sampled_propagation_agree():
    """Rows share V in one and not in the other, but each row's law is the same: mean and total variance agree
    within five standard errors of their difference."""
    paths = 6_000
    dgp = model()
    posterior = gaussian_posterior(np.random.default_rng(6), (D, T))
    x = problem()[1].x[:3]

    def both(key):
        first, sample_key, path_key = jax.random.split(key, 3)
        return (
            posterior.propagate(dgp, x, paths, key=first),
            dgp.propagate(x, posterior.sample(paths, key=sample_key), key=path_key),
        )

    def estimates(moments: Moments):
        mean, variance = (np.broadcast_to(m, (paths, 3, T)) for m in moments)
        total = variance + (mean - mean.mean(0)) ** 2
        return (mean.mean(0), mean.std(0)), (total.mean(0), total.std(0))

    integrated, sampled = jax.jit(both)(jax.random.key(2))
    for (a, a_std), (b, b_std) in zip(estimates(integrated), estimates(sampled), strict=True):
        assert np.all(np.abs(a - b) < 5 * np.sqrt((a_std**2 + b_std**2) / paths))


def test_a_deep_model_starts_where_a_shallow_one_does():
    """Hidden layers pass their inputs on. What five layers add to them beyond what two do is a few per cent:
    variances .01 and 3 * .0001 of what the inducing points leave open."""
    x = np.random.default_rng(0).standard_normal((200, 3))

    def added(layers):
        model = build_model(ModelConfig(num_layers=layers, num_inducing=20), x, key=jax.random.key(0))
        v = tuple(start[None] for start in model.inducing_start())
        inputs = jax.jit(lambda x: model.last_layer_inputs(x, v, key=jax.random.key(0)))
        h = inputs(jnp.asarray(x, jnp.float32))
        return np.sqrt(np.mean((np.asarray(h[0]) - x) ** 2))

    assert 0 < added(2) < added(5) < 1.1 * added(2)
