"""CIFAR ResNets: a block against plain loops, the folding of batch norm, and the published accuracy."""

import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from novidgp.features import CifarResNet
from novidgp.features.resnet import Convolution, residual_block
from support.resnets import state_dict

DATA = Path(os.environ.get("NOVIDGP_DATA", "nowhere"))
CIFAR = Path(os.environ.get("NOVIDGP_CIFAR10", DATA / "cifar10.npz"))


def plain_convolution(images, weight, stride):
    """`(n, channels, h, w)` by a `(o, i, 3, 3)` kernel: nine products, in float64."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    height, width = images.shape[2:]
    total = 0.0
    for i in range(3):
        for j in range(3):
            part = padded[:, :, i : i + height : stride, j : j + width : stride]
            total = total + np.einsum("nihw,oi->nohw", part, weight[:, :, i, j].astype(np.float64))
    return total


def plain_norm(x, arrays, name):
    mean, variance, weight, bias = (
        arrays[f"{name}.{part}"].astype(np.float64)[:, None, None]
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / np.sqrt(variance + 1e-5) * weight + bias


def plain_block(x, arrays, name, stride):
    h = np.maximum(
        plain_norm(plain_convolution(x, arrays[f"{name}.conv1.weight"], stride), arrays, f"{name}.bn1"), 0
    )
    h = plain_norm(plain_convolution(h, arrays[f"{name}.conv2.weight"], 1), arrays, f"{name}.bn2")
    quarter = (h.shape[1] - x.shape[1]) // 2
    shortcut = np.pad(x[:, :, ::stride, ::stride], ((0, 0), (quarter, quarter), (0, 0), (0, 0)))
    return np.maximum(h + shortcut, 0)


def plain_features(images, arrays):
    """The network as the PyTorch code says it, channels first."""
    x = (images / 255.0 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    h = plain_convolution(np.transpose(x, (0, 3, 1, 2)), arrays["conv1.weight"], 1)
    h = np.maximum(plain_norm(h, arrays, "bn1"), 0)
    for group in (1, 2, 3):
        h = plain_block(h, arrays, f"layer{group}.0", 1 if group == 1 else 2)
    return h.mean((2, 3))


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    for seed, path in enumerate(paths):
        safetensors.numpy.save_file(state_dict(seed), path)
    return paths


def images(count=3):
    return np.random.default_rng(1).integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_residual_block_is_the_plain_computation(stride):
    """Sums of 300 float32 products of order one: 1e-5."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 4, 8, 8))
    outputs = 4 * stride
    first, second = (
        rng.standard_normal((outputs, width, 3, 3)).astype(np.float32) / 6 for width in (4, outputs)
    )
    bias = rng.standard_normal((2, outputs)).astype(np.float32)
    h = np.maximum(plain_convolution(x, first, stride) + bias[0][:, None, None], 0)
    h = plain_convolution(h, second, 1) + bias[1][:, None, None]
    quarter = (outputs - 4) // 2
    shortcut = np.pad(x[:, :, ::stride, ::stride], ((0, 0), (quarter, quarter), (0, 0), (0, 0)))
    layers = [
        Convolution(np.transpose(weight, (2, 3, 1, 0)), b)
        for weight, b in zip((first, second), bias, strict=True)
    ]
    found = residual_block(np.transpose(x, (0, 2, 3, 1)).astype(np.float32), *layers)
    expected = np.transpose(np.maximum(h + shortcut, 0), (0, 2, 3, 1))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_features_and_heads_are_those_of_the_plain_networks_side_by_side(files):
    X = images()
    net = CifarResNet(files, batch_size=2)  # the last block is padded
    features = net.transform(X)
    assert features.shape == (3, 128)
    for index, part in enumerate(np.split(features, 2, axis=1)):
        arrays = state_dict(index)
        expected = plain_features(X, arrays)
        np.testing.assert_allclose(part, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
        np.testing.assert_allclose(
            net.logits_of_features(features)[index],
            part @ arrays["linear.weight"].T + arrays["linear.bias"],
            rtol=1e-5,
        )
    probabilities = net.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(net.transform(X / 255.0), net.transform((X / 255.0).astype(np.float32)))


def test_the_fingerprint_is_of_the_contents_and_not_of_the_path(files, tmp_path):
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(files[0].read_bytes())
    assert CifarResNet(copy).fingerprint() == CifarResNet([files[0]]).fingerprint()
    assert CifarResNet(files[0]).fingerprint() != CifarResNet(files[1]).fingerprint()


def test_bad_images_and_files_are_refused(files, tmp_path):
    net = CifarResNet(files[0])
    with pytest.raises(ValueError, match=r"\(28, 28, 1\).*\(32, 32, 3\)"):
        net.transform(np.zeros((2, 28, 28), np.uint8))
    with pytest.raises(ValueError, match="Flat rows become images"):
        net.transform(np.zeros((2, 3072), np.uint8))
    with pytest.raises(ValueError, match="Divide by 255"):
        net.transform(255.0 * np.ones((1, 32, 32, 3)))
    with pytest.raises(ValueError, match="NaN"):
        net.transform(np.full((1, 32, 32, 3), np.nan))
    with pytest.raises(FileNotFoundError, match="no file"):
        CifarResNet(tmp_path / "absent.safetensors").fit()
    safetensors.numpy.save_file({"w": np.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=r"no array 'conv1.weight'"):
        CifarResNet(tmp_path / "other.safetensors").fit()
    with pytest.raises(ValueError, match="paths is empty"):
        CifarResNet([]).fit()


@pytest.mark.slow
@pytest.mark.optimised
@pytest.mark.parametrize(("depth", "accuracy"), [(20, 0.9165), (56, 0.9295)])
def test_published_weights_reach_their_accuracy_on_cifar_10(depth, accuracy):
    """The first 2,000 test images. One image is 0.05 %; float32 sums may tip one at a border."""
    weights = DATA / f"cifar10_resnet{depth}.safetensors"
    if not (weights.exists() and CIFAR.exists()):
        pytest.skip("needs cifar10_resnet*.safetensors in NOVIDGP_DATA and cifar10.npz (or NOVIDGP_CIFAR10)")
    with np.load(CIFAR) as data:
        X, y = data["X_test"][:2000], data["y_test"][:2000]
    found = CifarResNet(weights).predict_proba(X).argmax(1)
    assert abs(np.mean(found == y) - accuracy) < 0.0011
