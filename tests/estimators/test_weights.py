"""Weights of rows: a row of weight w is w equal rows, and one of weight 0 is not there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

from novidgp import DGPClassifier, DGPRegressor
from novidgp.estimators.checks import check_weights
from novidgp.inference import METHODS, make_method
from novidgp.inference.dsvi import evidence_lower_bound
from novidgp.model.build import inducing_points
from novidgp.model.dgp import Batch
from novidgp.numerics.random import Streams
from novidgp.numerics.scaling import standardiser
from novidgp.posteriors.fitted import Fitted
from novidgp.posteriors.gaussian import GaussianPosterior, gaussian_start
from novidgp.training.validation import scorer
from support.small import small_batch, small_model
from support.training import fit

RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(-2, 2, (24, 1)), axis=0)
Y = np.sin(3 * X[:, 0]) + 0.3 * RNG.standard_normal(24)
WEIGHTS = RNG.integers(0, 4, 24)
REPEATED = np.repeat(np.arange(24), WEIGHTS)
SMALL = {"num_layers": 1, "num_inducing": 5, "max_steps": 20, "random_state": 0, "local": False}


@pytest.mark.parametrize("inference", ["dsvi", "novi"])
def test_weighted_rows_are_repeated_rows(inference):
    """As many inducing points as distinct rows: both fits start from the same ones. One layer has no path
    noise, so that the bounds are equal but for the order of sums in float32. Only the first ones are: Adam
    makes steps of gradients that are zero but for rounding."""
    kept = WEIGHTS > 0
    settings = SMALL | {"inference": inference, "num_inducing": int(kept.sum()), "max_steps": 1}
    weighted = DGPRegressor(**settings).fit(X, Y, WEIGHTS)
    repeated = DGPRegressor(**settings).fit(X[REPEATED], Y[REPEATED])
    plain = DGPRegressor(**settings).fit(X[kept], Y[kept])
    bounds = [model.history_["loss"] * model.num_data_ for model in (weighted, repeated, plain)]
    np.testing.assert_allclose(bounds[0], bounds[1], rtol=1e-4)
    assert np.abs(bounds[0] - bounds[2]).min() > 1.0


def test_the_gradients_of_weighted_rows_are_those_of_repeated_rows(x64):
    data, model = small_batch("float64"), small_model("float64", num_layers=1)
    weight = np.arange(len(data.x)) % 3
    rows = np.repeat(np.arange(len(data.x)), weight)
    posterior = GaussianPosterior(*gaussian_start(model.inducing_start(), 0.1, 0.3))

    def gradient(batch):
        def bound(fitted):
            return evidence_lower_bound(fitted, batch, len(batch.x), 1, key=jax.random.key(0))[0]

        return jax.grad(bound)(Fitted(model, posterior))

    weighted = gradient(Batch(data.x, data.y, jnp.asarray(weight, float)[:, None]))
    repeated = gradient(Batch(data.x[rows], data.y[rows]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), weighted, repeated)


def test_rows_of_weight_zero_are_absent():
    kept = WEIGHTS > 0
    outliers = np.where(kept, Y, 1e9)
    settings = SMALL | {"inference": "dsvi"}
    weighted = DGPRegressor(**settings).fit(X, outliers, kept.astype(float))
    absent = DGPRegressor(**settings).fit(X[kept], Y[kept], 1.0)
    np.testing.assert_array_equal(weighted.predict(X), absent.predict(X))
    labels = np.where(kept, np.where(Y > 0, "a", "b"), "c")
    assert list(DGPClassifier(**settings).fit(X, labels, kept).classes_) == ["a", "b"]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_heeds_weights(name):
    """Weights of one change nothing but rounding; others change the loss."""
    data, model = small_batch(), small_model()
    losses = []
    for weight in (None, np.ones(len(data.x)), np.linspace(0.1, 3.0, len(data.x))):
        column = None if weight is None else jnp.asarray(weight[:, None], data.x.dtype)
        batch = Batch(data.x, data.y, column)
        result = fit(make_method(name), model=model, data=batch, steps=2, chunk=2)
        losses.append(result.history["loss"][0])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert abs(losses[2] - losses[0]) > 1e-2 * abs(losses[0])


@pytest.mark.parametrize("settings", [{"inference": "ml"}, {}], ids=["ml", "novi"])
def test_weights_are_repeated_rows_as_scikit_learn_asks(settings):
    """Predictions after training, to 1e-7. In float32 Adam takes rounding to 2e-6. The softmax of several
    classes is averaged over draws of each row's own, so that equal rows there are no row of weight 2."""
    options = SMALL | {"max_steps": 30, "num_predict_samples": 2, "dtype": "float64"} | settings
    check_sample_weight_equivalence_on_dense_data("DGPRegressor", DGPRegressor(**options))


def test_a_binary_classifier_of_weights_is_one_of_repeated_rows():
    options = SMALL | {"inference": "ml", "num_predict_samples": 2, "dtype": "float64"}
    weighted = DGPClassifier(**options).fit(X, Y > 0, WEIGHTS)
    repeated = DGPClassifier(**options).fit(X[REPEATED], Y[REPEATED] > 0)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-7)


def test_inducing_points_are_where_the_weight_is():
    """Two in the left half, which has 99 of 100 parts of the weight; without weights one in either half."""
    x = np.linspace(-1.0, 1.0, 40)[:, None]
    weight = np.where(x[:, 0] < 0.0, 99.0, 1.0)
    points = [inducing_points(x, 2, Streams(jax.random.key(0)), w)[:, 0] for w in (weight, None)]
    assert [np.sum(p < -0.1) for p in points] == [2, 1]
    fits = [DGPRegressor(**SMALL, inference="dsvi").fit(X, Y, w) for w in (np.exp(4.0 * X[:, 0]), None)]
    scales = [model.input_scaling_ for model in fits]
    starts = [
        shift + scale * np.mean(model.model_.layers[0].inducing)
        for (shift, scale), model in zip(scales, fits, strict=True)
    ]
    assert starts[0] > starts[1] + 0.1


def test_the_scales_are_those_of_repeated_rows():
    values = np.column_stack([Y, np.where(np.arange(24) % 5 == 0, np.nan, 1e6 * X[:, 0])])
    weighted = standardiser(values, WEIGHTS[:, None].astype(float))
    for one, two in zip(weighted, standardiser(values[REPEATED]), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-10)


def test_the_validation_score_is_a_weighted_mean():
    """One row of weight 3 and none of the others is that row alone; the rest of the block is its noise."""
    fitted, data = fit(steps=2, chunk=2).fitted, small_batch()
    ones = jnp.ones((len(data.x), 1), data.x.dtype)

    def score(weight):
        return scorer(Batch(data.x, data.y, weight), jax.random.key(0))(fitted)

    each = [score(jnp.zeros_like(ones).at[row].set(3.0)) for row in range(len(data.x))]
    assert score(None) == score(ones) == pytest.approx(np.mean(each), rel=1e-5)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), r"shape \(3,\)"),
        (np.ones((24, 2)), "shape"),
        (-np.ones(24), "negative"),
        (np.full(24, np.nan), "NaN"),
        (np.eye(24)[0], "at least two rows must count"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        check_weights(weights, 24)


def test_scores_take_weights():
    model = DGPRegressor(**SMALL, inference="dsvi").fit(X, Y)
    assert model.score(X, Y, WEIGHTS) == pytest.approx(model.score(X[REPEATED], Y[REPEATED]))
