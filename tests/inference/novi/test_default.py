"""NOVI with its default parts: the exact GP, the closed-form last layer, DSVI's bound, and what it
diagnoses."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference import NOVI, Fitted
from novidgp.inference.dsvi import DSVI, evidence_lower_bound
from novidgp.inference.novi.default import SMALL_DATA
from novidgp.model.dgp import Batch
from novidgp.model.likelihoods import Bernoulli
from novidgp.posteriors.gaussian import GaussianPosterior
from support.exact_case import exact_case, one_layer, total_moments
from support.small import ROWS, assert_close, run, small_batch, small_model


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("network", [False, True])
def test_one_layer_with_inducing_points_at_the_data_is_the_exact_gp(network):
    """scikit-learn's GP with the same kernel and noise. 20,000 paths: the mean's standard error is at most
    0.007 of a posterior standard deviation, the variance's 1 %. Five of those for a Gaussian q, which
    converges exactly (the jitter of 1e-8 is far below); as much again for the neural one's critic."""
    (model, batch, test), steps = (case := exact_case()), 1_000
    neural = {"noise_dim": 4, "width": 16} if network else {"network": False}
    method = NOVI(**neural, num_samples=32, lower_rate=0.02, model_rate=0.0)
    inference = method.algorithm(len(batch.x), steps)
    state, _ = run(inference, model, batch, steps, key=jax.random.key(0))
    fitted = inference.fitted(state)
    assert_close(fitted.model, model, rtol=0)
    predict = jax.jit(lambda x, key: fitted.posterior.propagate(model, x, 20_000, key=key))
    mean, variance = total_moments(predict(jnp.asarray(test), jax.random.key(1)))
    exact_mean, exact_std = case.truth()
    slack = 2 if network else 1
    np.testing.assert_array_less(np.abs(mean - exact_mean) / exact_std, slack * 5 / np.sqrt(20_000))
    np.testing.assert_allclose(variance, exact_std**2, rtol=slack * 0.05)


@pytest.mark.usefixtures("x64")
def test_minibatches_weigh_the_same_until_there_are_many():
    """The statistics behind a solved last layer: the first batch counts whole, the second by half."""
    model, batch, _ = exact_case()
    first, second = (Batch(batch.x[part], batch.y[part]) for part in (slice(0, 3), slice(3, 6)))
    inference = NOVI(network=False, model_rate=0.0, statistics_rate=0.1).algorithm(6, 10)
    start = jax.jit(inference.init)(model, batch, key=jax.random.key(0))
    step = jax.jit(inference.step)

    def statistics(*batches):
        state = start
        for rows in batches:
            state, _ = step(state, rows, key=jax.random.key(1))
        assert state.memory.batches == len(batches)
        return state.memory._replace(batches=0)

    mean = jax.tree.map(lambda a, b: (a + b) / 2, statistics(first), statistics(second))
    assert_close(statistics(first, second), mean, rtol=1e-9)


def test_a_deep_model_has_dsvi_s_bound_with_v_drawn_between_the_layers():
    """Three layers, network off: the same mean over keys as with V integrated out in every layer.

    Standard errors of the two means, as estimated from the 2,000 draws, times 4.
    """
    model, batch = small_model(num_layers=3), small_batch()
    model = eqx.tree_at(
        lambda m: [layer.kernel.log_variance for layer in m.layers],
        model,
        [jnp.zeros_like(layer.kernel.log_variance) for layer in model.layers],
    )
    method = NOVI(network=False, last_layer="gradient", num_samples=2, initial_hidden_std=1.0)
    inference = method.algorithm(ROWS, 1)
    state = jax.jit(inference.init)(model, batch, key=jax.random.key(0))
    q = state.players.generator
    gaussian = GaussianPosterior(q.mean, q.log_diagonal, q.lower)

    def drawn(key):
        return -ROWS * inference.step(state, batch, key=key)[1]["loss"]

    def integrated(key):
        return evidence_lower_bound(Fitted(model, gaussian), batch, ROWS, 2, key=key)[0]

    means, errors = [], []
    for estimate, seed in ((drawn, 1), (integrated, 2)):
        values = jax.jit(functools.partial(jax.lax.map, estimate))(
            jax.random.split(jax.random.key(seed), 2000)
        )
        means.append(np.mean(values))
        errors.append(np.std(values) / np.sqrt(len(values)))
    assert abs(means[0] - means[1]) < 4 * np.hypot(*errors), (means, errors)


# --- diagnosis --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("x64")
def test_the_diagnosed_divergence_of_a_gaussian_q_is_the_closed_form():
    """One layer with inducing points at the data: the posterior of V is `N(m, P^-1)` with `P = I + A^T A /
    noise^2`, and `A A^T` is the kernel matrix, jitter aside. q starts at `N(0, s^2 I)`, so that

        FD = E |P (V - m) - V / s^2|^2 = |P m|^2 + s^2 |P - I / s^2|^2.

    The mean over 20,000 draws of a quadratic in V: five standard errors, from the same number of draws in
    NumPy, and 1e-5 for the jitter of 1e-8."""
    model, batch, _ = exact_case()
    std, count = 0.3, 20_000
    method = NOVI(network=False, num_samples=count, initial_final_std=std, last_layer="gradient")
    inference = method.algorithm(len(batch.x), 1)
    assert inference.diagnose is not None

    @jax.jit
    def diagnose(key):
        return inference.diagnose(inference.init(model, batch, key=key), batch, key=key)

    found = diagnose(jax.random.key(0))
    layer, noise = model.layers[0], np.asarray(model.likelihood.variance)
    gram = np.asarray(
        layer.kernel.variance()[:, None, None] * layer.kernel.correlation(layer.inducing, layer.inducing)
    )[0]
    root = np.linalg.cholesky(gram + 1e-8 * np.eye(len(gram)))
    precision = np.eye(len(gram)) + root.T @ root / noise
    pull = (root.T @ np.asarray(batch.y) / noise)[:, 0]  # P m
    excess = precision - np.eye(len(gram)) / std**2
    truth = np.sum(pull**2) + std**2 * np.sum(excess**2)
    draws = std * np.random.default_rng(0).standard_normal((count, len(gram)))
    error = np.std(np.sum((pull - draws @ excess) ** 2, axis=1)) / np.sqrt(count)
    assert error < 0.02 * truth
    np.testing.assert_allclose(found["fisher_divergence"], truth, rtol=1e-5, atol=5 * error)
    np.testing.assert_allclose(found["rsd"], found["fisher_divergence"] / 4, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_the_diagnosed_divergence_vanishes_at_the_posterior():
    """A closed-form step with one batch of all rows puts q at the posterior: two scores are the same in every
    draw."""
    model, batch, _ = exact_case()
    inference = NOVI(network=False, model_rate=0.0, mean_rate=0.0, scale_rate=0.0, lower_rate=0.0).algorithm(
        6, 1
    )

    @jax.jit
    def diagnoses(key):
        start = inference.init(model, batch, key=key)
        after, _ = inference.step(start, batch, key=key)
        return [inference.diagnose(state, batch, key=key)["fisher_divergence"] for state in (start, after)]

    before, after = diagnoses(jax.random.key(0))
    assert before > 1.0
    np.testing.assert_allclose(
        after, 0.0, atol=1e-6
    )  # scores of up to 1e3, twice eight digits less than sixteen


# --- what the number of rows decides ----------------------------------------------------------------------


def test_a_traced_number_of_rows_gives_the_same_step():
    model, batch = small_model(num_layers=1), small_batch()
    method = NOVI(noise_dim=4, width=8)

    def first(num_data, key):
        inference = method.algorithm(num_data, 10)
        state = inference.init(model, batch, key=key)
        return inference.step(state, batch, key=key)

    known = jax.jit(functools.partial(first, 2 * SMALL_DATA))(jax.random.key(0))
    traced = jax.jit(first)(jnp.asarray(2 * SMALL_DATA, jnp.float32), jax.random.key(0))
    assert_close(known, traced, rtol=1e-5, atol=1e-6)  # float32, other constants folded


def test_the_number_of_rows_decides_the_rate_of_hyperparameters():
    """Adam's first step moves every number by its learning rate: 0.03 beside a closed-form last layer on
    large data."""
    model, batch = small_model(num_layers=1), small_batch()

    @functools.partial(jax.jit, static_argnums=0)
    def move(method, num_data):
        inference = method.algorithm(num_data, 10)
        key = jax.random.key(0)
        state = inference.init(model, batch, key=key)
        after = inference.step(state, batch, key=key)[0].players.model
        return jnp.max(jnp.abs(after.layers[0].inducing - model.layers[0].inducing))

    small = {"noise_dim": 4, "width": 8}
    rows = jnp.asarray([SMALL_DATA, SMALL_DATA + 1], jnp.float32)
    np.testing.assert_allclose([move(NOVI(**small), n) for n in rows], [0.02, 0.03], rtol=1e-3)
    gradient = NOVI(**small, last_layer="gradient")
    np.testing.assert_allclose(move(gradient, rows[1]), 0.02, rtol=1e-3)
    np.testing.assert_allclose(move(NOVI(**small, model_rate=0.005), rows[0]), 0.005, rtol=1e-3)


def test_a_solved_last_layer_needs_fewer_steps_and_on_small_data_fewer_rows():
    gaussian, classifier = small_model(), one_layer(np.zeros((3, 1), np.float32), Bernoulli())
    small, large = (NOVI().budget(gaussian, rows) for rows in (SMALL_DATA, SMALL_DATA + 1))
    assert [NOVI().budget(gaussian, rows).batch_size for rows in (100, 277, 320, 321)] == [256, 277, 320, 256]
    climbed = NOVI().budget(classifier, SMALL_DATA)
    usual = NOVI().budget(classifier, SMALL_DATA + 1)
    assert usual == DSVI().budget(gaussian, SMALL_DATA)
    assert small.batch_size == climbed.batch_size < large.batch_size
    assert small.steps < climbed.steps < usual.steps
    assert large.steps < usual.steps


def test_the_last_layer_is_solved_for_where_it_can_be():
    gaussian = small_model()
    classifier = one_layer(np.zeros((3, 1), np.float32), Bernoulli())
    unwhitened = small_model(whiten=False)
    assert NOVI().solves_last_layer(gaussian)
    assert not any(NOVI().solves_last_layer(model) for model in (classifier, unwhitened))
    for options in ({"last_layer": "gradient"}, {"covariance": "diagonal"}, {"bound": "log_expected"}):
        assert not NOVI(**options).solves_last_layer(gaussian)
    for model in (classifier, unwhitened):
        with pytest.raises(ValueError, match="needs Gaussian noise and a whitened model"):
            NOVI(last_layer="closed-form").solves_last_layer(model)
