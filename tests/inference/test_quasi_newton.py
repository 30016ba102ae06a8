"""L-BFGS in steps of one evaluation: as many evaluations as SciPy's, and no step that does harm."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from novidgp.inference import quasi_newton


def search(function, start, evaluations):
    """The best points, one per evaluation."""

    @jax.jit
    def step(search, point):
        trial = quasi_newton.trial(search, point)
        search, better = quasi_newton.judge(search, *jax.value_and_grad(function)(trial))
        return search, jnp.where(better, trial, point)

    state, point, points = quasi_newton.begin(start), start, []
    for _ in range(evaluations):
        state, point = step(state, point)
        points.append(point)
    assert int(state.count) == evaluations
    return points


def rosenbrock(x):
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


@pytest.mark.parametrize("size", [2, 10])
def test_needs_about_as_many_evaluations_as_scipy(size, x64):
    """A half more at most: SciPy's line search is another one."""
    start = np.full(size, -1.2)
    theirs = minimize(
        jax.value_and_grad(rosenbrock), start, jac=True, method="L-BFGS-B", options={"maxcor": 20}
    )
    points = search(rosenbrock, jnp.asarray(start), int(1.5 * theirs.nfev))
    np.testing.assert_allclose(points[-1], 1.0, atol=1e-3)


def test_the_value_never_rises_and_a_quadratic_is_solved():
    scales = jnp.asarray([1.0, 10.0, 100.0, 1000.0])

    def quadratic(x):
        return 0.5 * jnp.sum(scales * (x - 3.0) ** 2)

    points = search(quadratic, jnp.zeros(4), 40)
    values = np.asarray([quadratic(point) for point in points])
    assert np.all(np.diff(values) <= 0)
    np.testing.assert_allclose(points[-1], 3.0, atol=1e-4)  # float32


def test_a_trial_without_a_finite_value_is_left():
    """Below 0.5 the function is NaN, and the first moves go there."""
    points = search(lambda x: jnp.sum(jnp.where(x > 0.5, (x - 0.6) ** 2, jnp.nan)), jnp.full(2, 5.0), 40)
    assert np.isfinite(np.stack(points)).all()
    np.testing.assert_allclose(points[-1], 0.6, atol=1e-3)


def test_a_start_without_a_finite_value_stays_where_it_is():
    points = search(lambda x: jnp.nan * jnp.sum(x), jnp.ones(2), 3)
    np.testing.assert_array_equal(points[-1], 1.0)
