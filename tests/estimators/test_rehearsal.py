"""What comes after training is compiled beside it, changes nothing, and can fail without harm."""

import threading

import jax
import numpy as np
import pytest

from novidgp import DGPClassifier, DGPRegressor
from novidgp.estimators import rehearsal as module

rng = np.random.default_rng(0)
X = rng.standard_normal((230, 2))
y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(230)
COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def rehearsed(monkeypatch):
    """Fits rehearse, as they do outside of the tests, and nothing counts as rehearsed before."""
    from novidgp.estimators import arrays

    monkeypatch.setattr(arrays, "rehearsal", module.rehearsal)
    monkeypatch.setattr(module, "_REHEARSED", set())


def regressor(**settings):
    small = {
        "inference": "dsvi",
        "num_layers": 2,
        "num_inducing": 5,
        "max_steps": 5,
        "num_predict_samples": 4,
    }
    return DGPRegressor(**(small | {"local": True, "random_state": 0} | settings))


def classifier(**settings):
    return DGPClassifier(**regressor(**settings).get_params())


@pytest.mark.parametrize("classes", [None, 2, 3])
def test_what_comes_after_training_is_compiled_aside(rehearsed, monkeypatch, classes):
    """Once the model is trained nothing is compiled: neither for its local layer nor for predictions."""
    kind = DGPRegressor if classes is None else DGPClassifier
    events, real = [], kind._fit_local

    def listen(event, duration, **_):
        if event == COMPILED:
            events.append("compiled")

    def fit_local(self, *arguments):
        events.append("trained")
        real(self, *arguments)

    monkeypatch.setattr(kind, "_fit_local", fit_local)
    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        if classes is None:
            regressor().fit(X, y).predict(X, return_std=True)
        else:
            classifier().fit(X, np.arange(len(X)) % classes).predict_proba(X)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert events.index("trained") > 5
    assert events[-1] == "trained"


def test_a_rehearsal_changes_nothing_and_is_not_repeated(rehearsed, monkeypatch):
    with_it = regressor().fit(X, y)
    assert len(module._REHEARSED) == 2, "a prediction and a local layer"
    regressor(random_state=1).fit(X, y)
    assert len(module._REHEARSED) == 2
    monkeypatch.setattr("novidgp.estimators.arrays.rehearsal", lambda *_: ())
    without = regressor().fit(X, y)
    assert np.array_equal(with_it.predict(X), without.predict(X))
    assert with_it.fit_notes_ == without.fit_notes_


def test_a_rehearsal_that_fails_costs_nothing(rehearsed, monkeypatch):
    """The double is another object than the model that is fitted."""
    real, seen = DGPRegressor._predict, []

    def predict(self, rows):
        if threading.current_thread() is not threading.main_thread():
            seen.append(self)
            raise RuntimeError("the rehearsal fails")
        return real(self, rows)

    monkeypatch.setattr(DGPRegressor, "_predict", predict)
    model = regressor().fit(X, y)
    assert len(seen) == 1
    assert seen[0] is not model
    assert np.isfinite(model.predict(X)).all()
