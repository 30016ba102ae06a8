"""Residual networks of CIFAR-10 (He et al. 2016) as features, from published weights.

The weights are those of the usual PyTorch implementation, by its names (`layer1.0.conv1.weight`), in a
safetensors file: 3x3 convolutions without bias, batch norm, three groups of 16, 32 and 64 channels. Where a
group begins with a stride, the shortcut takes every second pixel and pads the new channels with zeros on both
sides. The mean over pixels gives 64 features, on which `linear` is the network's own softmax head.

Batch norm is folded into the convolutions. This is inference only: no gradient passes through.
"""

import functools
import hashlib
import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import Array, Float
from sklearn.base import BaseEstimator, TransformerMixin

from novidgp.features.images import check_images, unit_pixels
from novidgp.numerics.compilation import use_compilation_cache
from novidgp.numerics.forks import refuse_fork

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""The pixel statistics that the networks were trained with."""
_EPSILON = 1e-5
_GROUPS = ("layer1", "layer2", "layer3")


Numbers = Array | np.ndarray


class Convolution(NamedTuple):
    """A 3x3 convolution with its batch norm folded in."""

    weight: Float[Numbers, "3 3 i o"]
    bias: Float[Numbers, " o"]

    def __call__(self, images: Float[Array, "n h w i"], stride: int = 1) -> Float[Array, "n h2 w2 o"]:
        """Same-sized images, or half-sized with a stride of 2."""
        convolved = jax.lax.conv_general_dilated(
            images,
            jnp.asarray(self.weight),
            window_strides=(stride, stride),
            padding=((1, 1), (1, 1)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return convolved + self.bias


class ResNet(NamedTuple):
    """The first convolution, blocks of two convolutions in three groups, and the softmax head."""

    first: Convolution
    groups: tuple[tuple[tuple[Convolution, Convolution], ...], ...]
    weight: Float[Numbers, "64 c"]
    bias: Float[Numbers, " c"]


def residual_block(
    images: Float[Array, "n h w i"], first: Convolution, second: Convolution
) -> Float[Array, "n h2 w2 o"]:
    """`relu(conv(relu(conv(x))) + shortcut(x))`; a block that widens its input halves its size."""
    grown = second.weight.shape[-1] - images.shape[-1]
    stride = 2 if grown else 1
    inner = second(jax.nn.relu(first(images, stride)))
    shortcut = images[:, ::stride, ::stride]
    shortcut = jnp.pad(shortcut, ((0, 0), (0, 0), (0, 0), (grown // 2, grown // 2)))
    return jax.nn.relu(inner + shortcut)


@jax.jit
def _features(nets: tuple[ResNet, ...], images: Float[Array, "n 32 32 3"]) -> Float[Array, "n f"]:
    """The features of all nets, side by side."""
    images = (images - jnp.asarray(_MEAN, images.dtype)) / jnp.asarray(_STD, images.dtype)
    parts = []
    for net in nets:
        h = jax.nn.relu(net.first(images))
        for group in net.groups:
            for block in group:
                h = residual_block(h, *block)
        parts.append(jnp.mean(h, axis=(1, 2)))
    return jnp.concatenate(parts, axis=1)


class Source(NamedTuple):
    """A network, and the hash of the file that it came from."""

    net: ResNet
    digest: str


def read_resnet(path: str | PathLike) -> Source:
    """The network in a safetensors file. The number of blocks is read from the names."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"There is no file {file.absolute()}. Check paths.")
    return _read_version(file.absolute(), file.stat().st_mtime_ns)


@functools.lru_cache(maxsize=8)
def _read_version(file: Path, modified: int) -> Source:
    """A file is read once for each of its versions."""
    contents = file.read_bytes()
    try:
        arrays = safetensors.numpy.load(contents)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{file} is no safetensors file ({error}).") from None
    return Source(resnet_from_arrays(arrays, str(file)), hashlib.sha256(contents).hexdigest())


def resnet_from_arrays(arrays: Mapping[str, np.ndarray], source: str = "the arrays") -> ResNet:
    """The network of a PyTorch state dict; `source` is for messages."""

    def convolution(conv: str, norm: str) -> Convolution:
        weight = np.transpose(arrays[f"{conv}.weight"], (2, 3, 1, 0)).astype(np.float64)
        scale = arrays[f"{norm}.weight"] / np.sqrt(
            arrays[f"{norm}.running_var"].astype(np.float64) + _EPSILON
        )
        bias = arrays[f"{norm}.bias"] - arrays[f"{norm}.running_mean"] * scale
        return Convolution((weight * scale).astype(np.float32), bias.astype(np.float32))

    def group(name: str) -> tuple[tuple[Convolution, Convolution], ...]:
        found = {int(m[1]) for key in arrays if (m := re.match(rf"{name}\.(\d+)\.", key))}
        parts = [f"{name}.{index}" for index in sorted(found)]
        return tuple(
            (convolution(f"{part}.conv1", f"{part}.bn1"), convolution(f"{part}.conv2", f"{part}.bn2"))
            for part in parts
        )

    try:
        first = convolution("conv1", "bn1")
        groups = tuple(group(name) for name in _GROUPS)
        weight, bias = arrays["linear.weight"].T, arrays["linear.bias"]
    except KeyError as error:
        raise ValueError(
            f"{source} has no array {error.args[0]!r}: it is not the state dict of a CIFAR ResNet. Names are "
            "those of PyTorch, without the prefix 'module.'."
        ) from None
    if not all(groups):
        raise ValueError(f"{source} has no blocks in one of {', '.join(_GROUPS)}.")
    return ResNet(first, groups, weight, bias)


class CifarResNet(TransformerMixin, BaseEstimator):
    """Features of 32 x 32 colour images from one or several trained CIFAR ResNets.

    Parameters
    ----------
    paths : path, or a sequence of paths
        Safetensors files with the networks' weights, by the names of the usual PyTorch state dict. Several
        networks give 64 features each, side by side.
    batch_size : int, default=250
        Images that go through the networks together.
    """

    def __init__(self, paths: Any, *, batch_size: int = 250):
        self.paths = paths
        self.batch_size = batch_size

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Nothing is learned from X; the files are read, so that a missing one is found here."""
        self._sources()
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The features `(n, 64 x networks)` of images `(n, 32, 32, 3)`: integers 0 to 255, or 0 to 1."""
        refuse_fork()
        use_compilation_cache()
        images, nets = unit_pixels(check_images(X, shape=(32, 32, 3))), self._nets()
        size = int(self.batch_size)
        parts = [np.zeros((0, 64 * len(nets)), np.float32)]
        for start in range(0, len(images), size):
            block = images[start : start + size]
            padded = np.pad(block, ((0, size - len(block)), (0, 0), (0, 0), (0, 0)))
            parts.append(np.asarray(_features(nets, padded))[: len(block)])
        return np.concatenate(parts)

    def logits(self, X: Any) -> np.ndarray:
        """What every network's own head says, before the softmax: `(networks, n, classes)`."""
        return self.logits_of_features(self.transform(X))

    def logits_of_features(self, features: np.ndarray) -> np.ndarray:
        """`logits` where the features are known."""
        nets = self._nets()
        parts = np.split(np.asarray(features), len(nets), axis=1)
        return np.stack([part @ net.weight + net.bias for part, net in zip(parts, nets, strict=True)])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities `(n, classes)` of the networks' own softmax heads; their mean over several."""
        return np.asarray(jax.nn.softmax(self.logits(X), axis=-1)).mean(0)

    def fingerprint(self) -> list[str]:
        """What the features depend on: the files' contents."""
        return [source.digest for source in self._sources()]

    def _nets(self) -> tuple[ResNet, ...]:
        return tuple(source.net for source in self._sources())

    def _sources(self) -> list[Source]:
        paths = [self.paths] if isinstance(self.paths, str | PathLike) else list(self.paths)
        if not paths:
            raise ValueError("paths is empty; give the path of at least one safetensors file.")
        return [read_resnet(path) for path in paths]

    def __sklearn_is_fitted__(self) -> bool:
        return True
