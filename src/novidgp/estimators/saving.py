"""Estimators to files and back. Loading needs no data, only the shape of the model, and runs no code.

A file holds training rows only where the model has a local layer, which is made of them.
"""

import dataclasses
from collections.abc import Mapping
from numbers import Integral
from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from novidgp import storage
from novidgp.estimators.contents import check_contents
from novidgp.features.files import transformer_from_file, transformer_to_file
from novidgp.inference import METHODS, Method, prepare
from novidgp.local.files import layer_from_arrays, layer_to_arrays
from novidgp.model.build import ModelConfig, config_from_json, starting_models
from novidgp.model.dgp import Batch
from novidgp.numerics.compilation import precision
from novidgp.numerics.forks import refuse_fork
from novidgp.numerics.scaling import Standardiser
from novidgp.posteriors.fitted import Fitted
from novidgp.wide.files import wide_from_arrays, wide_to_arrays


def save_estimator(
    estimator: Any, path: str | PathLike, extra: dict[str, Any] | None, *, without_rows: bool = False
) -> None:
    """Write a fitted estimator to `path`, with a JSON-able `extra`; `without_rows` leaves the local layer
    out."""
    params = estimator.get_params(deep=False) | {"checkpoint": None}
    transformer_arrays, transformer = transformer_to_file(estimator.features_)
    if transformer is not None:
        params["features"] = None
    if not isinstance(estimator.random_state, Integral | None):
        params["random_state"] = None
    classes = getattr(estimator, "classes_", None)
    names = getattr(estimator, "feature_names_in_", None)
    metadata = {
        "layout": 2,
        "estimator": type(estimator).__name__,
        "params": _plain(params),
        "config": estimator.config_._asdict(),
        "method": {
            "name": estimator.method_.name,
            "options": _plain(dataclasses.asdict(estimator.method_)),
            "num_data": estimator.num_data_,
            "steps": estimator.n_iter_,
            "starts": int(estimator.starts),
        },
        "seed": estimator.seed_,
        "prediction_seed": estimator.prediction_seed_,
        "n_iter": estimator.n_iter_,
        "fit_status": estimator.fit_status_,
        "fit_notes": list(estimator.fit_notes_),
        "n_features_in": estimator.n_features_in_,
        "feature_names_in": None if names is None else names.tolist(),
        "classes": None if classes is None else {"dtype": classes.dtype.str, "values": classes.tolist()},
        "target_ndim": estimator.target_ndim_,
        "transformer": transformer,
        "extra": getattr(estimator, "extra_", None) if extra is None else extra,
    }
    fitted = Fitted(estimator.model_, estimator.posterior_, estimator.ensemble_)
    arrays = storage.tree_to_arrays(fitted, "fitted")
    arrays |= storage.tree_to_arrays(estimator.input_scaling_, "inputs")
    arrays |= storage.tree_to_arrays(estimator.target_scaling_, "targets")
    arrays |= transformer_arrays
    arrays |= {f"history/{name}": np.asarray(values) for name, values in estimator.history_.items()}
    arrays |= wide_to_arrays(estimator.wide_)
    if not without_rows:
        arrays |= layer_to_arrays(estimator.local_)
    storage.save(path, arrays, metadata)


def restore_estimator(
    estimators: Mapping[str, type],
    arrays: Mapping[str, np.ndarray],
    metadata: dict[str, Any],
    features: Any = None,
) -> Any:
    """The fitted estimator that `save_estimator` wrote: one of the classes `estimators`, by name.

    `features` is the transformer that its inputs go through, where the file does not hold it.
    """
    refuse_fork()
    if metadata.get("layout", 1) == 1:
        arrays, metadata = _from_layout_1(arrays, metadata)
    check_contents(arrays, metadata)
    estimator = estimators[metadata["estimator"]](**metadata["params"])
    estimator.features_ = transformer_from_file(arrays, metadata.get("transformer"), features)
    if estimator.features_ is not None:
        estimator.features = estimator.features_
    config, method = config_from_json(metadata["config"]), metadata["method"]
    estimator.config_ = config
    estimator.method_ = METHODS[method["name"]](**_present_options(method))
    estimator.num_data_ = method["num_data"]
    template = _template(
        config,
        estimator.method_,
        method["num_data"],
        method["steps"],
        method["starts"],
        metadata["n_features_in"],
    )
    with precision(config.dtype):
        fitted = storage.arrays_to_tree(template, arrays, "fitted")
    estimator.model_, estimator.posterior_, estimator.ensemble_ = jax.tree.map(np.asarray, fitted)
    estimator.local_ = layer_from_arrays(arrays, config.num_classes)
    estimator.wide_ = wide_from_arrays(arrays, estimator.model_.layers[-1])
    estimator.input_scaling_ = Standardiser(arrays["inputs.shift"], arrays["inputs.scale"])
    estimator.target_scaling_ = Standardiser(arrays["targets.shift"], arrays["targets.scale"])
    estimator.history_ = {
        key.removeprefix("history/"): values for key, values in arrays.items() if key.startswith("history/")
    }
    estimator.n_features_in_ = metadata["n_features_in"]
    estimator.image_shape_ = config.image
    estimator.seed_ = metadata["seed"]
    estimator.prediction_seed_ = metadata["prediction_seed"]
    estimator.n_iter_ = metadata["n_iter"]
    estimator.fit_status_ = metadata["fit_status"]
    estimator.fit_notes_ = tuple(metadata["fit_notes"])
    estimator.target_ndim_ = metadata["target_ndim"]
    estimator.extra_ = metadata["extra"]
    if metadata["feature_names_in"] is not None:
        estimator.feature_names_in_ = np.array(metadata["feature_names_in"], object)
    if metadata["classes"] is not None:
        stored = metadata["classes"]
        estimator.classes_ = np.array(stored["values"], np.dtype(stored["dtype"]))
    return estimator


def _template(
    config: ModelConfig, method: Method, num_data: int, steps: int, starts: int, width: int
) -> Fitted:
    """The structure, shapes and types of what a method fits to a model of `width` inputs."""

    key = jax.random.key(0)

    def start() -> Fitted:
        model = starting_models(config, np.zeros((1, width)), key=key, starts=starts)
        inference = prepare(method, num_data, steps, starts=starts)
        batch = Batch(*(jnp.zeros((1, columns), config.dtype) for columns in (width, config.num_targets)))
        return inference.fitted(inference.init(model, batch, key=key))

    with precision(config.dtype):
        return jax.eval_shape(start)


_RENAMED_OPTIONS = {
    "hidden_scale": "initial_hidden_std",
    "final_scale": "initial_final_std",
    "conjugate_rate": "statistics_rate",
    "compact": "output_limit",
    "clip": "hyperparameter_range",
}
_RENAMED_ARRAYS = {"fitted.others.": "fitted.ensemble.", "model.features.": "model.feature_map."}


def _present_options(method: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a method in a file, as this version knows them: NOVI once kept snapshots of small data
    by itself, and could open by L-BFGS."""
    options = {name: value for name, value in method["options"].items() if name != "opening_steps"}
    if method["name"] == "novi" and options.get("snapshots") is None:
        options["snapshots"] = method["num_data"] <= 2000
    return options


def _from_layout_1(
    arrays: Mapping[str, np.ndarray], metadata: dict[str, Any]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """A file of novidgp 0.1 as 0.2 would have written it, as far as predictions are concerned.

    NOVI was one method with switches then. Its generator decides what was fitted; switches that are gone
    decided only how. Options that 0.1 ignored in silence are left out.
    """
    method = metadata["method"]
    stored = _present_options(method)
    options = {_RENAMED_OPTIONS.get(option, option): value for option, value in stored.items()}
    name = method["name"]
    if name == "novi" and options.get("generator") == "implicit":
        name = "novi-paper"
    if "last_layer" in options:
        options["last_layer"] = "gradient" if options["last_layer"] == "gradient" else "auto"
    config = dict(metadata["config"])
    config["count_rate"] = config.pop("rate")
    kept = _accepted(METHODS[name], options)
    renamed = {}
    for key, value in arrays.items():
        for old, new in _RENAMED_ARRAYS.items():
            key = key.replace(old, new)
        renamed[key] = value
    return renamed, metadata | {
        "config": config,
        "prediction_seed": metadata["seed"],
        "method": method | {"name": name, "options": kept, "starts": method.get("starts", 1)},
    }


def _accepted(method: type[Method], options: dict[str, Any]) -> dict[str, Any]:
    """The options that a method knows, without those that have no effect."""
    kept: dict[str, Any] = {}
    for field in dataclasses.fields(method):
        if field.name not in options:
            continue
        try:
            method(**kept, **{field.name: options[field.name]})
        except ValueError:
            continue
        kept[field.name] = options[field.name]
    return kept


def _plain(value: Any) -> Any:
    """A parameter as JSON knows it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
