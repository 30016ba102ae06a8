"""DSVI and SVGP against exact Gaussian-process regression: bound, optimum, predictions, unbiasedness.

Dense formulas in NumPy, predictions by scikit-learn. Where `Z = X`, the jitter of 1e-8 makes the inducing
outputs noisy copies of the function, so the bound falls short of the evidence by their conditional variance
over twice the noise, and the like: at most a few times `N * 1e-8 * variance / noise`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from novidgp.inference import Fitted, with_frozen_model
from novidgp.inference.dsvi import DSVI, evidence_lower_bound, kl_divergence
from novidgp.model import dgp as dgp_module
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import DGP, Batch
from novidgp.model.kernels import stationary
from novidgp.model.layers import GPLayer
from novidgp.model.likelihoods import GaussianNoise
from novidgp.model.means import Zero
from novidgp.posteriors.gaussian import GaussianPosterior, gaussian_start
from support.dense import JITTER, lower_factor, make_layer, posterior_from, view
from support.small import run

pytestmark = pytest.mark.usefixtures("x64")
N, M, D, P = 12, 5, 2, 2
VARIANCE, NOISE = 1.3, 0.09
LENGTHSCALE = np.array([0.8, 1.2])
KEY = 0


@jax.jit
def bound_of(fitted, batch):
    return evidence_lower_bound(fitted, batch, N, 1, key=jax.random.key(KEY))[0]


# --- the bound of one layer ---------------------------------------------------------------------------


def gaussian_kl(mean, covariance, prior_mean, prior):
    gap = prior_mean - mean
    solve = np.linalg.solve(prior, np.column_stack([covariance, gap]))
    log_dets = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(covariance)[1]
    return 0.5 * (np.trace(solve[:, :-1]) + gap @ solve[:, -1] - len(mean) + log_dets)


@pytest.mark.parametrize(
    ("separate", "whitened"), [(False, True), (True, False)], ids=["shared-whitened", "separate-unwhitened"]
)
def test_elbo_of_one_layer_is_the_dense_closed_form(separate, whitened):
    rng = np.random.default_rng(0)
    layer = make_layer(1, points=M, outputs=P, separate=separate)
    noise = np.array([0.3, 0.6])
    model = DGP((layer,), GaussianNoise(jnp.log(noise)), whitened)
    mean, factor = rng.standard_normal((M, P)), lower_factor(rng, P, M)
    x, y = rng.standard_normal((N, D)), rng.standard_normal((N, P))
    truth = 0.0
    for p in range(P):
        k_zz, k_xz, variance, mean_z, mean_x = view(layer, p, x)
        root = np.linalg.cholesky(k_zz)
        u = mean_z + root @ mean[:, p] if whitened else mean[:, p]
        scale = root @ factor[p] if whitened else factor[p]
        gain = np.linalg.solve(k_zz, k_xz.T).T
        f_mean = mean_x + gain @ (u - mean_z)
        f_variance = variance - np.sum(gain * k_xz, 1) + np.sum((gain @ scale) ** 2, 1)
        truth += np.sum(scipy.stats.norm.logpdf(y[:, p], f_mean, noise[p]) - f_variance / (2 * noise[p] ** 2))
        truth -= gaussian_kl(u, scale @ scale.T, mean_z, k_zz)
    value = bound_of(Fitted(model, posterior_from([mean], [factor])), Batch(x, y))
    # Condition numbers below 100 leave more than eleven digits of a bound of a few hundred.
    np.testing.assert_allclose(value, truth, rtol=1e-11)


def test_kl_vanishes_at_the_prior_only():
    model = DGP((make_layer(1, points=M, outputs=P),), GaussianNoise(jnp.zeros(P)))
    prior = posterior_from([np.zeros((M, P))], [np.broadcast_to(np.eye(M), (P, M, M))])
    np.testing.assert_allclose(kl_divergence(model, prior), 0.0, atol=1e-13)
    shifted = posterior_from([np.full((M, P), 0.1)], [np.broadcast_to(np.eye(M), (P, M, M))])
    np.testing.assert_allclose(kl_divergence(model, shifted), 0.5 * M * P * 0.01, rtol=1e-12)


# --- Z = X: the exact Gaussian process ----------------------------------------------------------------


def regression():
    """Twelve points well apart, so that `K` has a condition number of 60."""
    rng = np.random.default_rng(7)
    grid = np.stack(np.meshgrid(np.arange(4.0), np.arange(3.0)), -1).reshape(-1, 2)
    x = grid + 0.2 * rng.standard_normal(grid.shape)
    y = np.sin(x[:, :1]) + 0.3 * x[:, 1:] + np.sqrt(NOISE) * rng.standard_normal((N, 1))
    x_test = np.array([[0.5, 0.5], [1.7, 2.2], [3.5, -1.0], [10.0, 10.0]])
    return x, y - y.mean(), np.concatenate([x[:3], x_test])


def single_layer(z):
    kernel = stationary("rbf", jnp.asarray(LENGTHSCALE[None]), jnp.array([VARIANCE]))
    layer = GPLayer(kernel, jnp.asarray(z)[None], Zero(1), 1)
    return DGP((layer,), GaussianNoise(jnp.array([0.5 * np.log(NOISE)])))


def covariance(a, b):
    return VARIANCE * RBF(LENGTHSCALE)(a, b)


def optimal(x, y, z):
    """The bound's maximiser in V: precision `I + A^T A / noise`, mean `S A^T y / noise`; and A."""
    root = np.linalg.cholesky(covariance(z, z) + JITTER * VARIANCE * np.eye(len(z)))
    a = np.linalg.solve(root, covariance(z, x)).T
    spread = np.linalg.inv(np.eye(len(z)) + a.T @ a / NOISE)
    spread = 0.5 * (spread + spread.T)
    return posterior_from([spread @ a.T @ y / NOISE], [np.linalg.cholesky(spread)[None]]), a


def evidence(x, y):
    return scipy.stats.multivariate_normal(np.zeros(N), covariance(x, x) + NOISE * np.eye(N)).logpdf(y[:, 0])


def test_optimal_bound_with_few_inducing_points_is_the_collapsed_bound():
    """Titsias (2009): `log N(y; 0, Q + noise) - tr(K - Q) / (2 noise)`."""
    x, y, _ = regression()
    z = x[::3] + 0.1
    posterior, a = optimal(x, y, z)
    q = a @ a.T
    truth = scipy.stats.multivariate_normal(np.zeros(N), q + NOISE * np.eye(N)).logpdf(y[:, 0])
    truth -= (N * VARIANCE - np.trace(q)) / (2 * NOISE)
    value = bound_of(Fitted(single_layer(z), posterior), Batch(x, y))
    np.testing.assert_allclose(value, truth, rtol=1e-10)  # fourteen digits less twice the two of cond(K)
    assert value < evidence(x, y) - 0.1


def test_every_bound_is_below_the_evidence():
    x, y, _ = regression()
    limit, rng = evidence(x, y), np.random.default_rng(8)
    best, _ = optimal(x, y, x)
    for scale in (0.0, 0.01, 0.3, 1.0):
        mean = np.asarray(best.mean[0]) + scale * rng.standard_normal((N, 1))
        factor = np.asarray(best.factors()[0].scale) * np.exp(scale * rng.standard_normal((1, N, 1)))
        value = bound_of(Fitted(single_layer(x), posterior_from([mean], [factor])), Batch(x, y))
        assert value < limit
        assert scale == 0.0 or value < limit - 1e-3 * scale  # and strictly, away from the optimum


def test_the_optimal_bound_is_the_evidence():
    x, y, _ = regression()
    value = bound_of(Fitted(single_layer(x), optimal(x, y, x)[0]), Batch(x, y))
    # See the module's docstring: two jitters of conditional variance per row, in the trace and the
    # determinant.
    np.testing.assert_allclose(value, evidence(x, y), rtol=0, atol=4 * N * JITTER * VARIANCE / NOISE)


def exact(x, y, x_test):
    """scikit-learn's posterior of the latent function at the same, fixed hyper-parameters."""
    kernel = ConstantKernel(VARIANCE) * RBF(LENGTHSCALE)
    gp = GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None).fit(x, y[:, 0])
    mean, std = gp.predict(x_test, return_std=True)
    return mean, std**2


@jax.jit
def propagate(fitted, x):
    return fitted.posterior.propagate(fitted.model, x, 1, key=jax.random.key(KEY))


def latent_moments(fitted, x):
    moments = propagate(fitted, x)
    return np.asarray(moments.mean)[0, :, 0], np.asarray(moments.variance)[0, :, 0]


def test_predictions_at_the_optimum_are_the_exact_gaussian_process():
    x, y, x_test = regression()
    mean, variance = latent_moments(Fitted(single_layer(x), optimal(x, y, x)[0]), x_test)
    exact_mean, exact_variance = exact(x, y, x_test)
    # Noise of 1e-8 * 1.3 on u against noise of 0.09 on y: relative changes of 1e-7 in means and variances of
    # order one, with a decade to spare.
    np.testing.assert_allclose(mean, exact_mean, rtol=0, atol=1e-6)
    np.testing.assert_allclose(variance, exact_variance, rtol=0, atol=1e-6)


def test_gradient_vanishes_at_the_optimum():
    x, y, _ = regression()
    posterior, _ = optimal(x, y, x)
    model, batch = single_layer(x), Batch(x, y)
    gradient = jax.grad(lambda q: bound_of(Fitted(model, q), batch))(posterior)
    # Terms of size |A^T y| / noise ~ 100 cancel; cond(K) = 60 of float64 leaves 1e-12 of that.
    for leaf in (*gradient.mean, *gradient.log_diagonal):
        np.testing.assert_allclose(leaf, 0.0, atol=1e-10)
    np.testing.assert_allclose(np.tril(gradient.lower[0], -1), 0.0, atol=1e-10)


def test_a_short_training_run_finds_the_exact_gaussian_process():
    """With the model held fixed: only q learns."""
    x, y, x_test = regression()
    model, batch, steps = single_layer(x), Batch(jnp.asarray(x), jnp.asarray(y)), 600
    method = with_frozen_model(DSVI(num_paths=1, learning_rate=0.05).algorithm(N, steps))

    state, info = run(method, model, batch, steps, key=jax.random.key(1))
    # Adam to its cosine end: within 1e-2 nats of the optimum, which bounds KL(q || exact posterior) by
    # as much; hence means within sqrt(2 * 0.01) = 0.14 posterior standard deviations, variances within
    # 20 %.
    assert 0.0 < evidence(x, y) + N * float(info["loss"][-1]) < 1e-2
    mean, variance = latent_moments(method.fitted(state), x_test)
    exact_mean, exact_variance = exact(x, y, x_test)
    assert np.all(np.abs(mean - exact_mean) < 0.14 * np.sqrt(exact_variance))
    np.testing.assert_allclose(variance, exact_variance, rtol=0.2)


# --- estimates ----------------------------------------------------------------------------------------


def deep():
    rng = np.random.default_rng(9)
    layers = (make_layer(1, points=M, outputs=D, separate=True), make_layer(2, points=M, outputs=P))
    model = DGP(layers, GaussianNoise(jnp.log(jnp.array([0.5, 0.8]))))
    means = [rng.standard_normal((M, w)) for w in (D, P)]
    factors = [lower_factor(rng, w, M) for w in (D, P)]
    return Fitted(model, posterior_from(means, factors)), Batch(
        rng.standard_normal((N, D)), rng.standard_normal((N, P))
    )


def test_minibatch_bounds_and_gradients_average_to_the_full_batch(monkeypatch):
    """With the noise pinned per path, so that a row sees the same path in any batch."""

    def constant(key, shape, dtype):
        paths, _, width = shape
        return jnp.broadcast_to(jnp.sin(jnp.arange(1.0, paths * width + 1)).reshape(paths, 1, width), shape)

    monkeypatch.setattr(dgp_module, "normal", constant)
    fitted, data = deep()
    value_and_grad = jax.jit(
        lambda batch: jax.value_and_grad(
            lambda f: evidence_lower_bound(f, batch, N, 3, key=jax.random.key(KEY))[0]
        )(fitted)
    )
    full = value_and_grad(data)
    order = np.random.default_rng(10).permutation(N).reshape(3, 4)
    parts = [value_and_grad(Batch(data.x[rows], data.y[rows])) for rows in order]
    average = jax.tree.map(lambda *leaves: sum(leaves) / 3, *parts)
    # Sums of float64 in another order.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), average, full)


def test_random_minibatch_and_path_estimates_are_unbiased():
    """1,000 single-path estimates on random batches against 1,000 full-batch ones, within five standard
    errors of their difference."""
    count = 1_000
    fitted, data = deep()
    x, y = jnp.asarray(data.x), jnp.asarray(data.y)

    def estimate(size):
        def one(key):
            path_key, row_key = jax.random.split(key)
            rows = jax.random.permutation(row_key, N)[:size]
            return evidence_lower_bound(fitted, Batch(x[rows], y[rows]), N, 1, key=path_key)[0]

        return jax.jit(jax.vmap(one))

    small = np.asarray(estimate(4)(jax.random.split(jax.random.key(3), count)))
    full = np.asarray(estimate(N)(jax.random.split(jax.random.key(4), count)))
    assert abs(small.mean() - full.mean()) < 5 * np.sqrt((small.var() + full.var()) / count)


@pytest.mark.parametrize("whiten", [True, False])
def test_the_start_follows_the_mean_functions(whiten):
    """Zero whitened mean: every layer's mean is its mean function, whatever the coordinates of q."""
    x = np.random.default_rng(11).standard_normal((N, D))
    model = build_model(ModelConfig(num_inducing=M, whiten=whiten, dtype="float64"), x, key=jax.random.key(0))

    @jax.jit
    def means(model):
        layer, posterior = (
            model.layers[0],
            GaussianPosterior(*gaussian_start(model.inducing_start(), 1e-2, 1e-1)),
        )
        start = model.whiten_gaussian(posterior.factors())[0]
        return layer.conditional(jnp.asarray(x), start.mean[None]).mean[0], layer.mean(jnp.asarray(x))

    start, mean_function = means(model)
    np.testing.assert_allclose(start, mean_function, rtol=0, atol=1e-12)  # a difference of equals, times A
