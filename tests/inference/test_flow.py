"""The flow posterior: its density, its bound where DSVI's is known, the exact GP, and a banana."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference import Flow
from novidgp.inference.dsvi import kl_divergence
from novidgp.inference.flow import evidence_lower_bound
from novidgp.inference.optim import adam_per_field, ascend
from novidgp.numerics.nets import NetworkShape
from novidgp.posteriors.flow import flow_posterior
from novidgp.posteriors.gaussian import GaussianPosterior
from novidgp.posteriors.generators import flatten, unflatten
from support.exact_case import exact_case, total_moments
from support.small import small_model

pytestmark = pytest.mark.usefixtures("x64")
SHAPES = ((3, 2), (2, 1))


def made(start, couplings, *, spread=0.0, seed=0):
    """A flow whose parameters are moved from their start by normals of standard deviation `spread`."""
    posterior = flow_posterior(
        start,
        couplings,
        NetworkShape(8, 1, "tanh"),
        initial_hidden_std=0.5,
        initial_final_std=0.5,
        key=jax.random.key(seed),
    )
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda a: a + spread * rng.standard_normal(a.shape), posterior)


def zeros(shapes=SHAPES):
    return tuple(jnp.zeros(shape) for shape in shapes)


def test_the_density_is_that_of_the_map_from_noise():
    """Three draws: `log N(xi) - log |dV/dxi|` by the dense Jacobian of the sampling function itself, with
    its noise set by hand. Rounding of float64 through a dozen operations."""
    flow = made(zeros(), 3, spread=0.3)

    @jax.jit
    def measure(xi):
        def outputs(noise):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("novidgp.posteriors.flow.normal", lambda key, shape, dtype: noise[None])
                v, log_density = flow.sample_with_density(1, key=jax.random.key(0))
            return flatten(v)[0], log_density[0]

        jacobian = jax.jacfwd(lambda noise: outputs(noise)[0])(xi)
        v, partial = outputs(xi)
        noise = -0.5 * jnp.sum(xi**2 + jnp.log(2 * jnp.pi))
        return (
            noise - jnp.linalg.slogdet(jacobian)[1],
            noise + partial,
            flow.log_density(unflatten(v[None], SHAPES))[0],
        )

    for xi in np.random.default_rng(1).standard_normal((3, 8)):
        dense, forward, inverse = measure(jnp.asarray(xi))
        np.testing.assert_allclose(forward, dense, rtol=1e-10)
        np.testing.assert_allclose(inverse, dense, rtol=1e-8)


def test_every_coordinate_depends_on_noise_of_every_layer():
    """Two couplings carry each half into the other, so that layers are correlated, and their spreads too."""
    flow = made(zeros(), 2, spread=0.3)
    draws = flatten(flow.sample(20_000, key=jax.random.key(0)))
    squares = np.corrcoef((np.asarray(draws) - np.mean(draws, axis=0)).T ** 2)
    assert np.abs(np.corrcoef(np.asarray(draws).T)[:6, 6:]).max() > 0.05  # standard error: 0.007
    assert np.abs(squares[:6, 6:]).max() > 0.05


@pytest.mark.parametrize("whiten", [True, False])
def test_without_couplings_the_bound_has_the_closed_form_divergence(whiten):
    """Log joint without data: the bound is `-KL(q || p)`, DSVI's closed form, within five standard errors
    of 4,000 draws of `|w|^2 / 2` and the like."""
    model = small_model("float64", whiten=whiten)
    flow = made(model.inducing_start(), 0, spread=0.2)
    gaussian = GaussianPosterior(flow.mean, flow.log_diagonal, flow.map().scales())

    @jax.jit
    def measure(key):
        v, log_density = flow.sample_with_density(4_000, key=key)
        bound = evidence_lower_bound(flow, model.log_prior, 4_000, key=key)
        return bound, jnp.std(model.log_prior(v) - log_density), kl_divergence(model, gaussian)

    bound, spread, divergence = measure(jax.random.key(0))
    np.testing.assert_allclose(bound, -divergence, rtol=0, atol=5 * float(spread) / np.sqrt(4_000))


def test_one_layer_with_inducing_points_at_the_data_is_the_exact_gp():
    """scikit-learn's GP with the same kernel and noise. 20,000 paths: the mean's standard error is 0.007 of a
    posterior standard deviation, the variance's 1 %; five of those, and as much again for the optimiser."""
    (model, batch, test), steps = (case := exact_case()), 1_500
    inference = Flow(
        num_samples=32, couplings=2, width=16, lower_rate=0.02, initial_final_std=0.5, model_rate=0.0
    ).algorithm(len(batch.x), steps)

    @jax.jit
    def fit(key):
        state = inference.init(model, batch, key=key)
        state, _ = jax.lax.scan(
            lambda s, k: inference.step(s, batch, key=k), state, jax.random.split(key, steps)
        )
        fitted = inference.fitted(state)
        return fitted.posterior.propagate(fitted.model, jnp.asarray(test), 20_000, key=key)

    mean, variance = total_moments(fit(jax.random.key(0)))
    exact_mean, exact_std = case.truth()
    np.testing.assert_array_less(np.abs(mean - exact_mean) / exact_std, 10 / np.sqrt(20_000))
    np.testing.assert_allclose(variance, exact_std**2, rtol=0.1)


def banana(v):
    """`x ~ N(0, 1)`, `y ~ N(x^2 - 1, 0.3^2)`: a normalised density."""
    x, y = v[0][:, 0, 0], v[0][:, 1, 0]
    bend = (y - x**2 + 1) / 0.3
    return -0.5 * (x**2 + bend**2) - jnp.log(2 * jnp.pi * 0.3)


@pytest.mark.parametrize(("couplings", "shortfall"), [(0, (0.5, 2.0)), (4, (-0.05, 0.1))])
def test_a_flow_bends_where_a_gaussian_cannot(couplings, shortfall):
    """`-ELBO = KL(q || banana)` at the end. The best Gaussian is more than half a nat away; the flow comes
    within a tenth, measured by 4,000 draws whose standard error is 0.02."""
    steps = 1_500
    flow = made(zeros(((2, 1),)), couplings)
    rates = {"mean": 0.02, "log_diagonal": 0.02, "lower": 0.02, "couplings": 0.01}
    optimiser = adam_per_field(steps, **rates)

    @jax.jit
    def fit(key):
        def step(state, key):
            flow, opt_state = state
            gradient = jax.grad(lambda q: evidence_lower_bound(q, banana, 64, key=key))(flow)
            return ascend(optimiser, gradient, opt_state, flow), None

        keys = jax.random.split(key, steps)
        (trained, _), _ = jax.lax.scan(step, (flow, optimiser.init(flow)), keys)
        return -evidence_lower_bound(trained, banana, 4_000, key=key)

    low, high = shortfall
    assert low < fit(jax.random.key(1)) < high


def test_options_that_do_nothing_are_refused():
    with pytest.raises(ValueError, match="width=8 has no effect with couplings=0"):
        Flow(couplings=0, width=8)


def test_a_fitted_flow_is_a_pytree_of_arrays_only():
    flow = made(zeros(), 2)
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(flow))
