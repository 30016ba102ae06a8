"""The small convolutional network against XLA's convolutions, and in a model file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp import DGPClassifier, load_model
from novidgp.model.conv_features import cnn_patches, make_conv_features
from novidgp.model.feature_map import NETWORKS

SETTINGS = NETWORKS["cnn"] | {"width": 3, "outputs": 4}
IMAGE = (13, 12, 2)


def images(count=5):
    return np.random.default_rng(0).standard_normal((count, *IMAGE))


@pytest.mark.usefixtures("x64")
def test_the_network_is_convolutions_relus_and_means_of_squares():
    x = images()
    rows = x.reshape(5, -1)
    network = make_conv_features(SETTINGS, IMAGE, rows, dtype=jnp.float64, key=jax.random.key(0))
    h = jnp.asarray(x)
    for cut, weight, bias in zip(network.patches, network.weights[:-1], network.biases[:-1], strict=True):
        taps = 0.1 * weight.reshape(cut.size, cut.size, -1, weight.shape[1])
        layout = ("NHWC", "HWIO", "NHWC")
        h = jax.lax.conv_general_dilated(h, taps, (1, 1), "VALID", dimension_numbers=layout)
        h = jnp.maximum(h + 0.1 * bias, 0.0)
        down, across = h.shape[1] // 2, h.shape[2] // 2
        h = h[:, : 2 * down, : 2 * across].reshape(5, down, 2, across, 2, -1).mean((2, 4))
    expected = h.reshape(5, -1) @ (0.1 * network.weights[-1]) + 0.1 * network.biases[-1]
    assert [weight.shape for weight in network.weights] == [(50, 3), (27, 6), (6, 4)]
    np.testing.assert_allclose(network(jnp.asarray(rows)), expected, atol=1e-12)
    features = network.evaluate(rows)
    np.testing.assert_allclose(features.mean(0), 0.0, atol=1e-10)
    np.testing.assert_allclose(features.std(0), 1.0, atol=1e-10)


def test_a_network_too_deep_for_the_image_is_refused():
    assert len(cnn_patches(SETTINGS, IMAGE)) == 2
    with pytest.raises(ValueError, match="depth=3 does not fit into images of 13 x 12"):
        cnn_patches(SETTINGS | {"depth": 3}, IMAGE)


def test_deep_kernel_learning_of_images_is_saved_and_refused_for_rows(tmp_path, capsys):
    x = images(40)
    y = (x.mean((1, 2, 3)) > 0).astype(int)
    small = {"network": "cnn", "width": 2, "depth": 1, "outputs": 3}
    settings = {"num_layers": 1, "num_inducing": 5, "max_steps": 2, "random_state": 0}
    model = DGPClassifier(features=small, inference="dsvi", **settings).fit(x, y)
    model.summary()
    assert "feature network" in capsys.readouterr().out
    model.save(tmp_path / "model.novidgp")
    again = load_model(tmp_path / "model.novidgp")
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    with pytest.raises(ValueError, match="features='cnn' is for images"):
        DGPClassifier(features="cnn", num_inducing=5).fit(x.reshape(40, -1), y)
    with pytest.raises(ValueError, match="network"):
        DGPClassifier(features={"network": "rnn"}, num_inducing=5).fit(x, y)
