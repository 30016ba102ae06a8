"""Whether a classifier's local layer is kept, with a made-up deep GP whose mistakes are known."""

import numpy as np
import pytest

from novidgp.local.class_choice import ClassPaths, fit_class_layer, left_out
from novidgp.local.judgement import LocalSettings

QUICK = LocalSettings(steps=24, neighbours=16)


def fit(probabilities, labels, columns, settings=QUICK, weight=None):
    def paths(rows):
        return ClassPaths(probabilities[rows], probabilities[rows][:, None].repeat(4, 1), columns[rows])

    rng = np.random.default_rng(0)
    return fit_class_layer(paths, labels, settings, dtype="float32", rng=rng, weight=weight)


def stripes(columns):
    return (np.floor(2.0 * columns[:, 0]) % 3).astype(int)


@pytest.fixture(scope="module")
def columns():
    return np.random.default_rng(1).uniform(-2.0, 2.0, size=(600, 2))


def even(count):
    return np.full((count, 3), 1.0 / 3.0)


def test_classes_that_the_deep_gp_missed_are_found(columns):
    layer, (note,) = fit(even(600), stripes(columns), columns)
    assert "kept" in note
    grid = np.random.default_rng(2).uniform(-1.9, 1.9, size=(300, 2))
    q = layer.correct(even(300), grid)
    assert np.mean(q.argmax(1) == stripes(grid)) > 0.85  # a third by chance
    np.testing.assert_allclose(q.sum(1), 1.0, atol=1e-6)


def test_labels_that_the_deep_gp_knows_as_well_as_can_be_need_no_layer(columns):
    rng = np.random.default_rng(3)
    p = 0.1 + 0.7 * np.eye(3)[stripes(columns)]
    labels = np.array([rng.choice(3, p=row) for row in p])
    layer, (note,) = fit(p, labels, columns)
    assert layer is None
    assert "left out" in note
    layer, _ = fit(p, labels, columns, QUICK._replace(required=True))
    assert np.abs(layer.correct(p, columns) - p).mean() < 0.05


def test_few_rows_have_no_layer(columns):
    layer, (note,) = fit(even(100), stripes(columns[:100]), columns[:100])
    assert layer is None
    assert "100 rows are too few" in note


def test_rows_of_little_weight_are_hardly_there(columns):
    """The same places again, of another class, would make nonsense of the stripes at equal weight."""
    both, wrong = columns.repeat(2, axis=0), np.tile([0, 1], 600)
    weight = np.where(wrong, 1e-3, 1.0)[:, None]
    layer, (note,) = fit(even(1200), (stripes(both) + wrong) % 3, both, weight=weight)
    assert "kept" in note
    assert np.mean(layer.correct(even(600), columns + 1e-3).argmax(1) == stripes(columns)) > 0.85


@pytest.mark.parametrize(("order", "kept"), [("mixed", True), ("one after the other", False)])
def test_rows_in_the_order_of_groups_are_judged_by_groups_to_come(order, kept):
    rng = np.random.default_rng(5)
    place, label = rng.uniform(-2.0, 2.0, 40), rng.integers(3, size=40)
    group = np.repeat(np.arange(40), 50)
    group = rng.permutation(group) if order == "mixed" else group
    near = place[group, None] + 1e-3 * rng.normal(size=(2000, 1))
    layer, (note,) = fit(even(2000), label[group], near, QUICK._replace(steps=8))
    assert (layer is not None) == kept
    assert ("the order of the rows means something" in note) != kept


@pytest.mark.parametrize(
    "kind", ["twins", "equal rows", "far row", "200 columns", "constant column", "one class"]
)
def test_odd_rows_are_predicted_sensibly(kind):
    rng = np.random.default_rng(3)
    columns, labels = rng.normal(size=(300, 3)), rng.integers(3, size=300)
    if kind == "twins":
        columns[150:] = columns[:150]
    if kind == "equal rows":
        columns = np.ones((300, 3))
    if kind == "far row":
        columns[7] = 1e6
    if kind == "200 columns":
        columns = np.concatenate([columns, rng.normal(size=(300, 197))], axis=1)
    if kind == "constant column":
        columns[:, 2] = 5.0
    if kind == "one class":
        labels[:] = 1
    p = even(300)
    p[::7] = [0.0, 1.0, 0.0]
    layer, _ = fit(p, labels, columns, LocalSettings(required=True, steps=8))
    for rows in (columns, columns + 1e6):
        q = layer.correct(p, rows)
        np.testing.assert_allclose(q.sum(1), 1.0, atol=1e-5)
        assert q.min() >= 0.0


def test_rows_left_out_have_the_probabilities_of_the_posterior_without_them():
    """Two hypotheses of equal weight give a label .7 and .3. After the row is seen they weigh .7 and .3, and
    after two equal rows .49 and .09; without it the label has .5 again."""
    for weight, counts in ((1.0, (70, 30)), (2.0, (490, 90))):
        label = np.repeat([0.7, 0.3], counts)
        draws = np.stack([label, 1.0 - label], axis=1)[None]
        assert left_out(draws, np.array([0]), np.array([weight]))[0] == pytest.approx([0.5, 0.5])


def test_no_path_rules_a_row_that_is_left_out():
    """One path of 100 gives the label a billionth: it may weigh ten times the others, a tenth of
    all."""
    label = np.full(100, 0.9)
    label[0] = 1e-9
    draws = np.stack([label, 1.0 - label], axis=1)[None]
    found = left_out(draws, np.array([0]), np.ones(1))[0, 0]
    assert found == pytest.approx(0.9 * 99.0 / 109.0)
