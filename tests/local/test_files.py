"""Local layers as arrays and back."""

import dataclasses

import numpy as np
import pytest

from novidgp.local.class_layer import ClassLayer
from novidgp.local.files import layer_from_arrays, layer_to_arrays
from novidgp.local.gp import LocalGP
from novidgp.local.layer import LocalLayer, LocalTarget
from novidgp.local.rows import ConditionedGP, Rows
from novidgp.local.scales import t_scales
from novidgp.numerics.scaling import Standardiser
from novidgp.storage import ModelFileError


@pytest.fixture
def layer():
    rng = np.random.default_rng(0)
    rows = Rows(rng.normal(size=(9, 2)), rng.normal(size=9), np.ones(9), np.ones(9))
    gp = LocalGP(np.zeros(2), np.zeros(2), *(np.zeros(()) for _ in range(4)))
    target = LocalTarget(ConditionedGP(gp, rows), t_scales(4.0), 0.0)
    return LocalLayer(Standardiser(np.zeros(2), np.array([1.0, np.inf])), 4, (None, target))


def test_a_layer_comes_back_whole(layer):
    again = layer_from_arrays(layer_to_arrays(layer))
    assert again.neighbours == 4
    assert [target is None for target in again.targets] == [True, False]
    for name, array in layer_to_arrays(layer).items():
        np.testing.assert_array_equal(layer_to_arrays(again)[name], array)
    assert layer_from_arrays(layer_to_arrays(None)) is None


@pytest.fixture
def class_layer(layer):
    rows = dataclasses.replace(layer.targets[1].conditioned.rows, residuals=np.ones((9, 3)))
    conditioned = dataclasses.replace(layer.targets[1].conditioned, rows=rows)
    return ClassLayer(layer.features, 4, conditioned)


def test_a_layer_of_classes_comes_back_whole(class_layer):
    arrays = layer_to_arrays(class_layer)
    again = layer_from_arrays(arrays, 3)
    assert isinstance(again, ClassLayer)
    assert again.neighbours == 4
    for name, array in arrays.items():
        np.testing.assert_array_equal(layer_to_arrays(again)[name], array)
    with pytest.raises(
        ModelFileError, match=r"'local/classes/residuals' is not finite numbers of shape \[9, 4\]"
    ):
        layer_from_arrays(arrays, 4)
    with pytest.raises(ModelFileError, match="'local/classes/log_variance' is not"):
        layer_from_arrays(arrays | {"local/classes/log_variance": np.ones(3)}, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("local/1/residuals", np.ones(8)),
        ("local/1/inputs", np.full((9, 2), np.nan)),
        ("local/1/log_lengthscale", np.ones(3)),
        ("local/neighbours", np.asarray(0)),
        ("local/scale", np.ones(5)),
        ("local/1/scales", np.ones(5)),
        ("local/1/scales", np.zeros(100)),
        ("local/1/most_spread", np.asarray(1.5)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(layer, name, value):
    with pytest.raises(ModelFileError):
        layer_from_arrays(layer_to_arrays(layer) | {name: value})


def test_files_without_a_most_spread_have_a_half(layer):
    arrays = layer_to_arrays(layer)
    assert layer_from_arrays(arrays).targets[1].most_spread == 0.0
    del arrays["local/1/most_spread"]
    assert layer_from_arrays(arrays).targets[1].most_spread == 0.5


def test_files_with_one_factor_have_the_scales_of_a_t_distribution(layer):
    """As written before there were fitted scales; the layer's GP has 3.5 degrees of freedom."""
    arrays = layer_to_arrays(layer)
    del arrays["local/1/scales"]
    again = layer_from_arrays(arrays | {"local/1/calibration": np.asarray(1.5)})
    np.testing.assert_allclose(again.targets[1].scales, 1.5 * t_scales(3.5))
