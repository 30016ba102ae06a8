"""Where a deep GP starts: k-means inducing points, identity-like means, and scales that were measured to
matter.

The first hidden layer around a linear mean starts nearly deterministic (kernel variance 0.01); later hidden
layers start with 1/100 of that variance, so that a deep model starts close to a two-layer one. The noise
starts large (0.5 of the target's standard deviation), lengthscales grow with the square root of the input
width, and the kernels of separate outputs start from jittered lengthscales so that they can differ.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from sklearn.cluster import KMeans, MiniBatchKMeans

from novidgp.model.conv_features import ConvFeatureMap, make_conv_features
from novidgp.model.conv_start import Start, start_layers
from novidgp.model.dgp import DGP
from novidgp.model.feature_map import FeatureMap, make_feature_map
from novidgp.model.kernels import make_kernel
from novidgp.model.layers import GPLayer, Layer
from novidgp.model.likelihoods import LIKELIHOODS
from novidgp.model.local_variable import LocalVariable
from novidgp.model.means import Linear, Zero, linear_start, local_start
from novidgp.numerics.random import Streams
from novidgp.numerics.trees import on_device, stacked

_KMEANS_ROWS = 10_000
_DEEPER = 0.01
"""Kernel variance of hidden layers after the first, relative to the first's."""


class ModelConfig(NamedTuple):
    """Everything that decides the shape and the start of a DGP, as plain values that can be saved as JSON."""

    num_layers: int = 2
    num_inducing: int | tuple[int, ...] = 100
    """Of every layer, or of each in turn."""
    hidden_dim: int | None = None
    kernel: str = "rq"
    kernel_sharing: str = "auto"
    mean: str = "linear"
    likelihood: str = "gaussian"
    whiten: bool = True
    noise: float = 0.5
    count_rate: float = 1.0
    lengthscale: float = 0.5
    hidden_variance: float = 0.01
    num_targets: int = 1
    num_classes: int | None = None
    latent_dim: int = 0
    features: dict[str, Any] | None = None
    dtype: str = "float32"
    image: tuple[int, int, int] | None = None
    """Height, width and channels, where a row is an image."""
    layers: tuple[dict[str, Any], ...] | None = None
    """Convolutional layers, with all their settings, instead of dense ones."""

    def inducing_counts(self) -> tuple[int, ...]:
        """The number of inducing points of every layer."""
        count = self.num_inducing
        return (count,) * self.num_layers if isinstance(count, int) else tuple(count)


def config_from_json(values: dict[str, Any]) -> ModelConfig:
    """A configuration from what JSON keeps of it: lists stand for tuples."""
    tuples: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return ModelConfig(**tuples)


def inducing_points(
    inputs: np.ndarray, count: int, streams: Streams, weight: np.ndarray | None = None
) -> np.ndarray:
    """K-means centres of the inputs, each as often as its `weight` `(n,)` says; rows of the inputs where
    k-means has too few distinct ones. Equal rows are one with their weights' sum, so that a row of weight 2
    and two equal rows have the same centres."""
    rng = streams.numpy("inducing points")
    if len(inputs) > _KMEANS_ROWS:
        chosen = rng.choice(len(inputs), _KMEANS_ROWS, replace=False)
        inputs, weight = inputs[chosen], None if weight is None else weight[chosen]
    distinct, number = np.unique(inputs, axis=0, return_inverse=True)
    if len(distinct) <= count:
        extra = distinct[rng.integers(len(distinct), size=count - len(distinct))]
        spread = distinct.std(0) + 1e-3
        return np.concatenate([distinct, extra + 0.01 * spread * rng.standard_normal(extra.shape)])
    if weight is not None or len(distinct) < len(inputs):
        inputs, weight = distinct, np.bincount(number.ravel(), weight)
    method: Any = KMeans if len(inputs) <= 2_000 else MiniBatchKMeans
    centres = method(count, n_init=1, random_state=streams.integer("k-means"))
    return centres.fit(inputs, sample_weight=weight).cluster_centers_


def _separate(config: ModelConfig, index: int) -> bool:
    """Whether a layer's outputs have kernels of their own.

    `auto` gives them to the first hidden layer only: its basis is computed once for all posterior samples,
    whereas deeper down every kernel costs as much as the whole layer does with a shared one. Where the inputs
    are images, distances of hundreds of pixels are the cost, and all share one.
    """
    cheap = index == 0 and index < config.num_layers - 1 and config.image is None
    return config.kernel_sharing == "separate" or (config.kernel_sharing == "auto" and cheap)


def _with_noise(values: np.ndarray, columns: int, rng: np.random.Generator) -> np.ndarray:
    """Values with columns of a local variable beside them."""
    return np.column_stack([values, rng.standard_normal((len(values), columns))])


def build_model(
    config: ModelConfig, inputs: np.ndarray, *, key: PRNGKeyArray, row_weight: np.ndarray | None = None
) -> DGP:
    """A DGP at its start, for scaled training `inputs`, whose rows may have weights `(n,)`."""
    streams = Streams(key)
    rng = streams.numpy("layers")
    dtype = jnp.dtype(config.dtype)
    counts = config.inducing_counts()
    observation = LIKELIHOODS[config.likelihood]
    last = observation.num_functions(config.num_targets, config.num_classes)
    likelihood = observation.start(
        config.num_targets, noise=config.noise, count_rate=config.count_rate, dtype=dtype
    )
    if config.layers is not None:
        return DGP(_image_layers(config, inputs, last, streams), likelihood, config.whiten)
    starts = {count: inducing_points(inputs, count, streams, row_weight) for count in dict.fromkeys(counts)}
    features = None
    if config.features is not None:
        features = _feature_map(config, inputs, dtype=dtype, key=streams.key("features"))
        inputs = features.evaluate(inputs)
        starts = {count: features.evaluate(points) for count, points in starts.items()}
    width = inputs.shape[1]
    hidden = min(width, 30) if config.hidden_dim is None else config.hidden_dim
    sample = inputs[rng.permutation(len(inputs))[:_KMEANS_ROWS]]
    latent = config.latent_dim
    if latent:
        sample = _with_noise(sample, latent, rng)
        starts = {count: _with_noise(points, latent, rng) for count, points in starts.items()}
        hidden = hidden if config.hidden_dim is not None else hidden + latent

    layers = []
    for index in range(config.num_layers):
        final = index == config.num_layers - 1
        points = starts[counts[index]]
        outputs = last if final else hidden
        units = outputs if _separate(config, index) else 1
        weight = linear_start(sample, outputs)
        if latent and index == 0:
            weight = local_start(sample, outputs, latent)
        elif config.image is not None and index == 0:
            weight = weight / (np.sqrt(np.mean(np.var(sample @ weight, axis=0))) or 1.0)
        mean = Zero(outputs)
        if config.mean != "zero" and not final:
            mean = Linear(
                on_device(weight, dtype), on_device(np.zeros(outputs), dtype), config.mean == "linear-learned"
            )
        jitter = np.exp(0.3 * rng.standard_normal((units, points.shape[1]))) if units > 1 else 1.0
        lengthscale = (
            config.lengthscale * np.sqrt(points.shape[1]) * jitter * np.ones((units, points.shape[1]))
        )
        variance = np.full(units, 1.0 if final else _hidden_variance(config, index))
        layers.append(
            GPLayer(
                make_kernel(config.kernel, on_device(lengthscale, dtype), on_device(variance, dtype)),
                on_device(np.broadcast_to(points, (units, *points.shape)), dtype),
                mean,
                outputs,
            )
        )
        if config.mean != "zero":
            sample = sample @ weight
            starts = {count: points @ weight for count, points in starts.items()}
        elif not final:
            starts = {count: rng.standard_normal((count, outputs)) for count in starts}
    local = LocalVariable(latent) if latent else None
    return DGP(tuple(layers), likelihood, config.whiten, local, features)


def _feature_map(
    config: ModelConfig, inputs: np.ndarray, *, dtype: Any, key: PRNGKeyArray
) -> FeatureMap | ConvFeatureMap:
    """The network in front of the first layer."""
    settings = dict(config.features or {})
    if settings.get("network") != "cnn":
        return make_feature_map(settings, inputs, dtype=dtype, key=key)
    if config.image is None:
        raise ValueError("features='cnn' is for images, X of shape (rows, height, width[, channels]).")
    height, width, channels = config.image
    return make_conv_features(settings, (height, width, channels), inputs, dtype=dtype, key=key)


def _hidden_variance(config: ModelConfig, index: int) -> float:
    """The first kernel variance of a hidden layer."""
    if config.mean == "zero":
        return 1.0
    return config.hidden_variance * (_DEEPER if index else 1.0)


def _image_layers(
    config: ModelConfig, inputs: np.ndarray, outputs: int, streams: Streams
) -> tuple[Layer, ...]:
    """The layers of a convolutional model."""
    if config.image is None or config.layers is None:
        raise ValueError("layers are for images; pass image=(height, width, channels) beside them.")
    height, width, channels = config.image
    start = Start(
        config.kernel,
        config.mean,
        config.lengthscale,
        jnp.dtype(config.dtype),
        lambda rows, count: inducing_points(rows, count, streams),
        streams.numpy("layers"),
    )
    return start_layers(
        tuple(config.layers),
        (height, width, channels),
        inputs,
        start,
        counts=config.inducing_counts(),
        outputs=outputs,
        variances=[_hidden_variance(config, index) for index in range(config.num_layers - 1)],
    )


def starting_models(
    config: ModelConfig,
    inputs: np.ndarray,
    *,
    key: PRNGKeyArray,
    starts: int,
    row_weight: np.ndarray | None = None,
) -> DGP:
    """The model to start from, or several on a leading axis. The first is the same in both cases."""
    keys = [key, *(Streams(key).key("other starts", index) for index in range(1, starts))]
    models = [build_model(config, inputs, key=key, row_weight=row_weight) for key in keys]
    return models[0] if starts == 1 else stacked(models)


def build_dgp(inputs: np.ndarray, *, key: PRNGKeyArray, **settings: Any) -> DGP:
    """A DGP at its start, for scaled training `inputs` `(n, d)`. Settings are the fields of `ModelConfig`."""
    return build_model(ModelConfig(**settings), np.asarray(inputs), key=key)
