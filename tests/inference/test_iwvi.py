"""Importance weighting against closed forms: evidence, weights, and the two gradients of the encoder.

The model of most tests is linear and Gaussian: `y = slope_x x + slope_w w + sigma eps`, one GP layer whose
kernel has a variance of 1e-14, so that only its linear mean is left. Evidence and posterior of w are known.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from novidgp.inference import IWVI, Fitted, IWVIDReG
from novidgp.inference.iwvi import (
    Encoder,
    Proposal,
    bound_gradients,
    importance_bound,
    log_ratios,
)
from novidgp.model.dgp import DGP, Batch
from novidgp.model.kernels import stationary
from novidgp.model.layers import GPLayer
from novidgp.model.likelihoods import GaussianNoise
from novidgp.model.local_variable import LocalVariable
from novidgp.model.means import Linear
from novidgp.numerics.nets import MLP, mlp
from support.dense import lower_factor, make_layer, posterior_from
from support.small import ROWS, small_batch, small_model

pytestmark = pytest.mark.usefixtures("x64")
N, M = 6, 4
SLOPE_X, SLOPE_W, NOISE = 0.7, 1.5, 0.4


def linear_gaussian():
    kernel = stationary("rbf", jnp.ones((1, 2)), jnp.array([1e-14]))
    mean = Linear(jnp.array([[SLOPE_X], [SLOPE_W]]), jnp.zeros(1), True)
    points = jnp.asarray(np.random.default_rng(0).standard_normal((1, M, 2)))
    model = DGP((GPLayer(kernel, points, mean, 1),), GaussianNoise(jnp.log(jnp.array([NOISE]))), True)
    model = DGP(model.layers, model.likelihood, True, LocalVariable(1))
    prior = posterior_from([np.zeros((M, 1))], [np.eye(M)[None]])  # its KL is zero
    rng = np.random.default_rng(1)
    return Fitted(model, prior), Batch(*(jnp.asarray(rng.standard_normal((N, 1))) for _ in range(2)))


def evidence(batch):
    return scipy.stats.norm.logpdf(batch.y, SLOPE_X * batch.x, np.hypot(SLOPE_W, NOISE)).sum()


def exact_posterior(batch):
    """`p(w | x, y)`: precision `1 + slope^2 / noise^2`."""
    precision = 1.0 + (SLOPE_W / NOISE) ** 2
    mean = SLOPE_W / NOISE**2 * (batch.y - SLOPE_X * batch.x) / precision
    return Proposal(jnp.asarray(mean), jnp.full_like(mean, -0.5 * np.log(precision)))


def bound_of(fitted, batch, proposal, count, key):
    draw_key, path_key = jax.random.split(key)
    w = proposal.sample(count, key=draw_key)
    return importance_bound(fitted, w, proposal, batch, N, count, key=path_key)[0]


def averaged(estimate):
    """`estimate(..., key)` for many keys, some at a time."""

    def many(fitted, batch, other, count, keys):
        return jax.lax.map(lambda key: estimate(fitted, batch, other, count, key), keys, batch_size=200)

    return jax.jit(many, static_argnums=3)


# --- the bound ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5])
def test_with_the_exact_posterior_the_bound_is_the_evidence(count):
    """All weights are equal then, whatever is drawn; the kernel's 1e-14 of variance is all that is lost."""
    fitted, batch = linear_gaussian()
    value = jax.jit(bound_of, static_argnums=3)(
        fitted, batch, exact_posterior(batch), count, jax.random.key(0)
    )
    np.testing.assert_allclose(value, evidence(batch), rtol=1e-9)


def test_the_bound_rises_with_k_to_the_evidence():
    """With the prior as proposal; means of 1,000 estimates, each step up many standard errors high."""
    fitted, batch = linear_gaussian()
    prior = Proposal(jnp.zeros((N, 1)), jnp.zeros((N, 1)))
    keys = jax.random.split(jax.random.key(1), 1_000)
    values = [np.asarray(averaged(bound_of)(fitted, batch, prior, k, keys)) for k in (1, 8, 200)]
    means, errors = (np.array([f(v) for v in values]) for f in (np.mean, lambda v: v.std() / np.sqrt(len(v))))
    assert np.all(np.diff(means) > 5 * np.hypot(errors[1:], errors[:-1]))
    # The gap is the sum of the rows' var(r) / (2 K mean(r)^2): 5.3 / K here, with as much again to spare.
    assert evidence(batch) - 0.05 - 5 * errors[-1] < means[-1] < evidence(batch) + 5 * errors[-1]


def deep():
    """Two layers, two targets, and an encoder with large weights."""
    rng = np.random.default_rng(2)
    layers = (make_layer(1, inputs=3, points=M, outputs=2, separate=True), make_layer(2, points=M, outputs=2))
    model = DGP(layers, GaussianNoise(jnp.log(jnp.array([0.9, 1.2]))), True, LocalVariable(1))
    means = [rng.standard_normal((M, 2)) for _ in range(2)]
    fitted = Fitted(model, posterior_from(means, [lower_factor(rng, 2, M) for _ in range(2)]))
    batch = Batch(jnp.asarray(rng.standard_normal((N, 2))), jnp.asarray(rng.standard_normal((N, 2))))
    network = mlp(4, 2, width=4, depth=1, activation="tanh", dtype=jnp.float64, key=jax.random.key(3))
    return fitted, Encoder(network, 0.5), batch


def test_a_ratio_depends_on_its_own_draw_only():
    """What the doubly reparametrised gradient rests on."""
    fitted, encoder, batch = deep()
    proposal = encoder(batch)
    w = proposal.sample(3, key=jax.random.key(0))

    def ratios(w):
        return log_ratios(fitted, batch, w, proposal, 3, key=jax.random.key(1))

    jacobian = np.asarray(jax.jit(jax.jacobian(ratios))(w))[..., 0]
    own = np.einsum("knkn->kn", jacobian)
    assert np.all(np.abs(own) > 1e-6)
    assert np.count_nonzero(jacobian) == own.size


def test_rows_without_targets_contribute_nothing():
    fitted, encoder, batch = deep()
    empty = Batch(batch.x, batch.y.at[:2].set(jnp.nan))

    @jax.jit
    def ratios(batch):
        proposal = encoder(batch)
        w = proposal.sample(3, key=jax.random.key(0))
        return log_ratios(fitted, batch, w, proposal, 3, key=jax.random.key(1))

    values = ratios(empty)
    assert np.all(np.asarray(values[:, :2]) == 0.0)
    assert np.all(np.isfinite(values[:, 2:]) & (values[:, 2:] != 0.0))


# --- the gradients ------------------------------------------------------------------------------------


def test_both_gradients_agree_in_the_mean_and_only_the_encoder_differs():
    """1,500 estimates each, from keys of their own: every coordinate within five standard errors."""
    fitted, encoder, batch = deep()
    count = 1_500
    keys = jax.random.split(jax.random.key(4), (count, 2))
    keys = keys.at[0, 1].set(keys[0, 0])

    @jax.jit
    def estimates(keys):
        """Both gradients for many pairs of keys, the first pair of which is one key twice."""

        def one(pair):
            kinds = zip(("plain", "dreg"), pair, strict=True)
            return [bound_gradients(fitted, encoder, batch, N, 3, kind, key=key)[2] for kind, key in kinds]

        return jax.lax.map(one, keys, batch_size=500)

    plain, dreg = estimates(keys)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[0], b[0], rtol=1e-12), plain[0], dreg[0])

    def flat(parts):
        return np.concatenate([np.asarray(leaf).reshape(count, -1) for leaf in jax.tree.leaves(parts)], 1)

    plain, dreg = flat(plain[1]), flat(dreg[1])
    gap = plain[1:].mean(0) - dreg[1:].mean(0)
    error = np.sqrt((plain[1:].var(0) + dreg[1:].var(0)) / (count - 1))
    assert np.all(np.abs(gap) < 5 * error)
    assert not np.allclose(plain[0], dreg[0])


def signal_to_noise(gradient, count, draws=2_000):
    """`|mean| / std` of the encoder's gradient, its geometric mean over the parameters.

    A linear encoder close to the exact posterior, but not at it, as in Rainforth et al. (2018).
    """
    fitted, batch = linear_gaussian()
    gain = SLOPE_W / (NOISE**2 + SLOPE_W**2)
    weight = np.array([[-SLOPE_X * gain + 0.05, 0.0], [gain - 0.05, 0.0]])
    network = MLP((jnp.asarray(weight),), (jnp.array([0.05, 0.1]),), None, "tanh")
    encoder = Encoder(network, float(1.0 / np.hypot(1.0, SLOPE_W / NOISE)))
    batch = Batch(batch.x, jnp.sinh(jnp.arcsinh(batch.y)))

    def one(key):
        return bound_gradients(fitted, encoder, batch, N, count, gradient, key=key)[2][1]

    keys = jax.random.split(jax.random.key(5), draws)
    values = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=500))(keys)
    flat = np.concatenate([np.asarray(leaf).reshape(draws, -1) for leaf in jax.tree.leaves(values)], axis=1)
    return np.exp(np.mean(np.log(np.abs(flat.mean(0)) / flat.std(0))))


def test_signal_to_noise_grows_with_k_for_dreg_and_falls_for_the_plain_gradient():
    """Theory: like sqrt(K) and 1 / sqrt(K), that is by 5.7 and 1/5.7 from K = 2 to 64 (Tucker et al. 2019).

    Measured with 4,000 draws for K = 2, 8, 32, 128: 0.113, 0.040, 0.026, 0.014, and 1.01, 1.65, 2.68, 4.51.
    Here an estimate's error is 1 / 45: the plain one at K = 64 is seen to be small, not how small.
    """
    plain = [signal_to_noise("plain", count) for count in (2, 64)]
    dreg = [signal_to_noise("dreg", count) for count in (2, 64)]
    assert plain[1] < plain[0] / 1.7
    assert dreg[1] > 2.0 * dreg[0]
    assert dreg[1] > 10.0 * plain[1]


@pytest.mark.parametrize("method", [IWVI, IWVIDReG])
def test_a_model_without_a_local_variable_needs_no_encoder(method):
    """Then `log r` has no weights to learn from, and the bound is DSVI's."""
    model, batch = small_model("float64"), small_batch("float64")
    inference = method(num_samples=1, num_paths=3).algorithm(ROWS, 5)

    @jax.jit
    def first(key):
        return inference.step(inference.init(model, batch, key=key), batch, key=key)

    state, info = first(jax.random.key(0))
    assert state.encoder is None
    np.testing.assert_allclose(info["effective_samples"], 1.0)
    assert np.isfinite(info["loss"])
