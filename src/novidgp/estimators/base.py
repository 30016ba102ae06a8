"""What the two estimators share: parameters, training, blocks of predictions, and model files."""

import abc
import warnings
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from novidgp import storage as persist
from novidgp.estimators.checks import (
    DTYPES,
    MEANS,
    SHARINGS,
    check_choice,
    check_features,
    check_flag,
    check_fraction,
    check_inference,
    check_integer,
    check_kernel,
    check_latent,
    explain_text,
)
from novidgp.inference import LATENT_METHODS, METHODS, Fitted, make_inference, presets
from novidgp.inference.base import stacked
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import DGP, Batch
from novidgp.numerics.scaling import Standardiser, hold_out, identity, pad_rows, standardiser
from novidgp.prediction.predictive import Predictive, predictives
from novidgp.training.loop import train

LARGEST_SEED = 2**31 - 1


def precision(dtype: str):
    """JAX's precision for this thread and this block only: no global switch."""
    return jax.enable_x64(dtype == "float64")


def starting_models(config: ModelConfig, inputs: np.ndarray, *, seed: int, starts: int) -> DGP:
    """The model to start from, or several of them on a leading axis: the first is the same in any case."""
    others = np.random.default_rng([seed, 3]).integers(LARGEST_SEED, size=starts - 1)
    models = [build_model(config, inputs, seed=int(number)) for number in (seed, *others)]
    return models[0] if starts == 1 else stacked(models)


class DGPEstimator(BaseEstimator, abc.ABC):
    """What the two estimators share: parameters, training, blocks of predictions, files."""

    _train_options: Mapping[str, Any] = {}
    """More arguments of `train`: the benchmarks watch a fit through `callbacks` and `chunk`."""

    def __init__(
        self,
        inference="novi",
        preset="default",
        num_layers=2,
        num_inducing=100,
        hidden_dim=None,
        kernel="rq",
        kernel_sharing="auto",
        mean="linear",
        likelihood="auto",
        whiten=True,
        latent_dim="auto",
        features=None,
        max_steps=1000,
        starts=1,
        batch_size=1000,
        num_predict_samples=100,
        validation_fraction=None,
        patience=None,
        inference_options=None,
        dtype="float32",
        random_state=None,
        verbose=None,
        checkpoint=None,
    ):
        self.inference = inference
        self.preset = preset
        self.num_layers = num_layers
        self.num_inducing = num_inducing
        self.hidden_dim = hidden_dim
        self.kernel = kernel
        self.kernel_sharing = kernel_sharing
        self.mean = mean
        self.likelihood = likelihood
        self.whiten = whiten
        self.latent_dim = latent_dim
        self.features = features
        self.max_steps = max_steps
        self.starts = starts
        self.batch_size = batch_size
        self.num_predict_samples = num_predict_samples
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.inference_options = inference_options
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    @abc.abstractmethod
    def fit(self, X, y):
        """Fit the model to rows `X` and targets `y`."""

    def save(self, path, extra: dict[str, Any] | None = None) -> None:
        """Write the fitted model to one file: arrays and JSON, no code.

        `extra` is any JSON-able dict to keep with it; `load_model` gives it back as `extra_`.
        """
        check_is_fitted(self)
        params = self.get_params(deep=False) | {"checkpoint": None}
        if not isinstance(self.random_state, Integral | None):
            params["random_state"] = None
        classes = getattr(self, "classes_", None)
        names = getattr(self, "feature_names_in_", None)
        metadata = {
            "estimator": type(self).__name__,
            "params": _plain(params),
            "config": self.config_._asdict(),
            "method": _plain(self._method),
            "seed": self.seed_,
            "n_iter": self.n_iter_,
            "fit_status": self.fit_status_,
            "fit_notes": list(self.fit_notes_),
            "n_features_in": self.n_features_in_,
            "feature_names_in": None if names is None else names.tolist(),
            "classes": None if classes is None else {"dtype": classes.dtype.str, "values": classes.tolist()},
            "target_ndim": self.target_ndim_,
            "extra": getattr(self, "extra_", None) if extra is None else extra,
        }
        arrays = persist.tree_to_arrays(self._fitted(), "fitted")
        arrays |= persist.tree_to_arrays(self.input_scaling_, "inputs")
        arrays |= persist.tree_to_arrays(self.target_scaling_, "targets")
        arrays |= {f"history/{name}": np.asarray(values) for name, values in self.history_.items()}
        persist.save(path, arrays, metadata)

    def _restore(self, arrays: dict[str, np.ndarray], metadata: dict[str, Any]) -> Self:
        """Become the fitted estimator that `save` wrote. Needs no data, only the shape of the model."""
        config = ModelConfig(**metadata["config"])
        method = metadata["method"]
        name, num_data, steps = method["name"], method["num_data"], method["steps"]
        starts = method.get("starts", 1)
        options = check_inference(name, method["options"], METHODS)
        width = metadata["n_features_in"]

        def start() -> Fitted:
            model = starting_models(config, np.zeros((1, width)), seed=0, starts=starts)
            inference = make_inference(name, num_data, steps, starts=starts, **options)
            batch = Batch(*(jnp.zeros((1, columns), config.dtype) for columns in (width, config.num_targets)))
            return inference.fitted(inference.init(model, batch, key=jax.random.key(0)))

        with precision(config.dtype):
            fitted = persist.arrays_to_tree(jax.eval_shape(start), arrays, "fitted")
        self.model_, self.posterior_, self.others_ = jax.tree.map(np.asarray, fitted)
        self.config_ = config
        self._method = method | {"options": options}
        self.input_scaling_ = Standardiser(arrays["inputs.shift"], arrays["inputs.scale"])
        self.target_scaling_ = Standardiser(arrays["targets.shift"], arrays["targets.scale"])
        self.history_ = {
            key.removeprefix("history/"): values
            for key, values in arrays.items()
            if key.startswith("history/")
        }
        self.n_features_in_ = width
        self.seed_ = metadata["seed"]
        self.n_iter_ = metadata["n_iter"]
        self.fit_status_ = metadata["fit_status"]
        self.fit_notes_ = tuple(metadata["fit_notes"])
        self.target_ndim_ = metadata["target_ndim"]
        self.extra_ = metadata["extra"]
        if metadata["feature_names_in"] is not None:
            self.feature_names_in_ = np.array(metadata["feature_names_in"], object)
        if metadata["classes"] is not None:
            self.classes_ = np.array(metadata["classes"]["values"], np.dtype(metadata["classes"]["dtype"]))
        return self

    def _check_parameters(self, likelihoods: tuple[str, ...]) -> dict[str, Any]:
        """Refuse bad parameters; the options of the inference method."""
        options = check_inference(self.inference, self.inference_options, METHODS)
        known_presets = presets(self.inference)
        check_choice("preset", self.preset, known_presets)
        options = known_presets[self.preset] | options
        check_choice("likelihood", self.likelihood, likelihoods)
        check_choice("kernel_sharing", self.kernel_sharing, SHARINGS)
        check_choice("mean", self.mean, MEANS)
        check_choice("dtype", self.dtype, DTYPES)
        check_kernel(self.kernel)
        counts = ("num_layers", "num_inducing", "max_steps", "starts", "batch_size", "num_predict_samples")
        for name in counts:
            check_integer(name, getattr(self, name))
        for name in ("hidden_dim", "patience"):
            check_integer(name, getattr(self, name), optional=True)
        check_fraction("validation_fraction", self.validation_fraction)
        check_flag("whiten", self.whiten)
        check_latent("latent_dim", self.latent_dim)
        check_features(self.features)
        return options

    def _check_inputs(self, X, *, y: Any = "no_validation", reset: bool) -> Any:
        try:
            return validate_data(
                self, X, y, reset=reset, dtype=np.float64, ensure_min_samples=2 if reset else 1
            )
        except ValueError as error:
            raise explain_text(error, "X") from None

    def _config(self, likelihood: str, *, num_targets: int, num_classes: int | None = None) -> ModelConfig:
        return ModelConfig(
            num_layers=int(self.num_layers),
            num_inducing=int(self.num_inducing),
            hidden_dim=None if self.hidden_dim is None else int(self.hidden_dim),
            kernel=self.kernel,
            kernel_sharing=self.kernel_sharing,
            mean=self.mean,
            likelihood=likelihood,
            whiten=bool(self.whiten),
            num_targets=num_targets,
            num_classes=num_classes,
            latent_dim=self._latent_dim(),
            features=check_features(self.features),
            dtype=self.dtype,
        )

    def _latent_dim(self) -> int:
        """`auto` is one latent variable for the methods that propose one, and none for the others."""
        return int(self.inference in LATENT_METHODS if self.latent_dim == "auto" else self.latent_dim)

    def _train(self, X, y, options: dict[str, Any], config: ModelConfig, *, scale_targets: bool) -> None:
        """Scale, build, train, and keep the result. `y` is `(n, t)`."""
        seed = int(check_random_state(self.random_state).randint(LARGEST_SEED))
        held_out = None
        if self.validation_fraction is not None:
            kept, held = hold_out(len(X), float(self.validation_fraction), seed)
            X, y, held_out = X[kept], y[kept], (X[held], y[held])
        if config.num_inducing > len(X):
            warnings.warn(
                f"num_inducing={self.num_inducing} exceeds the {len(X)} training rows; using {len(X)}.",
                UserWarning,
                stacklevel=3,
            )
            config = config._replace(num_inducing=len(X))
        inputs = standardiser(X)
        targets = standardiser(y) if scale_targets else identity(y.shape[1])
        rows = pad_rows(X, y) if len(X) <= self.batch_size else (X, y)
        num_data, steps, starts = len(rows[0]), int(self.max_steps), int(self.starts)

        def batch(X, y):
            return Batch(
                jnp.asarray(inputs.inputs(X), config.dtype), jnp.asarray(targets.targets(y), config.dtype)
            )

        def make(step_scale: float):
            return make_inference(
                self.inference, num_data, steps, starts=starts, step_scale=step_scale, **options
            )

        with precision(config.dtype):
            result = train(
                make,
                starting_models(config, inputs.inputs(X), seed=seed, starts=starts),
                batch(*rows),
                steps=steps,
                batch_size=num_data if len(X) <= self.batch_size else int(self.batch_size),
                seed=seed,
                validation=None if held_out is None else batch(*held_out),
                patience=None if held_out is None else self.patience,
                plateau=self.patience if held_out is None else None,
                checkpoint=self.checkpoint,
                resume=self.checkpoint is not None,
                progress=self.verbose,
                **self._train_options,
            )
        if result.status == "diverged":
            warnings.warn(
                f"Training diverged after {result.steps} steps ({'; '.join(result.notes)}); the model is the "
                "last finite one. Use dtype='float64', or lower the rates in inference_options.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.model_, self.posterior_, self.others_ = jax.tree.map(np.asarray, result.fitted)
        self.config_ = config
        self._method = {
            "name": self.inference,
            "num_data": num_data,
            "steps": steps,
            "starts": starts,
            "options": options,
        }
        self.input_scaling_ = inputs
        self.target_scaling_ = targets
        self.history_ = result.history
        self.seed_ = seed
        self.n_iter_ = int(result.steps)
        self.fit_status_ = result.status
        self.fit_notes_ = tuple(result.notes)

    def _fitted(self) -> Fitted:
        return Fitted(self.model_, self.posterior_, self.others_)

    def _blocks(self, X) -> Iterator[tuple[slice, Predictive]]:
        """Predictives of checked inputs, block by block. To be consumed within `precision`."""
        return predictives(
            self._fitted(),
            X,
            (self.input_scaling_, self.target_scaling_),
            int(self.num_predict_samples),
            key=jax.random.key(self.seed_),
        )

    def _collect(self, X, *functions: Callable[[Predictive, slice], np.ndarray]) -> list[np.ndarray]:
        """Each function of a block's predictive and of its rows, over all rows of raw `X`."""
        check_is_fitted(self)
        check_integer("num_predict_samples", self.num_predict_samples)
        X = self._check_inputs(X, reset=False)
        parts: list[list[np.ndarray]] = [[] for _ in functions]
        with precision(self.config_.dtype):
            for rows, predictive in self._blocks(X):
                for part, function in zip(parts, functions, strict=True):
                    part.append(function(predictive, rows)[: rows.stop - rows.start])
        return [np.concatenate(part) for part in parts]


def _plain(value: Any) -> Any:
    """A parameter as JSON knows it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
