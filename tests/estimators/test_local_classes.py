"""The local layer of the classifier: predictions that agree, settings, weights, files."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import novidgp
from novidgp import DGPClassifier
from novidgp.local.class_layer import ClassLayer

SMALL = {
    "inference": "dsvi",
    "num_inducing": 5,
    "max_steps": 20,
    "num_predict_samples": 20,
    "random_state": 0,
}
LOCAL = {"neighbours": 16, "steps": 24}
NAMES = np.array(["left", "middle", "right"])


def stripes(X, classes):
    """Too fine for five inducing points."""
    return (np.floor(2.0 * X[:, 0]) % classes).astype(int)


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).uniform(-3, 3, size=(500, 2))


@pytest.fixture(scope="module")
def elsewhere():
    return np.random.default_rng(1).uniform(-2.8, 2.8, size=(150, 2))


@pytest.fixture(scope="module", params=[2, 3], ids=["bernoulli", "softmax"])
def model(request, X):
    names = NAMES[: request.param]
    return DGPClassifier(**SMALL, local=LOCAL).fit(X, names[stripes(X, request.param)])


def test_the_layer_sees_what_the_deep_gp_does_not(model, X, elsewhere):
    classes = model.classes_
    truth = classes[stripes(elsewhere, len(classes))]
    alone = DGPClassifier(**SMALL, local=False).fit(X, classes[stripes(X, len(classes))])
    assert alone.score(elsewhere, truth) < 0.65 < 0.85 < model.score(elsewhere, truth)
    assert alone.local_ is None
    assert isinstance(model.local_, ClassLayer)
    assert "Local layer kept" in model.fit_notes_[-1]


def test_all_predictions_are_of_one_distribution(model, elsewhere):
    """Probabilities to the rounding of single precision; 2,000 draws have a standard error of .011."""
    p = model.predict_proba(elsewhere)
    np.testing.assert_allclose(p.sum(1), 1.0, atol=1e-6)
    for number, label in enumerate(model.classes_):
        density = model.log_density(elsewhere, np.full(len(elsewhere), label))
        np.testing.assert_allclose(np.exp(density), p[:, number], atol=1e-6)
    predictive = model.predictive(elsewhere)
    labels = np.searchsorted(model.classes_, model.predict(elsewhere))
    assert np.array_equal(labels, p.argmax(1))
    np.testing.assert_allclose(
        np.exp(predictive.log_prob(labels[:, None])), p[np.arange(len(p)), labels], atol=2e-5
    )
    draws = predictive.sample(2_000, key=jax.random.key(0))[..., 0]
    for number in range(len(model.classes_)):
        assert np.abs((draws == number).mean(0) - p[:, number]).max() < 0.05


def test_a_row_is_predicted_alike_alone_and_with_others(model, elsewhere):
    together = model.predict_proba(elsewhere)
    for row in range(5):
        assert np.array_equal(model.predict_proba(elsewhere[[row]])[0], together[row])


PREDICT = """
import sys, numpy as np, novidgp
np.save(sys.argv[3], novidgp.load_model(sys.argv[1]).predict_proba(np.load(sys.argv[2])))
"""


def test_a_saved_layer_predicts_alike_in_a_new_process(model, elsewhere, tmp_path):
    model.save(tmp_path / "model.novidgp")
    np.save(tmp_path / "x.npy", elsewhere)
    files = [str(tmp_path / name) for name in ("model.novidgp", "x.npy", "out.npy")]
    subprocess.run([sys.executable, "-c", PREDICT, *files], check=True, capture_output=True)
    np.testing.assert_array_equal(np.load(files[2]), model.predict_proba(elsewhere))


def test_a_file_without_rows_is_the_deep_gp_alone(model, elsewhere, tmp_path, capsys):
    model.summary()
    assert "16 nearest of 500 training rows, which are in the model" in capsys.readouterr().out
    with pytest.warns(UserWarning, match="leaves the local layer out"):
        model.save(tmp_path / "model.novidgp", without_rows=True)
    loaded = novidgp.load_model(tmp_path / "model.novidgp")
    assert loaded.local_ is None
    rows = model.local_.conditioned.rows.inputs
    assert rows.tobytes()[:400] not in (tmp_path / "model.novidgp").read_bytes()
    assert np.abs(loaded.predict_proba(elsewhere) - model.predict_proba(elsewhere)).max() > 0.1


def test_auto_judges(X):
    """Labels by chance have nothing that neighbours know; few rows cannot tell."""
    chance = np.random.default_rng(2).integers(2, size=len(X))
    fitted = DGPClassifier(**SMALL).fit(X, chance)
    assert fitted.local_ is None
    assert "Local layer left out" in fitted.fit_notes_[-1]
    assert "too few" in DGPClassifier(**SMALL).fit(X[:100], chance[:100]).fit_notes_[-1]


def test_the_layer_heeds_weights(X, elsewhere):
    """Rows of weight 0 are absent; rows that contradict the others count for little."""
    truth, wrong = stripes(X, 3), np.tile([0, 1, 2], len(X))
    labels = (np.repeat(truth, 3) + wrong) % 3
    fitted = DGPClassifier(**SMALL, local=LOCAL).fit(
        X.repeat(3, axis=0), labels, np.choose(wrong, [1.0, 0.01, 0.0])
    )
    assert fitted.local_.num_rows == 2 * len(X)
    assert fitted.score(elsewhere, stripes(elsewhere, 3)) > 0.8  # a third by chance
