"""Class probabilities with a local layer: against dense algebra, and where neighbours say nothing or all."""

import jax
import numpy as np
import pytest

from novidgp.local.class_layer import corrected, label_loss, label_variance
from novidgp.local.gp import LocalGP
from novidgp.local.rows import ConditionedGP, Rows
from novidgp.local.training import leave_one_out_loss
from novidgp.numerics.trees import flattened

ROWS, CLASSES = 40, 3


@pytest.fixture
def gp():
    parts = np.log([0.7, 1.3]), np.log([0.02, 0.03]), 0.2, np.log(0.05), np.log(0.1), 0.0
    return LocalGP(*map(np.asarray, parts))


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(CLASSES), ROWS)
    residuals = np.eye(CLASSES)[rng.integers(CLASSES, size=ROWS)] - p
    return Rows(rng.normal(size=(ROWS, 2)), residuals, label_variance(p), rng.uniform(0.5, 2.0, ROWS))


def kernel(gp, x, z):
    d = np.sqrt(np.sum(((x[:, None] - z[None]) / np.exp(gp.log_lengthscale)) ** 2, axis=-1))
    rough, smooth = np.exp(gp.log_variance)
    s = np.sqrt(3.0) * d / np.exp(gp.log_stretch)
    return rough * np.exp(-d) + smooth * (1.0 + s) * np.exp(-s)


def exact(gp, rows, x, p, used=slice(None)):
    """Every class by itself: the GP's mean given all rows, added to p, cut off and scaled."""
    variance = np.exp(gp.log_variance).sum()
    noise = 1e-4 * variance + np.exp(gp.log_noise) + np.exp(gp.log_share) * rows.deep_variance
    z, noise = rows.inputs[used], (noise * rows.noise_factor)[used]
    inverse = np.linalg.inv(kernel(gp, z, z) + np.diag(noise))
    g = np.stack([kernel(gp, x, z) @ inverse @ r for r in rows.residuals[used].T], axis=1)
    q = np.maximum(p + g, np.minimum(p, 0.003))
    return q / q.sum(1, keepdims=True)


def test_with_all_rows_as_neighbours_it_is_the_exact_gp_of_every_class(gp, rows):
    rng = np.random.default_rng(1)
    x, p = rng.normal(size=(20, 2)), rng.dirichlet(np.ones(CLASSES), 20)
    conditioned = ConditionedGP(gp, rows)
    q = corrected(conditioned, x, p, conditioned.nearest(x, ROWS))
    np.testing.assert_allclose(q, exact(gp, rows, x, p), atol=1e-6)
    assert np.abs(q - p).max() > 0.1


def test_the_loss_is_that_of_labels_left_out_and_has_its_gradient(gp, rows):
    """Of 15 rows all others are neighbours in training; derivatives against differences of the loss."""
    fewer = Rows(rows.inputs[:15], rows.residuals[:15], rows.deep_variance[:15], rows.noise_factor[:15])
    rng = np.random.default_rng(2)
    p, labels = rng.dirichlet(np.ones(CLASSES), 15), rng.integers(CLASSES, size=15)
    weight = rng.uniform(0.5, 2.0, 15)
    wanted = 0.0
    for number in range(15):
        others = np.arange(15) != number
        q = exact(gp, fewer, fewer.inputs[[number]], p[[number]], others)[0]
        wanted -= weight[number] / weight.sum() * np.log(q[labels[number]])
    point, unravel = flattened(gp)
    facts = np.eye(CLASSES)[labels], p
    with jax.enable_x64(True):
        loss = leave_one_out_loss(ConditionedGP(gp, fewer), label_loss, facts, np.arange(15), weight, unravel)
        point = np.asarray(point, float)
        value, gradient = loss(point)
        steps = 1e-5 * np.eye(len(point))
        slopes = [(loss(point + step)[0] - loss(point - step)[0]) / 2e-5 for step in steps]
    assert value == pytest.approx(wanted, rel=1e-6)
    np.testing.assert_allclose(gradient, slopes, atol=1e-6)
    assert np.abs(gradient).max() > 0.01


def test_neighbours_that_say_nothing_change_nothing(gp, rows):
    silent = Rows(rows.inputs, np.zeros_like(rows.residuals), rows.deep_variance, rows.noise_factor)
    p = np.array([[0.999, 0.001 - 1e-7, 1e-7]])
    q = corrected(ConditionedGP(gp, silent), np.zeros((1, 2)), p, np.arange(ROWS)[None])
    np.testing.assert_allclose(q, p, rtol=1e-6)


def test_neighbours_make_no_class_impossible(gp, rows):
    """All are of class 0. What the deep GP gave to class 1 falls to .003, class 2 keeps its little."""
    residuals = np.tile([1.0, -1.0, 0.0], (ROWS, 1))
    sure = Rows(np.zeros((ROWS, 2)), residuals, rows.deep_variance, np.ones(ROWS))
    p = np.array([[0.1, 0.899, 0.001]])
    q = corrected(ConditionedGP(gp, sure), np.zeros((1, 2)), p, np.arange(ROWS)[None])[0]
    assert q[1] == pytest.approx(3.0 * q[2])
    assert q[0] > 0.99
