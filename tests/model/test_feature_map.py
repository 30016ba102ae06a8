"""The feature network in front of the first layer: how it starts, what trains it, and that it travels."""

import jax
import numpy as np
import pytest

from novidgp import DGPClassifier, DGPRegressor, load_model
from novidgp.estimators.checks import check_features
from novidgp.model.build import ModelConfig, build_model, inducing_points
from novidgp.numerics.random import Streams

QUICK = {"num_layers": 1, "num_inducing": 5, "max_steps": 3, "num_predict_samples": 5, "random_state": 0}


def wave(rows, seed):
    """A wave along a direction that no axis follows, in six dimensions."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 6))
    return X, np.sin(2.0 * X @ np.array([1, -1, 1, -1, 1, -1]) / np.sqrt(6)) + 0.05 * rng.standard_normal(
        rows
    )


@pytest.mark.parametrize("outputs", [None, 2, 9])
def test_features_start_standardised_and_inducing_points_lie_among_them(outputs):
    X = np.random.default_rng(0).standard_normal((50, 4)) * [1.0, 2.0, 0.5, 1.0] + 1.0
    settings = check_features({"outputs": outputs})
    model = build_model(
        ModelConfig(num_inducing=6, features=settings, dtype="float32"), X, key=jax.random.key(3)
    )
    values = model.feature_map.evaluate(X)
    assert values.shape == (50, outputs or 4)
    np.testing.assert_allclose(values.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(values.std(0), 1.0, atol=1e-4)
    centres = model.feature_map.evaluate(inducing_points(X, 6, Streams(jax.random.key(3))))
    np.testing.assert_allclose(model.layers[0].inducing[0], centres, atol=1e-6)


@pytest.mark.parametrize("inference", ["dsvi", "novi"])
def test_trained_features_move_and_frozen_ones_stay(inference):
    X, y = wave(40, 0)
    for trainable in (True, False):
        model = DGPRegressor(inference=inference, features={"width": 8, "trainable": trainable}, **QUICK)
        model.fit(X, y)
        settings = check_features(model.features)
        start = build_model(
            ModelConfig(num_layers=1, num_inducing=5, features=settings),
            model.input_scaling_.inputs(X),
            key=Streams(jax.random.key(model.seed_)).key("model"),
        )
        moved = jax.tree.map(lambda a, b: np.any(a != b), model.model_.feature_map, start.feature_map)
        assert all(jax.tree.leaves(moved)) if trainable else not any(jax.tree.leaves(moved))


def test_deep_kernel_learning_finds_a_direction_that_no_lengthscale_can():
    X, y = wave(300, 1)
    X_test, y_test = wave(300, 2)
    settings = {"inference": "dsvi", "num_layers": 1, "num_inducing": 40, "max_steps": 400, "random_state": 0}
    errors = [
        np.sqrt(np.mean((DGPRegressor(features=f, **settings).fit(X, y).predict(X_test) - y_test) ** 2))
        for f in (None, "mlp")
    ]
    assert errors[1] < 0.6 * errors[0]


def test_saved_features_predict_as_they_did(tmp_path):
    X, y = wave(40, 0)
    options = {"width": 8, "depth": 1, "activation": "prelu", "outputs": 2}
    model = DGPClassifier(features=options, latent_dim=1, **QUICK | {"num_layers": 2}).fit(X, y > 0)
    model.save(tmp_path / "m.novidgp")
    again = load_model(tmp_path / "m.novidgp")
    assert again.features == options
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("mpl", r"features='mpl' is unknown. Did you mean 'mlp'\?"),
        ({"widht": 3}, r"features key='widht' is unknown. Did you mean 'width'\?"),
        ({"width": 0}, r"features\['width'\]=0 is too small"),
        ({"activation": "tnh"}, r"features\['activation'\]='tnh' is unknown. Did you mean 'tanh'\?"),
        (64, "features must be None, 'mlp', 'cnn', a dict"),
        ({"trainable": "no"}, r"features\['trainable'\] must be True or False, got 'no'"),
    ],
)
def test_bad_settings_are_named(features, message):
    X, y = wave(10, 0)
    with pytest.raises((ValueError, TypeError), match=message):
        DGPRegressor(features=features).fit(X, y)


@pytest.mark.parametrize(
    ("latent_dim", "message"),
    [
        (-1, "latent_dim=-1 is too small"),
        ("two", "latent_dim='two' is unknown. Pass a number of latent variables"),
        (1.5, "latent_dim must be an integer, got 1.5"),
    ],
)
def test_bad_latent_dims_are_named(latent_dim, message):
    X, y = wave(10, 0)
    with pytest.raises((ValueError, TypeError), match=message):
        DGPRegressor(latent_dim=latent_dim).fit(X, y)
