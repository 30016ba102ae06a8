"""SGHMC: the sampler on targets with known moments, blackjax's NUTS, the exact GP, and what is kept."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference.mixing import effective_sample_size, split_rhat, summary
from novidgp.inference.sghmc import SGHMC, GradientMoments, adapt, move, no_moments
from novidgp.model.dgp import Batch
from novidgp.model.likelihoods import Bernoulli
from support.exact_case import exact_case, one_layer, total_moments
from support.small import ROWS, small_batch, small_model

# --- the sampler alone ------------------------------------------------------------------------------------


def simulate(gradient_of, start, *, burn_in, draws, thin, key, **options):
    """Draws `(draws, chains, ...)` after a burn-in that adapts."""

    def advance(state, key, burning):
        position, momentum, moments = state
        gradient_key, move_key = jax.random.split(key)
        gradient = gradient_of(position, gradient_key)
        moments = adapt(moments, gradient) if burning else moments
        return *move(position, momentum, gradient, moments, key=move_key, **options), moments

    @jax.jit
    def run(key):
        burn_key, draw_key = jax.random.split(key)
        state = start, jnp.zeros_like(start), no_moments(start)
        state, _ = jax.lax.scan(
            lambda s, k: (advance(s, k, True), None), state, jax.random.split(burn_key, burn_in)
        )

        def keep(state, keys):
            state, _ = jax.lax.scan(lambda s, k: (advance(s, k, False), None), state, keys)
            return state, state[0]

        return jax.lax.scan(keep, state, jax.random.split(draw_key, (draws, thin)))[1]

    return np.asarray(run(key))


@pytest.mark.optimised
def test_moments_of_a_correlated_gaussian_in_50_dimensions_with_noisy_gradients():
    """The noise has the variance of the gradient itself, so that half of the mean square is noise. 30,000
    draws, the effective number of which is asserted, put every variance within 5 % (its standard error is
    sqrt(2 / 15,000) = 1.2 %), and likewise means and covariances in units of the standard deviations.
    Discretisation inflates variances by `h^2 lambda / 4`, at most 0.5 % here."""
    size = 50
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.standard_normal((size, size)))
    eigenvalues = np.geomspace(0.25, 4.0, size)
    covariance = (basis * eigenvalues) @ basis.T
    precision = jnp.asarray((basis / eigenvalues) @ basis.T, jnp.float32)

    def noisy_gradient(x, key):
        noise = jax.random.normal(key, x.shape) * jnp.sqrt(jnp.diagonal(precision))
        return x @ precision + noise

    draws = simulate(
        noisy_gradient,
        jnp.ones((1_000, size)),
        burn_in=400,
        draws=30,
        thin=60,
        step_size=0.1,
        friction=0.05,
        noise_share=0.5,
        key=jax.random.key(0),
    )
    assert effective_sample_size(np.swapaxes(draws, 0, 1), rank=False).min() > 15_000
    pooled = draws.reshape(-1, size)
    deviation = np.sqrt(np.diagonal(covariance))
    np.testing.assert_allclose(pooled.mean(0) / deviation, 0.0, atol=0.05)
    np.testing.assert_allclose(
        np.cov(pooled.T) / np.outer(deviation, deviation),
        covariance / np.outer(deviation, deviation),
        atol=0.05,
    )


@pytest.mark.parametrize("curvature", [0.5, 20.0])
def test_the_stationary_variance_is_that_of_the_recursion(curvature):
    """For `U = curvature x^2 / 2` a step is an AR(2) process, whose variance is exactly
    `1 / (curvature (1 - k / (4 - 2 friction)))`, `k = curvature h^2`. 50,000 chains: five standard errors are
    3.2 %; the discretisation's own inflation is 0.5 % and 27 %."""
    friction, step_size = 0.1, 0.2
    moments = GradientMoments(jnp.ones(()), jnp.zeros(()), jnp.zeros(()))  # h = step_size

    @jax.jit
    def run(key):
        def advance(state, key):
            return move(
                *state, curvature * state[0], moments, step_size=step_size, friction=friction, key=key
            ), None

        return jax.lax.scan(advance, (jnp.zeros(50_000), jnp.zeros(50_000)), jax.random.split(key, 500))[0][0]

    ratio = curvature * step_size**2
    truth = 1.0 / (curvature * (1.0 - ratio / (4.0 - 2.0 * friction)))
    np.testing.assert_allclose(np.var(run(jax.random.key(1))), truth, rtol=5 * np.sqrt(2 / 50_000))


def test_the_memory_forgets_signal_and_averages_noise():
    """A constant gradient is known after one step; pure noise is averaged over ever more of them."""
    moments = no_moments(jnp.zeros((4, 2)))
    rng = np.random.default_rng(0)
    for _ in range(200):
        gradient = np.column_stack([np.full(4, 3.0), 2.0 * rng.standard_normal(4)])
        moments = adapt(moments, jnp.asarray(gradient, jnp.float32))
    np.testing.assert_allclose(moments.memory[0], 1.0)
    np.testing.assert_allclose([moments.mean[0], moments.square[0]], [3.0, 9.0], rtol=1e-6)
    assert moments.memory[1] > 50
    np.testing.assert_allclose(moments.square[1], 4.0, rtol=0.4)  # 5 standard errors of 50 steps of 4 chains


# --- on models --------------------------------------------------------------------------------------------

LONG = SGHMC(num_chains=50, num_draws=40, step_size=0.1, friction=0.1, model_rate=0.0)


def run(inference, model, batch, steps, *, key):
    def fit(key):
        init_key, step_key = jax.random.split(key)
        state = inference.init(model, batch, key=init_key)

        def advance(state, key):
            state, info = inference.step(state, batch, key=key)
            return state, (info, state.position)

        return jax.lax.scan(advance, state, jax.random.split(step_key, steps))

    return jax.jit(fit)(key)


@pytest.mark.usefixtures("x64")
def test_one_layer_with_inducing_points_at_the_data_is_the_exact_gp():
    """scikit-learn's GP with the same kernel and noise, against 2,000 kept draws: five standard errors by
    their effective number, and 2 % for the discretisation (`h^2 lambda / 4` of the stiffest direction)."""
    (model, batch, test), steps = (case := exact_case()), 3_000
    inference = LONG.algorithm(6, steps)
    state, _ = run(inference, model, batch, steps, key=jax.random.key(0))
    fitted = inference.fitted(state)
    jax.tree.map(np.testing.assert_array_equal, fitted.model, model)
    assert split_rhat(fitted.posterior.draws[0]).max() < 1.05
    size = effective_sample_size(fitted.posterior.draws[0]).min()
    assert size > 800

    predict = jax.jit(lambda x: fitted.posterior.propagate(model, x, 2_000, key=jax.random.key(1)))
    mean, variance = total_moments(predict(jnp.asarray(test)))
    exact_mean, exact_std = case.truth()
    np.testing.assert_array_less(np.abs(mean - exact_mean) / exact_std, 5 / np.sqrt(size))
    np.testing.assert_allclose(variance, exact_std**2, rtol=0.02 + 5 * np.sqrt(2 / size))


@pytest.mark.usefixtures("x64")
def test_a_classifier_posterior_is_the_one_that_nuts_of_blackjax_finds():
    """Another sampler, another implementation, a posterior without closed form. Both means and standard
    deviations within five standard errors of their effective sample sizes, and 2 % for discretisation."""
    x = np.linspace(-2, 2, 8)[:, None]
    y = (np.sin(2 * x) > 0).astype(float)
    model, batch = one_layer(x[::2], Bernoulli()), Batch(jnp.asarray(x), jnp.asarray(y))
    steps = 3_000
    inference = LONG.algorithm(8, steps)
    state, _ = run(inference, model, batch, steps, key=jax.random.key(0))
    ours = np.asarray(inference.fitted(state).posterior.draws[0])[..., 0]

    def log_density(v):
        return model.log_joint((v[None, :, None],), batch, 8, bound="log_expected", key=jax.random.key(0))[0]

    kernel = blackjax.nuts(log_density, step_size=0.5, inverse_mass_matrix=jnp.ones(4))

    def chain(key):
        def advance(state, key):
            state, _ = kernel.step(key, state)
            return state, state.position

        start = kernel.init(jnp.zeros(4))
        return jax.lax.scan(advance, start, jax.random.split(key, 1_100))[1][100:]

    theirs = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(1), 4)))
    sizes = [effective_sample_size(draws) for draws in (ours, theirs)]
    share = sum(1.0 / size for size in sizes)
    deviation = theirs.std(axis=(0, 1))
    gap = np.abs(ours.mean(axis=(0, 1)) - theirs.mean(axis=(0, 1))) / deviation
    np.testing.assert_array_less(gap, 5 * np.sqrt(share))
    assert np.all(np.abs(ours.std(axis=(0, 1)) / deviation - 1) < 0.02 + 5 * np.sqrt(0.5 * share))


@pytest.mark.parametrize("steps", [20, 23])
def test_after_burn_in_states_are_kept_in_order_and_the_model_rests(steps):
    """Ten of the steps are after burn-in, whatever the number before; the last step here is one more."""
    model, batch = small_model(), small_batch()
    inference = SGHMC(num_chains=3, num_draws=5, burn_in=0.5, window_samples=2).algorithm(ROWS, steps)

    @jax.jit
    def fit(key):
        def advance(state, key):
            after, _ = inference.step(state, batch, key=key)
            return after, (after.position, after.model, after.moments, inference.fitted(after).posterior)

        state = inference.init(model, batch, key=key)
        return jax.lax.scan(advance, state, jax.random.split(key, steps + 1))

    state, (positions, models, moments, posteriors) = fit(jax.random.key(0))
    kept = jax.tree.map(lambda a: a[steps - 1], posteriors)
    for draws, path in zip(kept.draws, positions, strict=True):
        np.testing.assert_array_equal(draws, np.swapaxes(path[steps - 10 : steps][1::2], 0, 1))
    assert len(summary(kept)) == 2
    assert int(state.step) == steps + 1
    jax.tree.map(lambda a: np.testing.assert_array_equal(a[steps - 10], a[steps]), (models, moments))
    assert any(np.any(a[steps - 12] != a[steps - 11]) for a in jax.tree.leaves(models))


def test_until_draws_are_kept_the_posterior_is_where_the_chains_are():
    """A run that ends early must not predict from the start, or from states of other hyper-parameters."""
    model, batch = small_model(num_layers=1), small_batch()
    inference = SGHMC(num_chains=3, num_draws=5, burn_in=0.5).algorithm(ROWS, 20)

    @jax.jit
    def every_step(key):
        """Positions and draws after 0, 1, 2, ... steps."""

        def advance(state, key):
            seen = state.position[0], inference.fitted(state).posterior.draws[0]
            return inference.step(state, batch, key=key)[0], seen

        state = inference.init(model, batch, key=key)
        return jax.lax.scan(advance, state, jax.random.split(key, 16))[1]

    positions, draws = every_step(jax.random.key(0))
    for step, kept in ((0, []), (4, []), (10, []), (15, [12, 14])):
        expected = [*positions[np.array(kept, int)], *[positions[step]] * (5 - len(kept))]
        np.testing.assert_array_equal(draws[step], np.stack(expected, axis=1))


def test_stored_draws_come_each_once_before_any_twice():
    model, batch = small_model(), small_batch()
    inference = SGHMC(num_chains=2, num_draws=3).algorithm(ROWS, 10)
    fitted = jax.jit(lambda key: inference.fitted(inference.init(model, batch, key=key)))(jax.random.key(0))
    posterior = fitted.posterior
    assert posterior.sample(7, key=jax.random.key(0))[0].shape == (7, 5, 2)  # before the first step, too
    numbered = type(posterior)(tuple(jnp.arange(6.0).reshape(2, 3, 1, 1) for _ in range(2)))
    first, second = numbered.sample(8, key=jax.random.key(1))
    np.testing.assert_array_equal(first, second)  # jointly over layers
    assert sorted(np.ravel(first[:6])) == list(range(6))
    np.testing.assert_array_equal(first[6:], first[:2])
