"""One layer against dense algebra, output by output; coordinates of the inducing outputs; mean functions.

All in float64. `make_layer` keeps the condition number of `K_ZZ` below 100, so that solves leave more
than twelve digits: tolerances are 1e-11 unless a test says otherwise.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from sklearn.decomposition import PCA

from novidgp.model.dgp import DGP, Batch
from novidgp.model.likelihoods import GaussianNoise
from novidgp.model.means import Linear, Zero, linear_start
from support.dense import JITTER, lower_factor, make_layer, view

pytestmark = pytest.mark.usefixtures("x64")
K, N, M, P, D = 2, 4, 5, 3, 2
ATOL = 1e-11
SHARING = pytest.mark.parametrize("separate", [False, True], ids=["shared", "separate"])


def numbers(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


def truth(layer, x, v, output):
    """`p(f | U)` with `U = m(Z) + chol(K_ZZ) v`, by a dense solve."""
    k_zz, k_xz, variance, mean_z, mean_x = view(layer, output, x)
    u = mean_z + np.linalg.cholesky(k_zz) @ v
    mean = mean_x + k_xz @ np.linalg.solve(k_zz, u - mean_z)
    return mean, variance - np.sum(k_xz * np.linalg.solve(k_zz, k_xz.T).T, axis=1)


@SHARING
@pytest.mark.parametrize("linear", [False, True], ids=["zero", "linear"])
@pytest.mark.parametrize("sampled", [False, True], ids=["common-inputs", "inputs-per-sample"])
def test_conditional_is_the_dense_conditional(separate, linear, sampled):
    layer = make_layer(0, separate=separate, linear=linear)
    x = 2 * numbers(1, *(K, N, D)[0 if sampled else 1 :])
    v = numbers(2, K, M, P)
    moments = jax.jit(type(layer).conditional)(layer, x, v)
    assert moments.mean.shape == (K, N, P)
    assert moments.variance.shape == (K if sampled else 1, N, P if separate else 1)
    variance = np.broadcast_to(moments.variance, (K, N, P))
    for k in range(K):
        for p in range(P):
            mean_p, variance_p = truth(layer, x[k] if sampled else x, v[k, :, p], p)
            np.testing.assert_allclose(moments.mean[k, :, p], mean_p, rtol=0, atol=ATOL)
            np.testing.assert_allclose(variance[k, :, p], variance_p, rtol=0, atol=ATOL)


@SHARING
@pytest.mark.parametrize("sampled", [False, True], ids=["common-inputs", "inputs-per-sample"])
def test_integrating_a_gaussian_out_is_the_dense_formula(separate, sampled):
    layer = make_layer(3, separate=separate)
    x = 2 * numbers(4, *(K, N, D)[0 if sampled else 1 :])
    v, scale = numbers(5, K, M, P), lower_factor(np.random.default_rng(6), P, M)
    moments = jax.jit(type(layer).conditional)(layer, x, v, scale)
    variance = np.broadcast_to(moments.variance, (K, N, P))
    for k in range(K):
        rows = x[k] if sampled else x
        for p in range(P):
            mean_p, variance_p = truth(layer, rows, v[k, :, p], p)
            k_zz, k_xz, *_ = view(layer, p, rows)
            factor = np.linalg.cholesky(k_zz) @ scale[p]
            gain = np.linalg.solve(k_zz, k_xz.T).T
            variance_p = variance_p + np.diag(gain @ factor @ factor.T @ gain.T)
            np.testing.assert_allclose(moments.mean[k, :, p], mean_p, rtol=0, atol=ATOL)
            np.testing.assert_allclose(variance[k, :, p], variance_p, rtol=0, atol=ATOL)


@SHARING
def test_integrating_the_prior_out_leaves_the_prior(separate):
    layer = make_layer(3, separate=separate)
    x = 2 * numbers(4, N, D)
    white = jnp.broadcast_to(jnp.eye(M), (P, M, M))
    moments = jax.jit(type(layer).conditional)(layer, x, jnp.zeros((1, M, P)), white)
    variance = np.broadcast_to(layer.kernel.variance(), (1, N, P))
    np.testing.assert_allclose(moments.variance, variance, rtol=1e-12)
    np.testing.assert_allclose(moments.mean[0], layer.mean(jnp.asarray(x)), atol=1e-14)


def test_conditional_interpolates_the_inducing_outputs():
    layer = make_layer(7)
    v = numbers(8, 1, M, P)
    moments = jax.jit(type(layer).conditional)(layer, layer.inducing[0], v)
    u = np.stack(
        [view(layer, p, np.zeros((1, D))).mean_z + chol(layer, p) @ v[0, :, p] for p in range(P)], axis=1
    )
    # The jitter is noise on U: it moves the mean by 1e-8 of it times |K^-1| and leaves 2e-8 of the variance.
    np.testing.assert_allclose(moments.mean[0], u, rtol=0, atol=1e-6)
    assert np.all(moments.variance <= 2.1 * JITTER * layer.kernel.variance())
    assert np.all(moments.variance > 0)


def chol(layer, output):
    return np.linalg.cholesky(view(layer, output, np.zeros((1, D))).k_zz)


# --- coordinates ------------------------------------------------------------------------------------


@SHARING
def test_whitening_undoes_the_dense_colouring(separate):
    layer = make_layer(9, separate=separate)
    v, scale = numbers(10, K, M, P), lower_factor(np.random.default_rng(11), P, M)
    means = [view(layer, p, np.zeros((1, D))).mean_z for p in range(P)]
    u = np.stack([means[p] + v[..., p] @ chol(layer, p).T for p in range(P)], axis=-1)
    coloured = np.stack([chol(layer, p) @ scale[p] for p in range(P)])
    white, white_scale, log_det_root = jax.jit(
        lambda la, u, factor: (la.whiten(u), la.whiten_scale(factor), la.log_det_root())
    )(layer, u, coloured)
    np.testing.assert_allclose(white, v, rtol=0, atol=ATOL)
    np.testing.assert_allclose(white_scale, scale, rtol=0, atol=ATOL)
    log_det = -sum(np.sum(np.log(np.diag(chol(layer, p)))) for p in range(P))
    np.testing.assert_allclose(log_det_root, log_det, rtol=0, atol=ATOL)


def test_log_joints_differ_by_the_jacobian_only():
    layers = (make_layer(12, separate=True, outputs=D), make_layer(13, outputs=P))
    likelihood = GaussianNoise(jnp.log(jnp.array([0.3, 0.5, 0.7])))
    white, plain = DGP(layers, likelihood, True), DGP(layers, likelihood, False)
    batch = Batch(jnp.asarray(numbers(14, N, D)), jnp.asarray(numbers(15, N, P)))
    v = tuple(numbers(16 + i, K, M, layer.outputs) for i, layer in enumerate(layers))
    u = tuple(
        np.stack(
            [view(la, p, np.zeros((1, D))).mean_z + w[..., p] @ chol(la, p).T for p in range(la.outputs)], -1
        )
        for la, w in zip(layers, v, strict=True)
    )
    key = jax.random.key(0)
    joint = jax.jit(
        lambda model, inducing: (model.log_joint(inducing, batch, N, key=key), model.log_prior(inducing))
    )
    (joint_v, prior_v), (joint_u, prior_u) = joint(white, v), joint(plain, u)
    log_det = sum(np.sum(np.log(np.diag(chol(la, p)))) for la in layers for p in range(la.outputs))
    # Values of a few hundred through two layers: 1e-9 is twelve digits of them.
    np.testing.assert_allclose(joint_v - joint_u, log_det, rtol=0, atol=1e-9)

    for k in range(K):
        terms = (
            scipy.stats.multivariate_normal(
                view(la, p, np.zeros((1, D))).mean_z, view(la, p, np.zeros((1, D))).k_zz
            ).logpdf(w[k, :, p])
            for la, w in zip(layers, u, strict=True)
            for p in range(la.outputs)
        )
        np.testing.assert_allclose(prior_u[k], sum(terms), rtol=0, atol=1e-9)
        standard = sum(scipy.stats.norm.logpdf(w[k]).sum() for w in v)
        np.testing.assert_allclose(prior_v[k], standard, rtol=0, atol=ATOL)


# --- mean functions ---------------------------------------------------------------------------------


def test_mean_functions_are_what_they_say():
    x, weight, bias = numbers(0, K, N, D), numbers(1, D, P), numbers(2, P)
    np.testing.assert_array_equal(Zero(P)(x), np.zeros((K, N, P)))
    linear = Linear(jnp.asarray(weight), jnp.asarray(bias), True)
    np.testing.assert_allclose(linear(x), np.einsum("knd,dp->knp", x, weight) + bias, rtol=1e-13)


def test_a_fixed_mean_gets_no_gradient_and_passes_its_inputs_on():
    x, weight, bias = numbers(0, N, D), jnp.asarray(numbers(1, D, P)), jnp.asarray(numbers(2, P))
    learned = jax.grad(lambda m: jnp.sum(m(x)))(Linear(weight, bias, True))
    fixed = jax.grad(lambda m: jnp.sum(m(x)))(Linear(weight, bias, False))
    np.testing.assert_allclose(learned.weight, np.repeat(x.sum(0)[:, None], P, axis=1), rtol=1e-12)
    np.testing.assert_array_equal(learned.bias, np.full(P, float(N)))
    assert not fixed.weight.any()
    assert not fixed.bias.any()
    by_input = jax.grad(lambda h: jnp.sum(Linear(weight, bias, False)(h)))(x)
    np.testing.assert_allclose(by_input, np.broadcast_to(weight.sum(1), (N, D)), rtol=1e-12)


def test_the_linear_start_is_identity_padding_or_pca():
    x = np.asarray(numbers(3, 20, 4)) @ np.diag([3.0, 2.0, 1.0, 0.5]) + 7.0
    np.testing.assert_array_equal(linear_start(x, 4), np.eye(4))
    np.testing.assert_array_equal(linear_start(x, 6), np.eye(4, 6))
    weight = linear_start(x, 2)
    directions = PCA(2).fit(x).components_
    np.testing.assert_allclose(np.abs(np.sum(weight.T * directions, axis=1)), 1.0, rtol=1e-12)
    np.testing.assert_allclose(weight.T @ weight, np.eye(2), atol=1e-12)
    # More outputs than rows: what PCA cannot give is zero.
    short = linear_start(x[:2], 3)
    assert short.shape == (4, 3)
    assert not short[:, 2].any()
