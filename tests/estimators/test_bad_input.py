"""Bad input is refused with a message that names the argument and the cure, before anything is compiled."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from novidgp import DGPClassifier, DGPRegressor
from novidgp.estimators import arrays as estimator_module
from novidgp.estimators.checks import check_rows, seed_of

X = np.random.default_rng(0).normal(size=(20, 3))
Y = X[:, 0] + 0.1 * X[:, 1]
LABELS = (Y > 0).astype(int)


@pytest.fixture(autouse=True)
def nothing_is_trained(monkeypatch):
    """Whatever reaches the trainer has passed the checks."""

    class ReachedError(Exception):
        pass

    def fit(model, *arguments, **options):
        raise ReachedError(model.layers[0].num_inducing)

    monkeypatch.setattr(estimator_module, "fit", fit)
    return ReachedError


def _with(value, row=3, column=1):
    changed = X.copy()
    changed[row, column] = value
    return changed


def _novi(**options):
    return {"inference": "novi", "inference_options": options}


def _dsvi(**options):
    return {"inference": "dsvi", "inference_options": options}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"inference": "dsiv"}, r"inference='dsiv' is unknown. Did you mean 'dsvi'\?"),
        ({"kernel": "rqq"}, r"kernel='rqq' is unknown. Did you mean 'rq'\?"),
        ({"kernel": "rq+mattern12"}, r"Did you mean 'matern12'\?.*in kernel='rq\+mattern12'"),
        ({"kernel": "rq*"}, r"kernel='' is unknown"),
        ({"likelihood": "gausian"}, r"Did you mean 'gaussian'\?"),
        ({"likelihood": "bernoulli"}, r"likelihood='bernoulli' is unknown"),
        ({"mean": "liner"}, r"Did you mean 'linear'\?"),
        ({"kernel_sharing": "share"}, r"Did you mean 'shared'\?"),
        ({"dtype": "float23"}, r"Did you mean 'float32'\?"),
        (_novi(activation="tahn"), r"Did you mean 'tanh'\?"),
        (_novi(num_samples=0), "too small"),
        (_novi(last_layer="closed"), r"last_layer='closed' is unknown. Did you mean 'closed-form'\?"),
        (_novi(network=False, width=8), "inference_options of 'novi': width=8 has no effect"),
        ({"preset": "papr"}, r"preset='papr' is unknown. Did you mean 'paper'\?"),
        ({"inference": "dsvi", "preset": "paper"}, "preset='paper' is unknown"),
        ({"starts": 0}, "starts=0 is too small"),
        ({"latent_dim": "none"}, "latent_dim='none' is unknown"),
        ({"features": "mpl"}, r"features='mpl' is unknown. Did you mean 'mlp'\?"),
        ({"features": {"widht": 3}}, r"features key='widht' is unknown. Did you mean 'width'\?"),
        (_dsvi(learning_rat=0.1), r"Did you mean 'learning_rate'\?.*inference='dsvi'"),
        ({"inference_options": {"step_scale": 0.1}}, r"inference_options key='step_scale' is unknown"),
        ({"num_layers": 0}, "num_layers=0 is too small"),
        ({"num_inducing": -5}, "num_inducing=-5 is too small"),
        ({"max_steps": 0}, "max_steps=0 is too small"),
        ({"batch_size": 0}, "batch_size=0 is too small"),
        ({"num_predict_samples": 0}, "num_predict_samples=0 is too small"),
        ({"hidden_dim": 0}, "hidden_dim=0 is too small"),
        ({"patience": 0}, "patience=0 is too small"),
        ({"validation_fraction": 1.5}, "validation_fraction=1.5 must be None or a number between 0 and 1"),
        ({"validation_fraction": 0.99, "num_inducing": 2}, "leaves 0 of 20 rows"),
    ],
)
def test_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        DGPRegressor(**parameters).fit(X, Y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"num_layers": 2.0}, "num_layers must be an integer, got 2.0 of type float"),
        ({"max_steps": True}, "max_steps must be an integer"),
        ({"kernel": 3}, "kernel must be a name"),
        ({"whiten": "yes"}, "whiten must be True or False"),
        ({"inference_options": "fast"}, "inference_options must be a dict"),
        ({"diagnose": 1}, "diagnose must be True or False"),
        ({"features": 3}, "features must be None, 'mlp', 'cnn', a dict"),
        ({"inference_options": {"num_paths": {}}}, r"num_paths=\{\} must be a plain value"),
        ({"inference_options": {"num_paths": "many"}}, "num_paths must be an integer, got 'many'"),
        (_dsvi(learning_rate="fast"), "learning_rate must be a number, got 'fast'"),
        (_novi(network="False"), "network must be True or False, got 'False'"),
        ({"checkpoint": 3}, "checkpoint must be the path of a file, got 3"),
    ],
)
def test_types_of_parameters(parameters, message):
    with pytest.raises(TypeError, match=message):
        DGPRegressor(**parameters).fit(X, Y)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (_with(np.nan), "Input X contains NaN"),
        (_with(np.inf), "Input X contains infinity"),
        (X[:, 0], "Expected 2D array, got 1D array"),
        (X[None], "two images or more"),
        (X[:, :0], r"0 feature\(s\)"),
        (np.full((20, 1), "red"), "X holds text.*OneHotEncoder"),
        (pd.DataFrame({"a": Y, "colour": ["red"] * 20}), "X holds text.*red.*OneHotEncoder"),
        (pd.DataFrame(X, columns=["a", "b", "a"]), "X has two columns named 'a'; rename or remove one"),
        (np.array([*map(list, X[:-1]), [1.0]], object), r"X holds sequences of unequal.*numpy.stack\(X\)"),
        (X[:7], "inconsistent numbers of samples"),
    ],
)
def test_inputs(inputs, message):
    with pytest.raises(ValueError, match=message):
        DGPRegressor().fit(inputs, Y)
    if "inconsistent" not in message:
        with pytest.raises(ValueError, match=message):
            DGPClassifier().fit(inputs, LABELS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chunk": "ten"}, "chunk must be an integer, got 'ten'"),
        ({"callbacks": print}, "callbacks must be a list of functions, got <built-in"),
        ({"callbacks": [3]}, r"callbacks must be a list of functions, got \[3\]"),
    ],
)
def test_options_of_a_fit(options, message):
    with pytest.raises(TypeError, match=message):
        DGPRegressor(num_inducing=2).fit(X, Y, **options)


def test_a_path_is_no_table():
    with pytest.raises(TypeError, match=r"X='rows.csv' is a path. Read the file first"):
        check_rows("rows.csv")


def test_columns_whose_names_are_numbers_may_share_one():
    check_rows(pd.DataFrame(X, columns=[0, 1, 0]))


DATES = pd.Series(pd.date_range("2026-01-01", periods=20))


@pytest.mark.parametrize(
    "inputs",
    [
        pd.DataFrame({"a": Y, "day": DATES}),
        pd.DataFrame({"day": DATES.dt.tz_localize("UTC")}),
        DATES.to_numpy()[:, None],
        pd.DataFrame({"day": DATES - DATES[0]}),
    ],
)
def test_dates_and_durations(inputs):
    """NumPy would turn them into nanoseconds in silence, or fail with a word about promotion."""
    with pytest.raises(TypeError, match=r"X.* holds (dates|durations)\. Turn them into numbers"):
        DGPRegressor().fit(inputs, Y)
    with pytest.raises(TypeError, match="y holds dates"):
        DGPRegressor().fit(X, DATES)


def test_objects_that_are_no_numbers():
    with pytest.raises(TypeError, match=r"X holds text or other objects.*Period"):
        DGPRegressor().fit(pd.DataFrame({"a": DATES.dt.to_period("D")}), Y)


@pytest.mark.parametrize(
    ("label", "message"),
    [(None, "None or NaN.* in 1 of 20 rows"), (np.nan, "in 1 of 20 rows"), (7, r"'a' and 7.*astype\(str\)")],
)
def test_labels_without_an_order(label, message):
    labels = np.array(["a", "b"] * 10, object)
    labels[3] = label
    with pytest.raises(ValueError, match=message):
        DGPClassifier().fit(X, labels)


@pytest.mark.parametrize("seed", ["a", -1, 2**40, [1.5]])
def test_seeds(seed):
    with pytest.raises(ValueError, match="is no seed"):
        seed_of(seed)


def test_a_generator_is_a_seed():
    first, second = (np.random.default_rng(3) for _ in range(2))
    assert seed_of(first) == seed_of(second)
    assert seed_of(first) == seed_of(second) != seed_of(np.random.default_rng(3))


def test_sparse_inputs():
    with pytest.raises(TypeError, match=r"toarray\(\)"):
        DGPRegressor().fit(csr_matrix(X), Y)


def test_one_row():
    with pytest.raises(ValueError, match=r"1 sample\(s\).*minimum of 2"):
        DGPRegressor().fit(X[:1], Y[:1])


def _targets(value):
    changed = Y.copy()
    changed[2] = value
    return changed


@pytest.mark.parametrize(
    ("parameters", "targets", "message"),
    [
        ({}, np.ones(20), "y is constant .* nothing to learn"),
        ({}, 1e6 + 1e-10 * Y, "y is constant .* but for rounding.* large offset"),
        ({}, np.stack([Y, np.ones(20)], 1), r"y\[:, 1\] is constant"),
        ({}, np.stack([Y, np.full(20, np.nan)], 1), r"y\[:, 1\] holds only NaN"),
        ({}, _targets(np.nan), "Input y contains NaN in 1 of 20 rows"),
        ({}, _targets(np.inf), "Input y contains infinity"),
        ({}, np.stack([Y, _targets(-np.inf)], 1), "Input y contains infinity"),
        ({}, Y.reshape(20, 1, 1), r"y has shape \(20, 1, 1\)|dim 3"),
        ({}, np.full(20, "a"), "y holds text.*DGPClassifier"),
        ({"likelihood": "poisson"}, Y, "needs counts: non-negative integers"),
        ({"likelihood": "poisson"}, np.arange(20) - 3, "holds -3, but.*non-negative"),
    ],
)
def test_regression_targets(parameters, targets, message):
    with pytest.raises(ValueError, match=message):
        DGPRegressor(**parameters).fit(X, targets)


@pytest.mark.parametrize(
    ("parameters", "labels", "message"),
    [
        ({}, np.ones(20, int), "y holds one class only"),
        ({}, Y, "Unknown label type"),
        ({"likelihood": "gaussian"}, LABELS, "likelihood='gaussian' is unknown"),
        ({"likelihood": "bernoulli"}, np.arange(20) % 3, "for two classes and y holds 3"),
    ],
)
def test_labels(parameters, labels, message):
    with pytest.raises(ValueError, match=message):
        DGPClassifier(**parameters).fit(X, labels)


def test_more_inducing_points_than_rows_are_reduced_with_a_warning(nothing_is_trained):
    with (
        pytest.warns(UserWarning, match="num_inducing=100 exceeds the 20 training rows; using 20"),
        pytest.raises(nothing_is_trained, match="20"),
    ):
        DGPRegressor().fit(X, Y)


@pytest.mark.parametrize(
    ("q", "message"),
    [
        (0.0, "q=0.0 must lie strictly between 0 and 1"),
        (1.0, "q=1.0 must lie strictly between 0 and 1"),
        ([0.5, 1.2], r"q=\[0.5, 1.2\] must lie strictly between 0 and 1"),
        (float("nan"), "q=nan must lie strictly between 0 and 1"),
        ([[0.5]], r"q must be a number or a flat sequence of numbers, got \[\[0.5\]\]"),
        ([], r"q must be a number or a flat sequence of numbers, got \[\]"),
    ],
)
def test_quantile_levels(q, message):
    with pytest.raises(ValueError, match=message):
        DGPRegressor().predict_quantiles(X, q)


@pytest.mark.parametrize("estimator", [DGPRegressor, DGPClassifier])
def test_parameters_are_given_by_name(estimator):
    with pytest.raises(TypeError, match="positional argument"):
        estimator("dsvi")
