"""Patch features: each step against plain loops, and what is kept in a file."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from novidgp.features import PatchFeatures
from novidgp.features.fingerprints import fingerprint
from novidgp.features.patches import image_patches, pooled_activations, triangle

SMALL = {"num_centres": 12, "size": 3, "components": 7, "num_patches": 500}


@pytest.fixture(scope="module")
def digits():
    return load_digits().images[:60]


@pytest.fixture(scope="module")
def fitted(digits):
    return PatchFeatures(**SMALL).fit(digits)


@pytest.mark.parametrize("stride", [1, 2])
def test_patches_are_cut_where_loops_cut_them(stride):
    images = np.random.default_rng(0).standard_normal((2, 7, 6, 3)).astype(np.float32)
    found = np.asarray(image_patches(images, 3, stride))
    for y in range(found.shape[1]):
        for x in range(found.shape[2]):
            cut = images[:, stride * y : stride * y + 3, stride * x : stride * x + 3]
            np.testing.assert_array_equal(found[:, y, x], cut.reshape(2, -1))
    assert found.shape[1:3] == ((7 - 3) // stride + 1, (6 - 3) // stride + 1)


def test_triangle_activations_are_those_of_the_paper():
    rng = np.random.default_rng(0)
    white, centres = (
        rng.standard_normal((5, 4)).astype(np.float32),
        rng.standard_normal((3, 4)).astype(np.float32),
    )
    distance = np.linalg.norm(white[:, None] - centres, axis=-1)
    expected = np.maximum(0, distance.mean(1, keepdims=True) - distance)
    np.testing.assert_allclose(triangle(white, centres), expected, atol=1e-5)


def test_activations_are_summed_by_quadrant(fitted, digits):
    """An image's whole is the sum of its four parts: 36 patches of a digit, 9 in each quadrant."""
    images = digits[:4, :, :, None].astype(np.float32)
    parts = np.asarray(pooled_activations(fitted.encoder_, images, 3, 1, 2)).reshape(4, 4, -1)
    whole = np.asarray(pooled_activations(fitted.encoder_, images, 3, 1, 1))
    np.testing.assert_allclose(parts.sum(1), whole, rtol=1e-4)
    corner = pooled_activations(fitted.encoder_, images[:, :5, :5], 3, 1, 1)  # the first quadrant's pixels
    np.testing.assert_allclose(parts[:, 0], corner, rtol=1e-4)


def test_whitened_patches_are_white_and_columns_have_equal_spread(fitted, digits):
    """Columns of rotated components: variances within a factor of ten, where the components themselves span
    more. All of the components' variance is kept, so distances are."""
    features = fitted.transform(digits)
    assert features.shape == (60, 7)
    spread = features.std(0)
    assert spread.max() / spread.min() < 10
    values = np.linalg.eigvalsh(np.cov(features.T))
    assert values[-1] / values[0] > spread.max() ** 2 / spread.min() ** 2


def test_scale_and_type_of_pixels_do_not_matter(fitted, digits):
    other = PatchFeatures(**SMALL).fit((digits / 16.0).astype(np.float32))
    np.testing.assert_allclose(
        other.transform(digits / 16.0),
        fitted.transform(digits),
        rtol=0.02,
        atol=0.02 * fitted.transform(digits).std(),
    )
    np.testing.assert_array_equal(fitted.transform(digits.astype(np.uint8)), fitted.transform(digits))


def test_arrays_carry_all_that_was_learned(fitted, digits):
    again = PatchFeatures(**SMALL).with_arrays(fitted.to_arrays())
    np.testing.assert_array_equal(again.transform(digits), fitted.transform(digits))
    assert fingerprint(again) == fingerprint(fitted)
    assert not hasattr(clone(fitted), "encoder_")


def test_images_of_another_shape_and_images_too_small_are_refused(fitted, digits):
    with pytest.raises(ValueError, match=r"\(7, 8, 1\)"):
        fitted.transform(digits[:, 1:])
    with pytest.raises(ValueError, match="Lower size or pools"):
        PatchFeatures(size=8).fit(digits)
    with pytest.raises(ValueError, match="one colour"):
        PatchFeatures(size=3).fit(np.ones((5, 8, 8)))
    with pytest.raises(ValueError, match="num_centres"):
        PatchFeatures(num_centres=0).fit(digits)
