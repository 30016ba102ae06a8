"""`warm_start=True`: fits that go on from the last one, and what they refuse."""

import numpy as np
import pytest

from novidgp import DGPClassifier, DGPRegressor, load_model

SMALL = {
    "inference": "dsvi",
    "num_inducing": 5,
    "num_predict_samples": 8,
    "random_state": 0,
    "local": False,
    "warm_start": True,
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(80, 2))
    return X, 50.0 + 10.0 * np.sin(2.0 * X[:, 0]) + 0.5 * rng.normal(size=80)


def first_fit(rows, **settings):
    return DGPRegressor(**SMALL | settings, max_steps=200).fit(*(part[:60] for part in rows))


def test_a_few_steps_with_more_rows_end_where_many_do(rows):
    """The loss of the first step is already near the end of the last fit; a cold fit's is far away."""
    model = first_fit(rows)
    scaling, loss = model.input_scaling_, model.history_["loss"]
    model.set_params(max_steps=None).fit(*rows)
    assert model.n_iter_ == 50
    assert model.num_data_ == 80
    assert model.input_scaling_ is scaling
    assert loss[0] - model.history_["loss"][0] > 0.8 * (loss[0] - loss[-1])
    cold = DGPRegressor(**SMALL, max_steps=50).fit(*rows)
    assert model.score(*rows) > cold.score(*rows) + 0.1


def test_no_step_leaves_the_model_where_it_was(rows):
    """One step at a rate of 1e-6: predictions stay. With a posterior that started anew they would not."""
    model = first_fit(rows, inference_options={"learning_rate": 0.02})
    before = model.predict(rows[0])
    model.set_params(max_steps=1, inference_options={"learning_rate": 1e-6}).fit(*rows)
    np.testing.assert_allclose(model.predict(rows[0]), before, rtol=1e-4)


def test_novi_several_starts_and_a_loaded_model_go_on(rows, tmp_path):
    settings = {"inference": "novi", "starts": 2}
    model = first_fit(rows, **settings, inference_options={"network": False})
    model.save(tmp_path / "model.novidgp")
    loaded = load_model(tmp_path / "model.novidgp")
    assert loaded.warm_start
    for each in (model, loaded):
        each.set_params(max_steps=5).fit(*rows)
    np.testing.assert_array_equal(loaded.predict(rows[0]), model.predict(rows[0]))
    assert model.score(*rows) > 0.9


def test_what_is_another_model_is_refused_and_the_last_fit_stays(rows):
    X, y = rows
    model = first_fit(rows)
    before = model.predict(X)
    with pytest.raises(ValueError, match="X has 3 features, but DGPRegressor is expecting 2"):
        model.fit(np.column_stack([X, y]), y)
    with pytest.raises(ValueError, match="num_targets=2 instead of 1"):
        model.fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match=r"another one: kernel='rbf' instead of 'rq'\. Fit with warm_start"):
        model.set_params(kernel="rbf").fit(X, y)
    with pytest.raises(ValueError, match="num_inducing=4 instead of 5"):
        model.set_params(kernel="rq", num_inducing=4).fit(X, y)
    with pytest.raises(ValueError, match="inference='ml' instead of 'dsvi'"):
        model.set_params(num_inducing=5, inference="ml").fit(X, y)
    model.set_params(inference="dsvi")
    np.testing.assert_array_equal(model.predict(X), before)


def test_rows_that_allow_another_model_start_anew_and_say_so(rows):
    X, y = rows
    with pytest.warns(UserWarning, match="exceeds the 6 training rows"):
        model = DGPRegressor(**SMALL | {"num_inducing": 20}, max_steps=2).fit(X[:6], y[:6])
    model.fit(X[:12], y[:12])  # 12 are possible: six are half of them
    assert model.config_.num_inducing == 6
    model.fit(X[:40], y[:40])
    assert model.config_.num_inducing == 20
    assert "Started anew: these rows allow 20 inducing points, and the last fit had 6." in model.fit_notes_
    constant = X.copy()
    constant[:, 1] = 3.0
    model = DGPRegressor(**SMALL, max_steps=2).fit(constant, y)
    model.fit(X, y)
    assert "Started anew: column 1 was constant in the last fit and is not any more." in model.fit_notes_


def test_classes_stay(rows):
    X, labels = rows[0], np.where(rows[0][:, 0] > 0, "right", "left")
    model = DGPClassifier(**SMALL, max_steps=100).fit(X[:60], labels[:60])
    model.fit(X[X[:, 0] > 0], labels[X[:, 0] > 0])  # one class is enough to go on
    assert model.classes_.tolist() == ["left", "right"]
    with pytest.raises(ValueError, match="the label 'middle', which the last fit has not seen"):
        model.fit(X, np.where(np.abs(X[:, 0]) < 0.1, "middle", labels))
