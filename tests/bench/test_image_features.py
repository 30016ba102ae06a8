"""Rows of image features: views, temperatures, what is outside, and the rows of the suite."""

import numpy as np
import pytest
import safetensors.numpy

from novidgp.bench import image_features, outside, views
from novidgp.bench.methods import unavailable_reason
from novidgp.bench.problems import Problem
from novidgp.bench.scoring import Classification, score
from novidgp.bench.spec import IMAGE_FEATURES, Fit
from novidgp.bench.suites import SUITES
from support.resnets import state_dict


def images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)


def test_views_without_strength_are_shifts_and_mirror_images():
    """Whole pixels: a shift by hand. Where the picture goes on, a view is the picture or its mirror image."""
    X = images(4)
    rows, columns = np.meshgrid(np.arange(32.0) + 2, np.arange(32.0) - 3, indexing="ij")
    shifted = views._sample(X.astype(float), *(np.broadcast_to(p, (4, 32, 32)) for p in (rows, columns)))
    np.testing.assert_array_equal(shifted[:, :30, 3:], X[:, 2:, :29])
    assert not shifted[:, 30:].any()
    assert not shifted[:, :, :3].any()
    found = views.harder_views(X, np.random.default_rng(0), 0.0)
    assert found.dtype == np.uint8
    assert found.shape == X.shape


def test_usual_views_are_crops_of_the_image_or_its_mirror_image():
    X = images(20)
    found = views.usual_views(X, np.random.default_rng(0))
    padded = np.pad(X, ((0, 0), (4, 4), (4, 4), (0, 0)))
    mirrored = 0
    for image, view in zip(padded, found, strict=True):
        crops = [image[i : i + 32, j : j + 32] for i in range(9) for j in range(9)]
        plain = any(np.array_equal(view, crop) for crop in crops)
        assert plain or any(np.array_equal(view, crop[:, ::-1]) for crop in crops)
        mirrored += not plain
    assert 4 <= mirrored <= 16  # of 20, at odds of one half


def test_views_are_repeatable_differ_from_each_other_and_resemble_the_image():
    smooth = np.broadcast_to(np.linspace(0, 255, 32)[:, None, None], (50, 32, 32, 3)).astype(np.uint8)
    first, again = (views.harder_views(smooth, np.random.default_rng(1)) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first.reshape(50, -1), axis=0)) == 50
    brightness = first[:, 8:24, 8:24].astype(float).mean((2, 3))
    assert np.all(np.corrcoef(brightness.mean(0), np.arange(16))[0, 1] > 0.99)  # dark above, light below


def test_the_best_temperature_is_the_one_that_made_the_labels():
    """20,000 labels drawn from the softmax at temperature 2: the estimate's standard error is below 2 %, and
    the grid's step is 3.5 %."""
    rng = np.random.default_rng(0)
    logits = 4.0 * rng.standard_normal((20_000, 10))

    def probabilities(temperature):
        power = np.exp(logits / temperature)
        return power / power.sum(1, keepdims=True)

    labels = (probabilities(2.0).cumsum(1) < rng.random((20_000, 1))).sum(1)
    assert image_features.best_temperature(probabilities, labels) == pytest.approx(2.0, rel=0.08)


def test_outside_scores_are_one_where_the_method_doubts_what_is_outside(monkeypatch):
    monkeypatch.setattr(outside, "ROWS", 5)
    monkeypatch.setitem(outside.OUTSIDE["cifar10"], "mnist", lambda rng: None)
    dark = np.zeros((5, 32, 32, 3), np.uint8)
    problem = Problem("classification", dark, np.zeros(5), dark, np.zeros(5), 1.0)

    def sure_of_dark(X):
        sure = np.where(image_features.as_images(X).mean((1, 2, 3)) < 50, 0.9, 0.6)
        return np.column_stack([sure, 1 - sure])

    method = Classification(sure_of_dark, np.arange(2))
    assert outside.outside_scores(method, problem, "cifar10") == {"auroc_noise": 1.0}
    assert outside.outside_scores(method, problem, "energy") == {}


def test_every_row_of_the_suite_has_a_fitter_and_says_what_it_needs(monkeypatch, tmp_path):
    assert tuple(image_features.FITTERS) == IMAGE_FEATURES
    assert {fit.method for fit in SUITES["images-features"].fits()} == set(IMAGE_FEATURES)
    monkeypatch.setenv("NOVIDGP_DATA", str(tmp_path))
    monkeypatch.setattr("novidgp.datasets.cache.cache_directory", lambda: tmp_path)
    (tmp_path / "cifar10.npz").touch()
    fit = Fit("cifar10", "official", 0, "resnets-novi")
    assert "needs cifar10_resnet*.safetensors" in (unavailable_reason(fit) or "")
    assert "is for cifar10" in (unavailable_reason(fit._replace(dataset="iris")) or "")
    assert unavailable_reason(fit._replace(method="patches-novi")) is None


def test_rows_of_a_network_are_its_softmax_a_temperature_and_a_deep_gp(monkeypatch, tmp_path):
    """The smallest network, forty images: all three give probabilities and scores."""
    safetensors.numpy.save_file(state_dict(), tmp_path / "cifar10_resnet20.safetensors")
    monkeypatch.setenv("NOVIDGP_DATA", str(tmp_path))
    monkeypatch.setattr(image_features, "_HEAD", {"num_layers": 1, "num_inducing": 5, "max_steps": 2})
    X, y = images(40), np.arange(40) % 10
    problem = Problem("classification", X.reshape(40, -1), y, X[:10], y[:10], 1.0)
    found = {}
    for method in ("resnet20", "resnet20-scaled", "resnet20-novi"):
        row = image_features.resnet(Fit("cifar10", "official", 0, method), problem)
        found[method] = score(row, problem)["nll"]
        np.testing.assert_allclose(row.probabilities(X).sum(1), 1.0, rtol=1e-5)
    assert found["resnet20-scaled"] < found["resnet20"]  # random weights are far too sure
