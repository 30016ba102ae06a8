"""Checks of an estimator's parameters, one by one."""

import numpy as np
import pytest

from novidgp.estimators.checks import (
    check_features,
    check_kernel,
    check_latent,
    check_likelihood,
    check_quantiles,
    check_regression_targets,
    explain_text,
)
from novidgp.model.feature_map import FEATURE_MAP


def test_features_are_completed():
    assert check_features(None) is None
    assert check_features("mlp") == check_features({}) == FEATURE_MAP
    chosen = check_features({"width": np.int64(8), "trainable": np.False_})
    assert chosen == FEATURE_MAP | {"width": 8, "trainable": False}
    assert (type(chosen["width"]), type(chosen["trainable"])) == (int, bool)  # a file holds them as JSON


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, r"features\['width'\]=0 is too small"),
        ({"depth": None}, r"features\['depth'\] must be an integer"),
        ({"activation": "rellu"}, r"Did you mean 'relu'\?"),
        ({"trainable": 1}, r"features\['trainable'\] must be True or False"),
    ],
)
def test_features_are_refused_by_name(settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        check_features(settings)


def test_latent_variables_are_a_number_or_auto():
    for value in ("auto", 0, np.int64(2)):
        check_latent("latent_dim", value)
    for value in ("none", -1, 1.5, None):
        with pytest.raises((TypeError, ValueError), match="latent_dim"):
            check_latent("latent_dim", value)


def test_likelihoods_belong_to_a_task():
    check_likelihood("auto", "regression")
    check_likelihood("student-t", "regression")
    check_likelihood("softmax", "classification")
    with pytest.raises(ValueError, match="likelihood='softmax' is unknown"):
        check_likelihood("softmax", "regression")


def test_kernels_are_expressions():
    check_kernel("rq+matern12*rbf")
    with pytest.raises(ValueError, match=r"kernel='mattern12' is unknown.*in kernel='rq\+mattern12'"):
        check_kernel("rq+mattern12")


def test_quantile_levels_are_flat():
    assert check_quantiles(0.5).shape == ()
    np.testing.assert_array_equal(check_quantiles([0.1, 0.9]), [0.1, 0.9])


def test_targets_that_can_be_learned_from_pass():
    y = np.array([[1.0, np.nan], [2.0, 3.0], [np.nan, 4.0]])
    check_regression_targets(y, "gaussian")
    check_regression_targets(np.array([[0.0], [3.0]]), "poisson")
    tiny = 1e-300 * np.array([[1.0], [2.0]])
    check_regression_targets(tiny, "gaussian")


def test_only_errors_about_text_are_explained():
    other = ValueError("Input X contains NaN")
    assert explain_text(other, "X") is other
    text = explain_text(ValueError("could not convert string to float: 'red'"), "X")
    assert "OneHotEncoder" in str(text)
    assert "'red'" in str(text)
