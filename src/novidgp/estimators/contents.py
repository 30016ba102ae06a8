"""Whether a model file's metadata and arrays belong together, before anything of their size is made.

A checksum proves that a file is what somebody wrote, not that it makes sense.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from novidgp.model.build import ModelConfig, config_from_json
from novidgp.model.image_layers import check_layers, layer_patches
from novidgp.model.likelihoods import LIKELIHOODS
from novidgp.storage import ModelFileError
from novidgp.training.run import Status

_TASKS = {"DGPRegressor": "regression", "DGPClassifier": "classification"}
_LAYER = re.compile(r"fitted\.model\.layers\[\d+\]\.inducing")
_ENSEMBLE = "fitted.ensemble."
_COMPUTED_WITH = ("fitted.", "local/", "wide/")
_LOGARITHM = re.compile(r"[./]log_\w+(\[\d+\])?$")
_SEEDS = ("seed", "prediction_seed")


def check_contents(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any]) -> None:
    """Refuse a model file whose parts contradict each other."""
    config = config_from_json(metadata["config"])
    _check_task(metadata, config)
    _check_numbers(metadata)
    _check_sizes(arrays, metadata, config)
    _check_values(arrays)


def _check_task(metadata: Mapping[str, Any], config: ModelConfig) -> None:
    estimator, classes = metadata["estimator"], metadata["classes"]
    task = LIKELIHOODS[config.likelihood].task
    if _TASKS[estimator] != task:
        raise ModelFileError(f"{estimator} is not for the likelihood {config.likelihood!r} in it.")
    count = None if classes is None else len(classes["values"])
    if count != config.num_classes or (count is None) != (task == "regression"):
        raise ModelFileError(f"{estimator} has {count} class labels and a model for {config.num_classes}.")


def _check_numbers(metadata: Mapping[str, Any]) -> None:
    method = metadata["method"]
    numbers = {name: (metadata[name], 0) for name in (*_SEEDS, "n_iter")}
    numbers |= {name: (method[name], 1) for name in ("num_data", "steps", "starts")}
    for name, (value, least) in numbers.items():
        if type(value) is not int or not least <= value < 2**63:
            raise ModelFileError(f"{name}={value!r} is not an integer of at least {least}.")
    if any(metadata[name] >= 2**32 for name in _SEEDS):
        raise ModelFileError("a seed is too large.")
    if metadata["fit_status"] not in get_args(Status) or metadata["target_ndim"] not in (1, 2):
        raise ModelFileError(f"fit_status or target_ndim is unknown ({metadata['fit_status']!r}).")


def _check_sizes(arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any], config: ModelConfig) -> None:
    """Everything that decides the size of a model, against the arrays that are there."""
    layers = sorted(filter(_LAYER.fullmatch, arrays), key=lambda name: (len(name), name))
    counts = config.inducing_counts() if config.num_layers == len(layers) else ()
    width, targets = metadata["n_features_in"], config.num_targets
    found: dict[str, tuple[Any, Any]] = {
        "num_layers": (config.num_layers, len(layers)),
        "num_inducing": (sorted(counts), sorted(arrays[name].shape[1] for name in layers)),
        "n_features_in": ([(width,)] * 2, [arrays[f"inputs.{part}"].shape for part in ("shift", "scale")]),
        "num_targets": ([(targets,)] * 2, [arrays[f"targets.{part}"].shape for part in ("shift", "scale")]),
    }
    if config.image is not None:
        found["image"] = (math.prod(config.image), width)
    if config.layers is not None:
        found["layers"] = _layer_widths(config, [arrays[name].shape for name in layers])
    elif config.hidden_dim is not None and len(layers) > 1:
        found["hidden_dim"] = (config.hidden_dim, arrays[layers[1]].shape[-1])
    names = metadata["feature_names_in"]
    if names is not None:
        found["feature_names_in"] = (len(names), width)
    for name, (stated, seen) in found.items():
        if stated != seen:
            raise ModelFileError(f"{name} does not match the arrays ({stated} stated, {seen} found).")
    total = sum(array.size for array in arrays.values())
    members = 1 + max((len(arrays[name]) for name in arrays if name.startswith(_ENSEMBLE)), default=0)
    network = config.features or {"width": 0, "depth": 0}
    weights = network["width"] * max(1, (network["depth"] - 1) * network["width"])
    if metadata["method"]["starts"] > members or max(weights, config.latent_dim) > total:
        raise ModelFileError("starts, features or latent_dim asks for more than the arrays hold.")


def _layer_widths(config: ModelConfig, inducing: list[tuple[int, ...]]) -> tuple[Any, Any]:
    """Columns of inducing patches as the layers' descriptions have them, and as they are in the arrays."""
    layers = check_layers(config.layers)
    if config.image is None or not isinstance(layers, tuple) or len(layers) != len(inducing):
        raise ModelFileError("layers do not match the images or the arrays.")
    height, width, channels = config.image
    stated = [cut.width for cut in layer_patches(layers, (height, width, channels))]
    stated[-1] += 2 * layers[-1]["location"]
    return stated, [shape[-1] for shape in inducing]


def _check_values(arrays: Mapping[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        if name.startswith("history/"):
            continue
        scale = name.endswith(".scale") and name.startswith(("inputs.", "targets."))
        allowed = np.isfinite(array) | (array == np.inf if name == "inputs.scale" else False)
        if not allowed.all() or (scale and not (array > 0).all()):
            kind = "positive" if scale else "finite"
            raise ModelFileError(f"array {name!r} holds values that are not {kind} numbers.")
        if name.startswith(_COMPUTED_WITH):
            _check_range(name, array)


def _check_range(name: str, array: np.ndarray) -> None:
    """Prediction squares what a model holds, and the exponentials of what it holds as logarithms."""
    if array.dtype.kind != "f":
        return
    with np.errstate(over="ignore", under="ignore"):
        logarithm = _LOGARITHM.search(name) is not None
        squares = np.exp(2.0 * array) if logarithm else np.square(array)
    if not np.isfinite(squares).all() or (logarithm and not (squares > 0).all()):
        raise ModelFileError(f"array {name!r} holds values that are out of range: {array.dtype} overflows.")
