"""Training of the layer, and whether it is kept, with a made-up deep GP whose errors are known."""

import numpy as np
import pytest

from novidgp.local.choice import Paths, fit_local_layer
from novidgp.local.judgement import LocalSettings, effective
from novidgp.local.rows import Rows
from novidgp.local.training import train

PATHS = 20
QUICK = LocalSettings(steps=60, neighbours=16)


def deep_gp(mean, noise, columns, spread=0.0):
    """Paths of a deep GP with this mean `(n, t)` and standard deviation of the noise."""
    steps = np.linspace(-1.0, 1.0, PATHS)[:, None, None]
    steps = spread * steps / steps.std()

    def paths(rows):
        means = (mean[rows] + steps).astype(np.float32)
        noises = np.full((PATHS, mean.shape[1]), noise**2, np.float32)
        return Paths(means, np.zeros_like(means), noises, columns[rows])

    return paths


def fit(mean, noise, y, columns, settings=QUICK, weight=None, **options):
    rng = np.random.default_rng(0)
    paths = deep_gp(mean, noise, columns, **options)
    return fit_local_layer(paths, y, settings, most_freedom=1e9, dtype="float32", rng=rng, weight=weight)


@pytest.fixture(scope="module")
def wave():
    """A wave that the deep GP has missed, and the noise around it."""
    rng = np.random.default_rng(1)
    columns = rng.uniform(-2.0, 2.0, size=(600, 2))
    return columns, np.sin(4.0 * columns[:, :1]), 0.1 * rng.normal(size=(600, 1))


def test_what_the_deep_gp_missed_is_found(wave):
    columns, truth, noise = wave
    layer, notes = fit(np.zeros((600, 1)), 0.7, truth + noise, columns)
    assert "kept" in notes[0]
    grid = np.random.default_rng(2).uniform(-1.8, 1.8, size=(200, 2))
    mean, variance = layer.correct(*no_idea(200, 0.7), grid)
    error = mean.mean(0)[:, 0] - np.sin(4.0 * grid[:, 0])
    assert np.sqrt(np.mean(error**2)) < 0.1  # 0.7 without the layer
    assert np.sqrt(variance.mean()) < 0.25


def no_idea(count, noise):
    return np.zeros((PATHS, count, 1), np.float32), np.full((PATHS, count, 1), noise**2, np.float32)


def test_noise_alone_needs_no_layer(wave):
    columns, truth, noise = wave
    layer, notes = fit(truth, 0.1, truth + noise, columns)
    assert layer is None
    assert "left out" in notes[0]


def test_a_layer_that_is_asked_for_is_kept(wave):
    columns, truth, noise = wave
    layer, _ = fit(truth, 0.1, truth + noise, columns, QUICK._replace(required=True))
    mean, variance = layer.correct(*no_idea(600, 0.1), columns)
    assert np.abs(mean).max() < 0.1
    np.testing.assert_allclose(np.sqrt(np.median(variance)), 0.1, rtol=0.2)


def test_lengthscales_stay_near_those_that_chose_the_neighbours(wave):
    """The wave's lengthscale in its second column has no end. Eight evaluations are one search for
    neighbours, and lead no further than a factor of e; sixteen lead further."""
    columns, truth, noise = wave
    rows = Rows(
        *(part.astype(np.float32) for part in (columns, (truth + noise)[:, 0], np.ones(600), np.ones(600)))
    )
    moved = []
    for steps in (8, 16):
        gp = train(rows, rows.residuals, np.arange(600), steps=steps)
        moved.append(np.abs(np.asarray(gp.log_lengthscale) - 0.5 * np.log(2.0)).max())
    assert moved[0] <= 1.0 + 1e-6 < moved[1]


def test_few_rows_have_no_layer(wave):
    columns, truth, noise = (part[:100] for part in wave)
    layer, notes = fit(np.zeros((100, 1)), 0.7, truth + noise, columns)
    assert layer is None
    assert "100 rows are too few" in notes[0]


def test_residuals_that_the_deep_gp_has_fitted_count_for_more(wave):
    """A spread of paths like that of the noise: errors are twice the residuals. The layer's variances are
    four times as large, or twice where half of them follows the deep GP's, which is half as large here."""
    columns, truth, noise = wave
    required = QUICK._replace(required=True)
    sizes = []
    for spread in (0.0, 0.1):
        layer, _ = fit(truth, 0.1, truth + noise, columns, required, spread=spread)
        sizes.append(np.median(layer.correct(*no_idea(600, 0.1), columns)[1]))
    assert 1.8 < sizes[1] / sizes[0] < 5.0


@pytest.mark.parametrize(("sharp", "most"), [(True, 0.0), (False, 0.5)])
def test_paths_spread_no_further_than_errors_allow(sharp, most):
    """Where most errors are a hundredth of the others, paths that spread would hide it."""
    rng = np.random.default_rng(4)
    columns = rng.uniform(-2.0, 2.0, size=(600, 2))
    size = np.where(rng.random((600, 1)) < 0.8, 1e-3, 0.1) if sharp else 0.1
    y = size * rng.normal(size=(600, 1))
    layer, _ = fit(np.zeros((600, 1)), 0.05, y, columns, QUICK._replace(required=True), spread=0.1)
    assert layer.targets[0].most_spread == most


def test_every_target_has_its_own_rows_and_its_own_layer(wave):
    """Of the second target half is missing, and the deep GP is right about it."""
    columns, truth, noise = wave
    y = np.concatenate([truth + noise, truth + noise], axis=1)
    y[::2, 1] = np.nan
    layer, notes = fit(np.concatenate([np.zeros_like(truth), truth], axis=1), 0.1, y, columns)
    assert [target is None for target in layer.targets] == [False, True]
    assert "of target 0 kept" in notes[0]
    assert "of target 1 left out" in notes[1]
    layer, _ = fit(np.zeros((600, 2)), 0.7, y, columns)
    assert [len(target.conditioned.rows) for target in layer.targets] == [600, 300]


def test_weights_of_one_change_nothing(wave):
    columns, truth, noise = (part[:300] for part in wave)
    layers = [
        fit(np.zeros_like(truth), 0.7, truth + noise, columns, weight=weight)[0]
        for weight in (None, np.ones((300, 1)))
    ]
    grid = columns[:50] + 0.01
    for one, two in zip(*(layer.correct(*no_idea(50, 0.7), grid) for layer in layers), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)  # the scaling sums in another order


@pytest.mark.parametrize("weight", [1e-30, 1e-3])
def test_rows_of_little_weight_are_hardly_there(wave, weight):
    """A second wave of the other sign at the same places, which would cancel the first at equal weight."""
    columns, truth, noise = (part[:300] for part in wave)
    both = np.concatenate([truth + noise, -truth])
    weights = np.concatenate([np.ones((300, 1)), np.full((300, 1), weight)])
    places = np.concatenate([columns, columns])
    layer, notes = fit(np.zeros_like(both), 0.7, both, places, weight=weights)
    assert "kept" in notes[0]
    grid = np.random.default_rng(2).uniform(-1.8, 1.8, size=(100, 2))
    mean, _ = layer.correct(*no_idea(100, 0.7), grid)
    assert np.sqrt(np.mean((mean.mean(0)[:, 0] - np.sin(4.0 * grid[:, 0])) ** 2)) < 0.2
    assert fit(np.zeros_like(both), 0.7, both, places)[0] is None


def test_the_standard_error_of_the_gain_knows_that_few_rows_carry_the_weight():
    assert effective(np.full(50, 0.3)) == pytest.approx(50.0)
    assert effective(np.array([1e9, 1.0, 1.0])) == pytest.approx(1.0)


def groups(order):
    """Forty groups of rows, each with a level of its own, one after the other or mixed."""
    rng = np.random.default_rng(5)
    place, level = rng.uniform(-2.0, 2.0, 40), rng.choice([-1.0, 1.0], 40)
    group = np.repeat(np.arange(40), 50)
    group = rng.permutation(group) if order == "mixed" else group
    columns = place[group, None] + 1e-3 * rng.normal(size=(2000, 1))
    return columns, level[group, None] + 0.1 * rng.normal(size=(2000, 1))


@pytest.mark.parametrize(("order", "kept"), [("mixed", True), ("one after the other", False)])
def test_rows_in_the_order_of_groups_are_judged_by_groups_to_come(order, kept):
    columns, y = groups(order)
    layer, notes = fit(np.zeros((2000, 1)), 1.0, y, columns)
    assert (layer is not None) == kept
    assert ("the order of the rows means something, and with the last tenth" in notes[0]) != kept


def odd_rows(kind):
    rng = np.random.default_rng(3)
    columns = rng.normal(size=(400, 3))
    y = np.sin(3.0 * columns[:, :1]) + 0.1 * rng.normal(size=(400, 1))
    if kind == "twins":
        columns[200:] = columns[:200]
    if kind == "equal rows":
        columns, y = np.ones((10_000, 3)), rng.normal(size=(10_000, 1))
    if kind == "outlier":
        y[7] = 1e4
        columns[7] = 1e3
    if kind == "200 columns":
        columns = np.concatenate([columns, rng.normal(size=(400, 197))], axis=1)
    if kind == "constant column":
        columns[:, 2] = 5.0
    if kind == "five more than neighbours":
        columns, y = columns[:69], y[:69]  # of 64
    return columns, y


@pytest.mark.parametrize(
    "kind", ["twins", "equal rows", "outlier", "200 columns", "constant column", "five more than neighbours"]
)
def test_odd_rows_are_predicted_sensibly(kind):
    """Finite, and within the range of the ordinary targets, near the rows and far away."""
    columns, y = odd_rows(kind)
    layer, _ = fit(np.zeros_like(y), 1.0, y, columns, LocalSettings(required=True, steps=10))
    far = columns[:50] + 1e6
    for rows in (columns[20:60], far):
        mean, variance = layer.correct(*no_idea(len(rows), 1.0), rows)
        assert np.all(np.isfinite(mean))
        assert np.all(np.isfinite(variance))
        assert np.all(variance > 0.0)
        assert np.abs(mean).max() < 5.0
        assert np.median(variance) < 25.0
