"""The commands on files of images: what `fit` makes of them, and what the others read with the model."""

import json

import numpy as np
import pytest

from support.commands import refused, run

SETTINGS = [
    "--layers",
    "conv",
    "--steps",
    "2",
    "--inducing",
    "5",
    "--inference",
    "dsvi",
    "--augment",
    "shift",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of images, one without targets, and a model."""
    path = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 255, (24, 6, 6), dtype=np.uint8), np.arange(24) % 3
    np.savez(path / "images.npz", X=X, y=y)
    np.savez(path / "unseen.npz", X=X)
    np.savez(path / "wide.npz", X=X[:, :, :5], y=y)
    np.savez(path / "rows.npz", X=X.reshape(24, -1), y=y)
    result = run("fit", path / "images.npz", "-o", path / "m.novidgp", *SETTINGS)
    assert "classification of 'y': 24 images of 6 x 6" in result.output
    return path


def test_predictions_and_scores_of_images(folder):
    output = run("predict", folder / "m.novidgp", folder / "unseen.npz", "--out", "-").stdout
    lines = output.splitlines()
    assert lines[0] == "prediction,p(0),p(1),p(2)"
    assert len(lines) == 25
    scores = json.loads(run("evaluate", folder / "m.novidgp", folder / "images.npz", "--json").stdout)
    assert scores["rows"] == 24
    assert 0 <= scores["accuracy"] <= 1


def test_mistakes_with_images_are_told_in_one_line(folder):
    model = folder / "m.novidgp"
    assert "no array named 'y'" in refused("evaluate", model, folder / "unseen.npz")
    assert "6 x 5" in refused("predict", model, folder / "wide.npz", "--out", "-")
    assert "the model is for images" in refused("predict", model, folder / "rows.npz", "--out", "-")
    assert "no columns" in refused("predict", model, folder / "images.npz", "--out", "-", "--with-inputs")
    assert "no columns" in refused("fit", folder / "images.npz", "--target", "x0")
    assert "for images" in refused("fit", folder / "rows.npz", "--layers", "conv")
    assert "regression, classification or auto" in refused("fit", folder / "images.npz", "--task", "digits")
    assert "two dimensions" in refused("doctor", folder / "images.npz")
    assert "wide=50 needs 200 rows, got 24" in refused("fit", folder / "images.npz", "--wide", "50")
    run("fit", folder / "rows.npz", "--layers", "0", code=2)


def test_a_wide_last_layer(folder, tmp_path):
    images = np.load(folder / "images.npz")
    X, y = (np.tile(images[name], (9,) + (1,) * (images[name].ndim - 1)) for name in "Xy")
    np.savez(tmp_path / "many.npz", X=X, y=y)
    result = run("fit", tmp_path / "many.npz", "-o", tmp_path / "m.novidgp", *SETTINGS, "--wide", "40")
    assert "Wide last layer of " in result.output
    assert "log loss " in result.output


def test_the_task_follows_from_the_target(folder):
    from novidgp.tables.images import choose_image_task

    assert choose_image_task(np.array([0, 1]), "auto") == "classification"
    assert choose_image_task(np.array([0.0, 1.0]), "auto") == "classification"
    assert choose_image_task(np.array([0.5, 1.0]), "auto") == "regression"
    assert choose_image_task(np.array(["a", "b"]), "auto") == "classification"
    assert choose_image_task(np.array([0, 1]), "regression") == "regression"
