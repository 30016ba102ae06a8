"""Scaling between the user's units and the model's."""

import numpy as np
import pytest

from novidgp.numerics.scaling import identity, standardiser


@pytest.mark.parametrize("unit", [1e-300, 1e-6, 1.0, 1e30, 1e300])
def test_scaling_survives_any_unit(unit):
    values = unit * np.random.default_rng(0).normal(3.0, 2.0, size=(50, 1))
    scaled = standardiser(values).inputs(values)
    np.testing.assert_allclose([scaled.mean(), scaled.std()], [0.0, 1.0], atol=1e-9)


def test_a_constant_column_carries_nothing():
    values = np.array([[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]])
    scaling = standardiser(values)
    np.testing.assert_array_equal(scaling.inputs(np.array([[7.0, 2.0]])), [[0.0, 0.0]])


def test_missing_targets_do_not_count_and_stay_missing():
    values = np.array([[1.0], [np.nan], [3.0]])
    np.testing.assert_allclose(standardiser(values).targets(values), [[-1.0], [np.nan], [1.0]])


def test_far_inputs_are_clipped_and_the_identity_is_one():
    scaling = standardiser(np.array([[-1.0], [1.0]]))
    assert scaling.inputs(np.array([[1e300]])) == 1e5
    values = np.array([[1.0, 7.0]])
    np.testing.assert_array_equal(identity(2).targets(values), values)
