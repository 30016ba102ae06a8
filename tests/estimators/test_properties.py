"""Properties that hold for any finite data: nothing becomes NaN, and equal seeds give equal models.

Few examples, and shapes that share compiled code (fewer than 64 rows, one width): compilation is what costs.
"""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from novidgp import DGPClassifier, DGPRegressor

SETTINGS = settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
PARAMETERS = {
    "num_inducing": 5,
    "max_steps": 5,
    "num_predict_samples": 4,
    "random_state": 0,
}


@st.composite
def tables(draw):
    """Inputs of wild scales and offsets, float32 or integers too, with repeated rows and constant columns."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    rows, width = draw(st.integers(6, 60)), 2
    scales = 10.0 ** np.array(draw(st.lists(st.integers(-30, 30), min_size=width, max_size=width)))
    X = (rng.normal(size=(rows, width)) + draw(st.integers(-100, 100))) * scales
    if draw(st.booleans()):
        X[rows // 2 :] = X[0]
    if draw(st.booleans()):
        X[:, -1] = 3.0
    return X.astype(draw(st.sampled_from([np.float32, np.float64]))), rng


@SETTINGS
@given(tables(), st.integers(-30, 30), st.sampled_from([1, 2]))
def test_finite_data_never_give_nan(table, magnitude, layers):
    X, rng = table
    y = (rng.standard_t(2, size=len(X)) + 5.0) * 10.0**magnitude
    model = DGPRegressor(**PARAMETERS, num_layers=layers).fit(X, y)
    new = np.concatenate([X, 1e6 * X, -X])
    mean, std = model.predict(new, return_std=True)
    assert np.all(np.isfinite(mean))
    assert np.all(np.isfinite(std) & (std > 0))
    assert np.all(np.isfinite(model.log_density(X, y)))
    assert np.all(np.isfinite(model.predict_quantiles(X, [0.01, 0.99])))
    assert np.all(np.isfinite(model.history_["loss"]))


@SETTINGS
@given(tables())
def test_probabilities_are_probabilities(table):
    X, rng = table
    labels = rng.permutation(np.arange(len(X)) % 2)
    proba = (
        DGPClassifier(**PARAMETERS, num_layers=1).fit(X, labels).predict_proba(np.concatenate([X, 1e9 * X]))
    )
    assert np.all((proba >= 0) & (proba <= 1))
    np.testing.assert_allclose(proba.sum(1), 1.0, atol=1e-9)


@settings(SETTINGS, max_examples=4)
@given(tables(), st.integers(0, 1000))
def test_same_seed_same_result(table, seed):
    X, rng = table
    y = rng.normal(size=len(X))
    fits = [DGPRegressor(**PARAMETERS | {"random_state": seed}, num_layers=2).fit(X, y) for _ in range(2)]
    np.testing.assert_array_equal(fits[0].predict(X), fits[1].predict(X))
    np.testing.assert_array_equal(fits[0].history_["loss"], fits[1].history_["loss"])
