"""`order="time"`: rows in order, and columns that mislead at their end."""

import numpy as np
import pandas as pd
import pytest

from novidgp import DGPClassifier, DGPRegressor, load_model
from support.ordered_rows import NAMES, runs

QUICK = {"max_steps": 10, "num_inducing": 10, "local": False, "random_state": 0}


@pytest.fixture(scope="module")
def rows():
    X, y = runs()
    return pd.DataFrame(X, columns=NAMES), y[:, 0]


@pytest.fixture(scope="module")
def model(rows):
    return DGPRegressor(order="time", **QUICK).fit(*rows)


def test_predictions_do_not_see_what_was_left_out(model, rows):
    X = rows[0][:50]
    assert any("Left out" in note and "tag" in note for note in model.fit_notes_)
    np.testing.assert_array_equal(model.predict(X), model.predict(X.assign(tag=99.0)))
    assert np.ptp(model.predict(X)) > 0.0


def test_a_saved_model_leaves_it_out_too(model, rows, tmp_path):
    model.save(tmp_path / "model.novidgp")
    loaded = load_model(tmp_path / "model.novidgp")
    X = rows[0][:50].assign(tag=-5.0)
    assert loaded.order == "time"
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_a_fit_that_goes_on_stays_without_it(rows):
    model = DGPRegressor(order="time", warm_start=True, **QUICK).fit(*rows)
    first = model.model_.layers[0].inducing.copy()
    model.fit(*rows)
    assert not any("Started anew" in note for note in model.fit_notes_)
    assert np.isinf(model.input_scaling_.scale[0])
    assert model.model_.layers[0].inducing.shape == first.shape


def test_shuffled_rows_give_the_model_without_an_order(rows):
    X, y = (part[np.random.default_rng(0).permutation(len(part))] for part in (rows[0].to_numpy(), rows[1]))
    plain, ordered = (DGPRegressor(order=order, **QUICK).fit(X, y) for order in (None, "time"))
    np.testing.assert_array_equal(plain.predict(X[:20]), ordered.predict(X[:20]))


def test_what_has_no_order_is_refused(rows, tmp_path):
    X, y = rows
    with pytest.raises(ValueError, match="order='day'"):
        DGPRegressor(order="day", **QUICK).fit(X, y)
    with pytest.raises(ValueError, match="order='time' is for regression"):
        DGPClassifier(order="time", **QUICK).fit(X, y > 0)
    with pytest.raises(ValueError, match="order='time' knows no sample_weight"):
        DGPRegressor(order="time", **QUICK).fit(X, y, np.full(len(y), 2.0))
    with pytest.raises(ValueError, match="order='time' knows no images"):
        DGPRegressor(order="time", **QUICK).fit(np.zeros((20, 4, 4)), np.arange(20.0))
    path = tmp_path / "rows.parquet"
    X.assign(y=y).to_parquet(path)
    with pytest.raises(ValueError, match="order='time' needs rows in memory"):
        DGPRegressor(order="time", **QUICK).fit(str(path), target="y")
