"""What is kept of a classifier's doubt, and its pictures."""

import base64

import numpy as np

from novidgp.bench.certainty import LEAST, certainty
from novidgp.bench.image_panels import reliability_panels, unsure_panels
from novidgp.bench.report import svg
from novidgp.bench.spec import Fit
from novidgp.bench.summary import Entry, Place


def chances(sure, guesses):
    found = np.repeat((1.0 - np.asarray(sure))[:, None] / 2, 3, axis=1)
    found[np.arange(len(guesses)), guesses] = sure
    return found


def test_bins_have_mean_probability_share_of_right_guesses_and_share_of_images():
    labels = np.array([0, 1, 2, 0])
    found = certainty(labels, chances([0.95, 0.93, 0.55, 1.0], [0, 1, 2, 1]), np.zeros((4, 6)))
    assert list(found) == ["reliability"]
    np.testing.assert_allclose(found["reliability"], [[0.55, 1.0, 0.25], [0.96, 2 / 3, 0.75]])


def test_the_images_with_the_smallest_probability_are_kept_as_bytes():
    images = np.random.default_rng(0).integers(0, 256, (20, 4, 5, 3)).astype(np.uint8)
    sure = np.linspace(0.4, 0.99, 20)[::-1]
    found = certainty(np.zeros(20, int), chances(sure, np.ones(20, int)), images)["unsure"]
    assert found["shape"] == [4, 5, 3]
    assert len(found["images"]) == LEAST
    first = found["images"][0]
    assert (first["label"], first["guess"]) == (0, 1)
    pixels = np.frombuffer(base64.b64decode(first["pixels"]), np.uint8)
    np.testing.assert_array_equal(pixels.reshape(4, 5, 3), images[19])
    grey = certainty(np.zeros(1, int), chances([0.5], [0]), np.array([[[-1.0, 3.0]]]))["unsure"]
    assert base64.b64decode(grey["images"][0]["pixels"]) == b"\x00\xff"


def test_pictures_show_every_method_of_a_data_set():
    images = np.random.default_rng(0).integers(0, 256, (20, 4, 5)).astype(np.uint8)
    scores = certainty(np.zeros(20, int), chances(np.linspace(0.4, 0.99, 20), np.zeros(20, int)), images)
    fit = Fit("mnist", "official", 0, "novi", 2)
    group = [Entry(Place("mnist", "official", 2), "novi", fit, {0: {"scores": scores}}, 0)]
    group += [group[0]._replace(label="hist-gb", records={0: {"scores": {}}})]
    (curve,), (shown,) = reliability_panels(group), unsure_panels(group)
    assert "1 methods" in curve.alt
    assert shown.title == "mnist: novi"
    assert svg(shown).count("<image") == LEAST
