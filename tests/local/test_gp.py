"""The local GP against exact GPs: scikit-learn's kernels, dense algebra, and every row left out in turn."""

import dataclasses

import jax
import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process.kernels import Matern

from novidgp.local.gp import LocalGP, starting_gp
from novidgp.local.rows import ConditionedGP, Rows
from novidgp.local.training import error_loss, leave_one_out_loss
from novidgp.numerics.trees import flattened

ROWS, COLUMNS = 40, 3


@pytest.fixture
def gp():
    values = ([0.7, 1.5, 0.4], [0.6, 0.3], 1.7, 0.05, 0.2, 4.0)
    return LocalGP(*(np.asarray(np.log(value)) for value in values))


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=ROWS), rng.uniform(0.1, 0.5, ROWS), rng.uniform(0.5, 2.0, ROWS)
    return Rows(rng.normal(size=(ROWS, COLUMNS)), *columns)


def some(rows, chosen):
    return Rows(*(getattr(rows, field.name)[chosen] for field in dataclasses.fields(Rows)))


def dense_kernel(gp, x, z):
    scale = np.exp(gp.log_lengthscale)
    rough, smooth = np.exp(gp.log_variance)
    stretched = scale * np.exp(gp.log_stretch)
    return rough * Matern(nu=0.5)(x / scale, z / scale) + smooth * Matern(nu=1.5)(
        x / stretched, z / stretched
    )


def noise(gp, deep_variance):
    return 1e-4 * np.exp(gp.log_variance).sum() + np.exp(gp.log_noise) + np.exp(gp.log_share) * deep_variance


def exact(gp, rows, inputs):
    diagonal = np.diag(noise(gp, rows.deep_variance) * rows.noise_factor)
    cross = dense_kernel(gp, inputs, rows.inputs)
    weights = np.linalg.solve(dense_kernel(gp, rows.inputs, rows.inputs) + diagonal, cross.T).T
    prior = np.sum(np.exp(gp.log_variance))
    return weights @ rows.residuals, prior - np.sum(weights * cross, axis=1)


def test_with_all_rows_as_neighbours_it_is_the_exact_gp(gp, rows):
    inputs = np.random.default_rng(1).normal(size=(7, COLUMNS))
    conditioned = ConditionedGP(gp, rows)
    mean, variance = conditioned.moments(inputs, np.zeros(7), conditioned.nearest(inputs, ROWS))
    wanted = exact(gp, rows, inputs)
    variance = variance - noise(gp, 0.0)
    np.testing.assert_allclose(mean, wanted[0], atol=1e-6)
    np.testing.assert_allclose(variance, wanted[1], atol=1e-6)


def test_leaving_a_row_out_is_a_gp_without_it(gp, rows):
    numbers = np.arange(ROWS)
    conditioned = ConditionedGP(gp, rows)
    found = conditioned.nearest_others(numbers, ROWS)
    mean, variance = conditioned.moments(rows.inputs, rows.deep_variance, found)
    variance = variance - noise(gp, rows.deep_variance)
    for number in numbers:
        others = numbers != number
        wanted = exact(gp, some(rows, others), rows.inputs[[number]])
        np.testing.assert_allclose(mean[number], wanted[0][0], atol=1e-6)
        np.testing.assert_allclose(variance[number], wanted[1][0], atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_derivatives_are_those_of_the_exact_moments(gp, rows):
    """Central differences of the dense formula: their own error is of the order of 1e-8."""
    conditioned = ConditionedGP(gp, rows)
    inputs = rows.inputs[:1]
    others = some(rows, slice(1, None))
    hoods = jax.device_put(others.neighbourhoods(inputs, np.arange(ROWS - 1)[None]))
    leaves, structure = jax.tree.flatten(conditioned.gp)
    for output in range(2):
        found = jax.tree.leaves(jax.grad(lambda gp, o=output: gp.conditional(hoods)[o][0])(gp))
        for number, leaf in enumerate(leaves[:-1]):  # the degrees of freedom do not enter
            for place in np.ndindex(np.shape(leaf)):
                values = []
                for step in (1e-5, -1e-5):
                    moved = [np.array(part, float) for part in leaves]
                    moved[number][place] += step
                    values.append(exact(jax.tree.unflatten(structure, moved), others, inputs)[output][0])
                slope = (values[0] - values[1]) / 2e-5
                np.testing.assert_allclose(np.asarray(found[number])[place], slope, atol=1e-6)


def test_a_prediction_does_not_depend_on_the_rows_beside_it(gp, rows):
    """To the last bit, and across the blocks of the compiled program."""
    inputs = np.random.default_rng(1).normal(size=(600, COLUMNS))
    conditioned = ConditionedGP(gp, rows)
    spread = np.random.default_rng(2).uniform(size=600)
    together = conditioned.moments(inputs, spread, conditioned.nearest(inputs, 8))
    for chosen in (np.arange(20), np.arange(505, 520), np.array([599])):
        found = conditioned.nearest(inputs[chosen], 8)
        part = conditioned.moments(inputs[chosen], spread[chosen], found)
        for some, all_ in zip(part, together, strict=True):
            np.testing.assert_array_equal(some, all_[chosen])


def test_twins_are_one_point(gp):
    """Neighbours that agree in everything but noise: the mean is that of their average."""
    inputs = np.zeros((30, COLUMNS))
    rows = Rows(inputs, np.linspace(-1.0, 3.0, 30), np.full(30, 0.25), np.ones(30))
    mean, variance = ConditionedGP(gp, rows).moments(inputs[:1], np.full(1, 0.25), np.arange(30)[None])
    own, prior = noise(gp, 0.25), 0.9
    shrink = prior / (prior + own / 30)
    np.testing.assert_allclose(mean, shrink * 1.0, atol=1e-6)
    np.testing.assert_allclose(variance, prior - prior * shrink + own, atol=1e-6)


def test_it_starts_with_the_variance_of_the_errors():
    """Half in the function, half in the noise."""
    gp = starting_gp(5, 2.0, 0.5, "float32")
    np.testing.assert_allclose(np.exp(gp.log_variance).sum(), 1.0, rtol=1e-6)
    np.testing.assert_allclose(np.exp(gp.log_noise) + np.exp(gp.log_share) * 0.5, 1.0, rtol=1e-6)


def test_doubts_are_the_weights_of_a_t_distribution(gp, rows):
    """Given the exact errors of every row left out in turn; of 30 rows all others are neighbours."""
    rows = dataclasses.replace(some(rows, slice(30)), noise_factor=np.ones(30))
    doubted = ConditionedGP(gp, rows).with_doubts().rows.noise_factor
    df = 2.5 + np.exp(gp.log_excess_df)
    for number in range(30):
        mean, variance = exact(gp, some(rows, np.arange(30) != number), rows.inputs[[number]])
        squared = (rows.residuals[number] - mean[0]) ** 2
        squared /= variance[0] + noise(gp, rows.deep_variance[number])
        np.testing.assert_allclose(doubted[number], (df + squared) / (df + 1.0), rtol=1e-6)


def weighted(rows, weight):
    return dataclasses.replace(rows, noise_factor=rows.noise_factor / weight)


WEIGHT = np.arange(ROWS) % 4 + 1


def test_a_row_of_weight_w_is_w_equal_rows(gp, rows):
    """The exact GP with every row as often as its weight says."""
    inputs = np.random.default_rng(1).normal(size=(7, COLUMNS))
    conditioned = ConditionedGP(gp, weighted(rows, WEIGHT))
    mean, variance = conditioned.moments(inputs, np.zeros(7), conditioned.nearest(inputs, ROWS))
    wanted = exact(gp, some(rows, np.repeat(np.arange(ROWS), WEIGHT)), inputs)
    np.testing.assert_allclose(mean, wanted[0], atol=1e-6)
    np.testing.assert_allclose(variance - noise(gp, 0.0), wanted[1], atol=1e-6)
    assert np.abs(mean - exact(gp, rows, inputs)[0]).max() > 0.01


def test_doubts_about_weighted_rows_are_those_with_all_copies_left_out(gp, rows):
    rows = dataclasses.replace(some(rows, slice(30)), noise_factor=np.ones(30))
    doubted = ConditionedGP(gp, weighted(rows, WEIGHT[:30])).with_doubts().rows.noise_factor
    df = 2.5 + np.exp(gp.log_excess_df)
    copies = np.repeat(np.arange(30), WEIGHT[:30])
    for number in range(30):
        mean, variance = exact(gp, some(rows, copies[copies != number]), rows.inputs[[number]])
        squared = (rows.residuals[number] - mean[0]) ** 2
        squared /= variance[0] + noise(gp, rows.deep_variance[number])
        wanted = (df + squared) / (df + 1.0) / WEIGHT[number]
        np.testing.assert_allclose(doubted[number], wanted, rtol=1e-6)


def test_the_loss_of_weighted_rows_is_that_of_equal_rows_left_out_together(gp, rows):
    """Of 15 rows all others are neighbours in training."""
    rows = dataclasses.replace(some(rows, slice(15)), noise_factor=np.ones(15))
    weight, errors = WEIGHT[:15], np.linspace(-2.0, 3.0, 15)
    copies, densities = np.repeat(np.arange(15), weight), []
    df = 2.5 + np.exp(gp.log_excess_df)
    for number in copies:
        mean, variance = exact(gp, some(rows, copies[copies != number]), rows.inputs[[number]])
        total = variance[0] + noise(gp, rows.deep_variance[number])
        scale = np.sqrt(total * (df - 2.0) / df)
        densities.append(stats.t.logpdf(errors[number] - mean[0], df, scale=scale))
    point, unravel = flattened(gp)
    conditioned = ConditionedGP(gp, weighted(rows, weight))
    with jax.enable_x64(True):
        facts = errors, rows.deep_variance
        loss = leave_one_out_loss(conditioned, error_loss, facts, np.arange(15), weight, unravel)
        value, _ = loss(np.asarray(point, float))
    np.testing.assert_allclose(value, -np.mean(densities), rtol=1e-6)


def test_twins_of_great_weight_are_factorised_in_single_precision(gp):
    """The noise has a floor: otherwise the covariance of rows that are sure to nine digits has none."""
    inputs = np.zeros((64, COLUMNS))
    columns = np.linspace(-1.0, 1.0, 64), np.full(64, 0.1), np.full(64, 1e-9)
    rows = Rows(*(part.astype(np.float32) for part in (inputs, *columns)))
    small = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), gp)
    found = np.tile(np.arange(64), (3, 1))
    moments = ConditionedGP(small, rows).moments(rows.inputs[:3], rows.deep_variance[:3], found)
    assert np.isfinite(moments).all()


def test_one_wrong_row_does_not_rule_its_neighbours(gp):
    """Of rows along a line one is 100 standard deviations of the noise off."""
    inputs = np.linspace(-1.0, 1.0, 41)[:, None] * np.ones((1, COLUMNS))
    rows = Rows(inputs, np.zeros(41), np.full(41, 0.25), np.ones(41))
    rows.residuals[20] = 30.0
    middle = inputs[[20]] + 0.02
    shifts = []
    for conditioned in (ConditionedGP(gp, rows), ConditionedGP(gp, rows).with_doubts()):
        found = conditioned.nearest(middle, 16)
        shifts.append(abs(conditioned.moments(middle, np.full(1, 0.25), found)[0][0]))
    assert shifts[0] > 1.0
    assert shifts[1] < 0.1 * shifts[0]
