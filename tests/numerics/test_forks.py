"""Forked processes: an error at once where JAX would hang. With real processes."""

import pytest

from support.processes import Process

CODE = """
import os, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")  # JAX warns of forks in general
from novidgp import DGPRegressor, load_model
x = np.linspace(0, 1, 40)[:, None]
model = DGPRegressor(inference="dsvi", num_layers=1, num_inducing=5, max_steps=4)
path, parent, child = sys.argv[1:]
actions = {
    "nothing": lambda: None,
    "fit": lambda: model.fit(x, np.sin(9 * x[:, 0])),
    "predict": lambda: model.predict(x),
    "load": lambda: load_model(path),
    "save": lambda: model.save(path),
}
def act(names):
    for name in names.split(","):
        actions[name]()
act(parent)
pid = os.fork()
if pid == 0:
    start = time.monotonic()
    try:
        act(child)
        print("worked", flush=True)
    except RuntimeError as error:
        print(f"refused after {time.monotonic() - start:.1f} s: {error}", flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print("end", flush=True)
"""


def outcome(*arguments):
    with Process(CODE, *arguments) as process:
        return process.wait_for(" ")


@pytest.mark.parametrize("child", ["fit", "predict", "load"])
def test_a_child_of_a_process_that_has_fitted_is_refused(tmp_path, child):
    line = outcome(tmp_path / "m.novidgp", "fit,save", child)
    assert line.startswith("refused after 0."), line
    assert "get_context('spawn')" in line
    assert "joblib" in line


def test_a_child_of_a_process_that_has_loaded_a_model_is_refused(tmp_path):
    path = tmp_path / "m.novidgp"
    with Process(CODE, path, "fit,save", "nothing") as process:
        process.end()
    assert outcome(path, "load", "load,predict").startswith("refused after 0.")


def test_a_child_of_a_process_that_has_only_imported_works(tmp_path):
    with Process(CODE, tmp_path / "m.novidgp", "nothing", "fit,save,load,predict") as process:
        assert process.wait_for("") == "worked\n"
