"""A saved model predicts as the one that was saved; older files load; damaged ones are refused."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification

import novidgp
from novidgp import DGPClassifier, DGPRegressor, storage
from novidgp.storage import ModelFileError

SMALL = {
    "inference": "dsvi",
    "num_layers": 1,
    "num_inducing": 5,
    "max_steps": 20,
    "num_predict_samples": 8,
    "inference_options": {"learning_rate": 0.05},
}
FORMAT_1 = Path(__file__).parent / "format1"


@pytest.fixture(scope="module")
def fitted(curve):
    return DGPRegressor(**SMALL | {"num_layers": 2}, random_state=0).fit(*curve)


_PREDICT_ELSEWHERE = """
import sys, numpy as np, novidgp
model = novidgp.load_model(sys.argv[1])
X = np.load(sys.argv[2])
out = [model.predict_proba(X)] if hasattr(model, "classes_") else [*model.predict(X, return_std=True)]
np.savez(sys.argv[3], *out)
"""


def _predict_elsewhere(model_file, X, tmp_path):
    np.save(tmp_path / "x.npy", X)
    arguments = [
        sys.executable,
        "-c",
        _PREDICT_ELSEWHERE,
        model_file,
        tmp_path / "x.npy",
        tmp_path / "out.npz",
    ]
    subprocess.run([*map(str, arguments)], check=True, capture_output=True)
    with np.load(tmp_path / "out.npz") as out:
        return [out[name] for name in out.files]


def test_a_file_holds_all_of_a_regressor(fitted, curve, tmp_path):
    """tests/inference/test_contract.py reads every method's file in a new process."""
    fitted.save(tmp_path / "model.novidgp", extra={"columns": ["a", "b"]})
    loaded = novidgp.load_model(tmp_path / "model.novidgp")
    for here, there in zip(*(m.predict(curve[0], return_std=True) for m in (fitted, loaded)), strict=True):
        np.testing.assert_array_equal(there, here)
    assert loaded.extra_ == {"columns": ["a", "b"]}
    assert loaded.get_params() == fitted.get_params()
    assert loaded.method_ == fitted.method_
    np.testing.assert_array_equal(loaded.history_["loss"], fitted.history_["loss"])


def test_a_saved_float64_classifier_predicts_bit_for_bit_in_a_new_process(tmp_path):
    X, y = make_classification(60, 4, random_state=0)
    X = pd.DataFrame(X, columns=list("abcd"))
    model = DGPClassifier(**SMALL, dtype="float64", whiten=False, random_state=np.random.RandomState(0)).fit(
        X, y
    )
    model.save(tmp_path / "model.novidgp")
    loaded = novidgp.load_model(tmp_path / "model.novidgp")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert list(loaded.feature_names_in_) == list("abcd")
    assert loaded.classes_.dtype == y.dtype
    (elsewhere,) = _predict_elsewhere(tmp_path / "model.novidgp", X.to_numpy(), tmp_path)
    np.testing.assert_array_equal(elsewhere, model.predict_proba(X))


def test_damaged_and_foreign_files_are_refused(fitted, curve, tmp_path):
    path = tmp_path / "model.novidgp"
    fitted.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelFileError, match="damaged"):
        novidgp.load_model(path)
    path.write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(ModelFileError, match="not a novidgp file"):
        novidgp.load_model(path)


# --- files of other versions ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["novi-options", "novi-paper", "sghmc"])
def test_a_regressor_of_format_1_predicts_as_it_did(name):
    """Files and predictions by novidgp 0.1. Machines differ in rounding, so 1e-6 is allowed (6e-7 was
    seen)."""
    with np.load(FORMAT_1 / "data.npz") as data, np.load(FORMAT_1 / f"{name}.npz") as expected:
        model = novidgp.load_model(FORMAT_1 / f"{name}.novidgp")
        moments = model.predict(data["X"], return_std=True)
        np.testing.assert_allclose(moments, expected["p"], rtol=1e-6, atol=1e-6)
        quantiles = model.predict_quantiles(data["X"], [0.1, 0.9])
        np.testing.assert_allclose(quantiles, expected["q"], rtol=1e-6, atol=1e-6)
        density = model.log_density(data["X"], data["y"])
        np.testing.assert_allclose(density, expected["d"], rtol=1e-6, atol=1e-6)


def test_a_classifier_of_format_1_predicts_as_it_did():
    """NOVI with its network and three snapshots, three classes."""
    with np.load(FORMAT_1 / "data.npz") as data, np.load(FORMAT_1 / "softmax.npz") as expected:
        model = novidgp.load_model(FORMAT_1 / "softmax.novidgp")
        assert len(model.ensemble_.model.layers[0].inducing) == 3
        np.testing.assert_allclose(model.predict_proba(data["X"]), expected["p"], atol=1e-6)


def test_a_method_of_format_1_is_the_one_that_fitted_it():
    models = {path.stem: novidgp.load_model(path) for path in FORMAT_1.glob("*.novidgp")}
    assert {name: model.method_.name for name, model in models.items()} == {
        "novi-options": "novi",
        "novi-paper": "novi-paper",
        "sghmc": "sghmc",
        "softmax": "novi",
    }
    options = models["novi-options"].method_
    assert (options.network, options.covariance, options.num_samples) == (False, "diagonal", 3)
    assert len(models["novi-options"].ensemble_.model.layers[0].inducing) == 3


def rewritten(fitted, path, change):
    """The file of a model with other metadata."""
    fitted.save(path)
    arrays, metadata = storage.load(path)
    change(metadata)
    storage.save(path, arrays, metadata)
    return path


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda m: m["method"]["options"].update(momentum=0.9), "momentum"),
        (lambda m: m["method"]["options"].update(num_paths=-1), "num_paths"),
        (lambda m: m["method"].update(name="dsvi2"), "dsvi2"),
        (lambda m: m["config"].update(colour="red"), "colour"),
        (lambda m: m["params"].update(colour="red"), "colour"),
        (lambda m: m.pop("seed"), "seed"),
        (lambda m: m.pop("method"), "method"),
        (lambda m: m["config"].update(num_inducing=6), "num_inducing"),
    ],
    ids=["option", "value", "method", "setting", "parameter", "no-seed", "no-method", "shape"],
)
def test_a_file_of_another_version_is_refused_by_name(fitted, tmp_path, change, reason):
    path = rewritten(fitted, tmp_path / "model.novidgp", change)
    with pytest.raises(ModelFileError, match=r"model\.novidgp") as error:
        novidgp.load_model(path)
    assert reason in str(error.value)


# --- files that somebody made by hand, with a right checksum ----------------------------------------------


def _poisoned(name, value):
    def change(arrays, metadata):
        arrays[name] = np.full_like(arrays[name], value)

    return change


def _stated(*path, **values):
    def change(arrays, metadata):
        for part in path:
            metadata = metadata[part]
        metadata.update(values)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_stated("config", num_inducing=10**11), "num_inducing does not match"),
        (_stated("config", num_layers=10**9), "num_layers does not match"),
        (_stated("config", hidden_dim=10**9), "hidden_dim does not match"),
        (_stated("config", num_targets=10**9), "num_targets does not match"),
        (_stated("config", latent_dim=10**9), "more than the arrays hold"),
        (_stated("config", features={"width": 10**9, "depth": 9}), "more than the arrays hold"),
        (_stated(n_features_in=10**9), "n_features_in does not match"),
        (_stated(n_features_in="one"), "n_features_in does not match"),
        (_stated("method", starts=10**6), "more than the arrays hold"),
        (_stated("method", steps=0), "steps=0 is not an integer"),
        (_stated(seed="zero"), "seed='zero' is not an integer"),
        (_stated(prediction_seed=1.5), "prediction_seed=1.5 is not an integer"),
        (_stated(prediction_seed=2**40), "too large"),
        (_stated(n_iter=None), "n_iter=None is not an integer"),
        (_stated(estimator="DGPClassifier"), "not for the likelihood 'gaussian'"),
        (_stated(estimator=["DGPRegressor"]), "holds no model"),
        (_stated(classes={"dtype": "<i8", "values": [0, 1]}), "2 class labels and a model for None"),
        (_stated(feature_names_in=["a", "b", "c"]), "feature_names_in does not match"),
        (_stated(fit_status="perfect"), "fit_status"),
        (_poisoned("fitted.model.layers[0].inducing", np.nan), "not finite numbers"),
        (_poisoned("fitted.posterior.mean[1]", np.inf), "not finite numbers"),
        (_poisoned("fitted.model.layers[0].kernel.log_variance", 1e30), "out of range"),
        (_poisoned("fitted.model.likelihood.log_scale", -200.0), "out of range"),
        (_poisoned("fitted.posterior.log_diagonal[0]", 60.0), "out of range"),
        (_poisoned("fitted.posterior.mean[1]", 1e30), "out of range"),
        (_poisoned("inputs.scale", 0.0), "not positive numbers"),
        (_poisoned("inputs.scale", np.nan), "not positive numbers"),
        (_poisoned("inputs.shift", np.inf), "not finite numbers"),
        (_poisoned("targets.scale", np.inf), "not positive numbers"),
        (_poisoned("targets.scale", -1.0), "not positive numbers"),
    ],
)
def test_a_file_whose_parts_contradict_each_other_is_refused_at_once(fitted, tmp_path, change, reason):
    path = tmp_path / "model.novidgp"
    fitted.save(path)
    arrays, metadata = storage.load(path)
    change(arrays, metadata)
    storage.save(path, arrays, metadata)
    with pytest.raises(ModelFileError, match=r"model\.novidgp") as error:
        novidgp.load_model(path)
    assert reason in str(error.value)


def test_a_constant_column_has_an_infinite_scale_in_its_file(curve, tmp_path):
    X = np.column_stack([curve[0], np.ones(len(curve[0]))])
    model = DGPRegressor(**SMALL, random_state=0).fit(X, curve[1])
    model.save(tmp_path / "model.novidgp")
    loaded = novidgp.load_model(tmp_path / "model.novidgp")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
