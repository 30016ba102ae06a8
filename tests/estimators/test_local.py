"""The local layer in the estimators: settings, notes, predictions that agree, files."""

import subprocess
import sys

import numpy as np
import pytest

import novidgp
from novidgp import DGPRegressor
from novidgp.inference import METHODS

SMALL = {
    "inference": "dsvi",
    "num_inducing": 5,
    "max_steps": 20,
    "num_predict_samples": 50,
    "random_state": 0,
}
LOCAL = {"neighbours": 16, "steps": 30}


@pytest.fixture(scope="module")
def wave():
    """Too fine for five inducing points."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(300, 2))
    return X, 100.0 + 20.0 * np.sin(4.0 * X[:, 0]) + rng.normal(size=300)


@pytest.fixture(scope="module")
def model(wave):
    return DGPRegressor(**SMALL, local=LOCAL).fit(*wave)


@pytest.fixture(scope="module")
def elsewhere():
    return np.random.default_rng(1).uniform(-2.8, 2.8, size=(150, 2))


def test_the_layer_sees_what_the_deep_gp_does_not(model, wave, elsewhere):
    truth = 100.0 + 20.0 * np.sin(4.0 * elsewhere[:, 0])
    deep = DGPRegressor(**SMALL, local=False).fit(*wave)
    errors = [np.sqrt(np.mean((m.predict(elsewhere) - truth) ** 2)) for m in (deep, model)]
    assert errors[1] < 0.5 * errors[0]
    assert deep.local_ is None
    assert "Local layer kept" in model.fit_notes_[-1]


def test_all_predictions_are_of_one_distribution(model, elsewhere):
    """Moments, quantiles, densities and draws; 4,000 draws leave 2 % of a standard deviation in the mean."""
    mean, std = model.predict(elsewhere, return_std=True)
    draws = model.sample_y(elsewhere, 4_000)
    assert np.abs((draws.mean(1) - mean) / std).max() < 0.1
    below, above = model.predict_quantiles(elsewhere, [0.1, 0.9]).T
    inside = np.mean((draws > below[:, None]) & (draws < above[:, None]), axis=1)
    assert np.abs(inside - 0.8).max() < 0.04
    grid = np.linspace(mean[0] - 40 * std[0], mean[0] + 40 * std[0], 8_001)
    density = np.exp(model.log_density(np.repeat(elsewhere[:1], 8_001, axis=0), grid))
    step = grid[1] - grid[0]
    assert abs(density.sum() * step - 1.0) < 1e-3
    assert abs((density * grid).sum() * step - mean[0]) < 1e-2 * std[0]
    assert abs((density * (grid - mean[0]) ** 2).sum() * step / std[0] ** 2 - 1.0) < 1e-2


def test_a_row_is_predicted_alike_alone_and_with_others(model, elsewhere):
    together = model.predict(elsewhere, return_std=True)
    for row in range(10):
        alone = model.predict(elsewhere[row : row + 1], return_std=True)
        assert [part[0] for part in alone] == [part[row] for part in together]


PREDICT = """
import sys, numpy as np, novidgp
X = np.load(sys.argv[2])
np.save(sys.argv[3], novidgp.load_model(sys.argv[1]).predict(X, return_std=True))
"""


def test_a_saved_layer_predicts_alike_in_a_new_process(model, elsewhere, tmp_path):
    model.save(tmp_path / "model.novidgp")
    np.save(tmp_path / "x.npy", elsewhere)
    files = [str(tmp_path / name) for name in ("model.novidgp", "x.npy", "out.npy")]
    subprocess.run([sys.executable, "-c", PREDICT, *files], check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(files[2]), model.predict(elsewhere, return_std=True))


def test_a_file_without_rows_is_the_deep_gp_alone(model, elsewhere, tmp_path):
    with pytest.raises(TypeError, match="without_rows must be True or False, got 'yes'"):
        model.save(tmp_path / "model.novidgp", without_rows="yes")
    with pytest.raises(TypeError, match="path must be the path of a file, got None"):
        model.save(None)
    with pytest.warns(UserWarning, match="leaves the local layer out"):
        model.save(tmp_path / "model.novidgp", without_rows=True)
    loaded = novidgp.load_model(tmp_path / "model.novidgp")
    assert loaded.local_ is None
    X = model.local_.targets[0].conditioned.rows.inputs
    assert X.astype(np.float32).tobytes()[:400] not in (tmp_path / "model.novidgp").read_bytes()
    assert not np.allclose(loaded.predict(elsewhere), model.predict(elsewhere))


def test_auto_needs_rows_to_judge_by(wave):
    X, y = wave
    fitted = DGPRegressor(**SMALL).fit(X[:100], y[:100])
    assert fitted.local_ is None
    assert "too few" in fitted.fit_notes_[-1]


def test_a_layer_in_double_precision_and_with_one_layer(wave, elsewhere):
    fitted = DGPRegressor(**SMALL | {"num_layers": 1}, dtype="float64", local=LOCAL).fit(*wave)
    assert fitted.local_.targets[0].conditioned.rows.inputs.dtype == np.float64
    assert fitted.local_.targets[0].conditioned.rows.inputs.shape == (300, 2)
    assert np.all(np.isfinite(fitted.predict(elsewhere)))


def test_missing_targets_have_neighbours_that_are_there(wave, elsewhere):
    X, y = wave
    both = np.stack([y, -y], axis=1)
    both[:150, 1] = np.nan
    fitted = DGPRegressor(**SMALL, local=LOCAL).fit(X, both)
    assert [len(target.conditioned.rows) for target in fitted.local_.targets] == [300, 150]
    mean = fitted.predict(elsewhere)
    assert np.corrcoef(mean[:, 0], -mean[:, 1])[0, 1] > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_layer(wave, elsewhere, name):
    """One step leaves all of the wave to the layer, whatever the method."""
    quick = SMALL | {"inference": name, "max_steps": 1, "latent_dim": 0}
    fitted = DGPRegressor(**quick, local=LOCAL).fit(*wave)
    truth = 100.0 + 20.0 * np.sin(4.0 * elsewhere[:, 0])
    assert np.sqrt(np.mean((fitted.predict(elsewhere) - truth) ** 2)) < 8.0  # 14 without the layer


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("always", ValueError, "local='always' is unknown. Pass 'auto', True, False or a dict"),
        (3, TypeError, "local must be 'auto', True, False or a dict"),
        ({"neighbors": 5}, ValueError, "Did you mean 'neighbours'"),
        ({"steps": 0}, ValueError, "local\\['steps'\\]=0 is too small"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wave, value, error, words):
    with pytest.raises(error, match=words):
        DGPRegressor(**SMALL, local=value).fit(*wave)


def test_latent_variables_have_no_layer(wave):
    with pytest.raises(ValueError, match="models without latent variables"):
        DGPRegressor(**SMALL, latent_dim=1, local=True).fit(*wave)
    assert DGPRegressor(**SMALL | {"max_steps": 1}, latent_dim=1).fit(*wave).local_ is None


def test_the_layer_heeds_weights(wave, elsewhere):
    """Rows of weight 0 are absent, rows that contradict the others count for little; 14 without a layer."""
    X, y = wave
    weight = np.repeat([1.0, 0.01, 0.0], 300)
    targets = np.concatenate([y, 200.0 - y, np.full(300, 1e6)])
    fitted = DGPRegressor(**SMALL, local=LOCAL).fit(np.concatenate([X, X, X]), targets, weight)
    truth = 100.0 + 20.0 * np.sin(4.0 * elsewhere[:, 0])
    assert np.sqrt(np.mean((fitted.predict(elsewhere) - truth) ** 2)) < 5.0
    assert len(fitted.local_.targets[0].conditioned.rows) == 600


def test_other_likelihoods_have_no_layer(wave):
    X, y = wave
    with pytest.raises(ValueError, match="needs likelihood='gaussian', got 'student-t'"):
        DGPRegressor(**SMALL, likelihood="student-t", local=True).fit(X, y)
    assert DGPRegressor(**SMALL | {"max_steps": 1}, likelihood="student-t").fit(X, y).local_ is None
