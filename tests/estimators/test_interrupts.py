"""Ctrl-C while a model is saved, loaded or asked: raised when that is done, and never lost."""

import gc
import signal
from pathlib import Path

import numpy as np
import pytest

import novidgp
from novidgp import storage
from novidgp.prediction import predictor

FILE = Path(__file__).parent / "format1" / "sghmc.novidgp"


@pytest.fixture(autouse=True)
def _listening():
    """Python's handler, also where a shell started the tests deaf to Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("place", "name", "action"),
    [
        (storage, "save", lambda model, path: model.save(path)),
        (storage, "load", lambda model, path: novidgp.load_model(FILE)),
        (predictor, "over_blocks", lambda model, path: model.predict(np.zeros((2, model.n_features_in_)))),
    ],
    ids=["save", "load", "predict"],
)
def test_ctrl_c_in_the_garbage_collector_is_not_lost(place, name, action, tmp_path, monkeypatch, capfd):
    """JAX has a callback there, which is often the first Python that runs after a long call of C. Exceptions
    in it are printed and dropped."""
    model, function, pressed = novidgp.load_model(FILE), getattr(place, name), []

    def callback(phase, info):
        if not pressed:
            pressed.append(signal.raise_signal(signal.SIGINT))

    def collecting(*arguments, **options):
        gc.callbacks.append(callback)
        gc.collect()
        gc.callbacks.remove(callback)
        return function(*arguments, **options)

    monkeypatch.setattr(place, name, collecting)
    with pytest.raises(KeyboardInterrupt):
        action(model, tmp_path / "model.novidgp")
    assert capfd.readouterr().err == ""
    if name == "save":
        monkeypatch.undo()
        assert novidgp.load_model(tmp_path / "model.novidgp").get_params() == model.get_params()
