"""The wide last layer of classifiers: what it gains, agreement of predictions, files, refusals."""

import functools

import numpy as np
import pytest
from sklearn.datasets import load_digits

from novidgp import DGPClassifier, DGPRegressor, load_model, storage
from novidgp.estimators import widening
from novidgp.storage import ModelFileError

SMALL = {"inference": "dsvi", "num_inducing": 10, "max_steps": 20, "num_predict_samples": 4, "local": False}
CONV = {"layers": [{"kind": "sum", "size": 3, "stride": 2}], "batch_size": 32}


def digits():
    images, labels = load_digits(return_X_y=True)
    return images.reshape(-1, 8, 8)[:700], labels[:700]


@functools.cache
def fitted(kind, wide=90):
    """Models that have hardly been trained, and their last layer solved for."""
    X, y = digits()
    options: dict = {"conv": CONV, "flipped": CONV | {"augment": "flip"}}.get(kind, {})
    X = X.reshape(len(X), -1) if kind == "table" else X
    y = y % 2 if kind == "binary" else y
    return DGPClassifier(**SMALL, **options, wide=wide, random_state=0).fit(X[:500], y[:500])


def rows(kind):
    X, y = digits()
    X = X.reshape(len(X), -1) if kind == "table" else X
    return X[500:], y[500:] % 2 if kind == "binary" else y[500:]


@pytest.mark.parametrize("kind", ["conv", "table", "binary"])
def test_it_finds_what_few_steps_have_not(kind):
    """200 test digits: a standard error of .04 at most, and the gain is above .2."""
    X, y = rows(kind)
    gain = fitted(kind).score(X, y) - fitted(kind, None).score(X, y)
    assert gain > 0.2
    assert "Wide last layer of " in fitted(kind).fit_notes_[-1]


def test_a_prediction_does_not_depend_on_the_rows_beside_it():
    X, _ = rows("conv")
    together = fitted("conv").predict_proba(X[:40])
    np.testing.assert_array_equal(fitted("conv").predict_proba(X[7:9]), together[7:9])
    np.testing.assert_allclose(together.sum(1), 1.0, atol=1e-6)


@pytest.mark.parametrize("kind", ["conv", "table"])
def test_a_file_keeps_it(kind, tmp_path):
    X, _ = rows(kind)
    fitted(kind).save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), fitted(kind).predict_proba(X))
    arrays, metadata = storage.load(tmp_path / "model")
    short = dict(arrays) | {"wide/weights": arrays["wide/weights"][:-1]}
    storage.save(tmp_path / "broken", short, metadata)
    with pytest.raises(ModelFileError, match="'wide/weights' is not numbers of shape"):
        load_model(tmp_path / "broken")


def test_augmented_views_are_other_rows():
    X, y = rows("conv")
    plain, flipped = (fitted(kind).predict_proba(X) for kind in ("conv", "flipped"))
    assert np.abs(plain - flipped).max() > 0.01
    assert np.mean(np.argmax(flipped, axis=1) == y) > 0.5


def test_auto_tries_none_for_tables_and_few_images():
    assert fitted("conv", "auto").wide_ is None
    assert fitted("table", "auto").wide_ is None
    assert not any("ide last layer" in note for note in fitted("conv", "auto").fit_notes_)


@pytest.mark.parametrize(("rows", "points"), [(999, 0), (1_347, 673), (60_000, 2_000)])
def test_auto_has_half_as_many_points_as_rows_at_most(rows, points):
    config = fitted("conv", "auto").config_
    assert widening.wide_points(DGPClassifier(), config, rows, beside_local=False) == points
    assert widening.wide_points(DGPClassifier(wide=None), config, rows, beside_local=False) == 0


def test_auto_keeps_what_rows_left_out_say_is_better(monkeypatch):
    """The trained layer is that of 20 steps; then one that has given every label all probability."""
    monkeypatch.setattr(widening, "_AUTO_ROWS", 300)
    monkeypatch.setattr(widening, "_POINTS", 90)
    X, y = digits()
    model = DGPClassifier(**SMALL | CONV, random_state=0)
    model.fit(X[:500], y[:500])
    assert model.wide_ is not None
    assert "by the last layer as trained, which has seen them" in model.fit_notes_[-1]
    monkeypatch.setattr(widening, "label_losses", lambda labels, p: np.zeros(len(labels)))
    model.fit(X[:500], y[:500])
    assert model.wide_ is None
    assert model.fit_notes_[-1].startswith("No wide last layer: log loss ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wide": "yes"}, "wide='yes' is unknown. Pass 'auto', None or a number"),
        ({"wide": 0}, "wide=0 is too small"),
        ({"wide": 50, "starts": 2}, "there are starts=2; use starts=1, or pass wide=None"),
        ({"wide": 50, "kernel_sharing": "separate"}, "use kernel_sharing='auto', or pass wide=None"),
        (
            {"wide": 50, "local": True},
            "both stand in for the last layer; use local='auto', or pass wide=None",
        ),
        ({"wide": 50, "latent_dim": 1}, "use latent_dim=0, not 1, or pass wide=None"),
    ],
)
def test_what_it_cannot_be_is_refused(options, message):
    X, y = digits()
    with pytest.raises(ValueError, match=message):
        DGPClassifier(**SMALL | options).fit(X, y)


def test_verbose_tells_what_it_is_at(capfd):
    X, y = digits()
    DGPClassifier(**SMALL | CONV, wide=90, random_state=0, verbose=True).fit(X[:500], y[:500])
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("wide last layer: ")]
    assert lines[0] == "wide last layer: lengthscales times 1"
    assert "wide last layer: 90 features of 500 rows" in lines
    assert lines[-1] == "wide last layer: solving for all rows"


def test_it_needs_classes_and_rows():
    X, y = digits()
    with pytest.raises(ValueError, match=r"wide=50 is for classes and likelihood='gaussian' has none"):
        DGPRegressor(**SMALL, wide=50).fit(X, y.astype(float))
    with pytest.raises(ValueError, match=r"wide=50 needs 200 rows, got 100; pass wide=None"):
        DGPClassifier(**SMALL, wide=50).fit(X[:100], y[:100])
