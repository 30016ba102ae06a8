"""Numbers of inducing points, one for every layer."""

import numpy as np
import pytest

import novidgp
from novidgp import DGPRegressor
from novidgp.inference import METHODS

SMALL = {"max_steps": 2, "num_predict_samples": 8, "random_state": 0}


@pytest.mark.parametrize("options", [{}, {"mean": "zero"}, {"latent_dim": 1}])
def test_every_layer_has_its_own_number(curve, options, tmp_path):
    model = DGPRegressor(num_inducing=(5, 9), **SMALL, **options).fit(*curve)
    assert [layer.num_inducing for layer in model.model_.layers] == [5, 9]
    model.save(tmp_path / "model.novidgp")
    loaded = novidgp.load_model(tmp_path / "model.novidgp")
    np.testing.assert_array_equal(loaded.predict(curve[0]), model.predict(curve[0]))


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_them(curve, name):
    assert np.all(
        np.isfinite(DGPRegressor(inference=name, num_inducing=(5, 9), **SMALL).fit(*curve).predict(curve[0]))
    )


def test_a_tuple_of_equal_numbers_is_that_number(curve):
    models = [DGPRegressor(num_inducing=count, **SMALL).fit(*curve) for count in (6, (6, 6))]
    np.testing.assert_array_equal(*(model.predict(curve[0]) for model in models))


def test_more_than_rows_are_cut(curve):
    with pytest.warns(UserWarning, match="exceeds the 60 training rows"):
        model = DGPRegressor(num_inducing=(5, 90), **SMALL).fit(*curve)
    assert [layer.num_inducing for layer in model.model_.layers] == [5, 60]


@pytest.mark.parametrize(
    ("value", "words"), [((5, 5, 5), "has 3 numbers and num_layers=2"), ((5, 0), "too small")]
)
def test_wrong_tuples_are_refused(curve, value, words):
    with pytest.raises(ValueError, match=words):
        DGPRegressor(num_inducing=value, **SMALL).fit(*curve)
