"""What the two estimators share: parameters, training and predictions."""

import abc
import operator
import warnings
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from novidgp.checks import (
    check_choice,
    check_flag,
    check_fraction,
    check_integer,
    check_number,
    check_path,
)
from novidgp.estimators import images
from novidgp.estimators.checks import (
    DTYPES,
    MEANS,
    SHARINGS,
    check_features,
    check_inducing,
    check_kernel,
    check_latent,
    check_likelihood,
    check_order,
    check_rows,
    explain_text,
)
from novidgp.estimators.saving import save_estimator
from novidgp.estimators.summary import summary_text
from novidgp.estimators.transformed import transformed
from novidgp.estimators.warm import goes_on
from novidgp.estimators.widening import check_wide
from novidgp.inference import METHODS, Method, make_method
from novidgp.local.class_layer import ClassLayer
from novidgp.local.judgement import LocalSettings
from novidgp.local.layer import LocalLayer
from novidgp.model.build import ModelConfig
from novidgp.model.dgp import DGP
from novidgp.numerics.compilation import use_compilation_cache
from novidgp.numerics.random import seed_key
from novidgp.numerics.sharding import check_devices
from novidgp.posteriors.fitted import Fitted
from novidgp.posteriors.wide import WideLayer
from novidgp.prediction.predictive import Predictive
from novidgp.prediction.predictor import Predictor, make_predictor
from novidgp.training.interrupts import deferred_signals
from novidgp.training.loop import ON_INTERRUPT, Callback

_ROWS_AT_ONCE = 8_192
"""Rows whose moments are held in memory together while predicting."""
_PREDICTORS: WeakKeyDictionary["DGPEstimator", tuple[tuple, Predictor]] = WeakKeyDictionary()
"""Of fitted estimators, with what they were made of. No attribute: a prediction changes none."""


class DGPEstimator(BaseEstimator, abc.ABC):
    """What the two estimators share: parameters, training and predictions."""

    model_: DGP
    posterior_: Any
    ensemble_: Fitted | None
    local_: LocalLayer | ClassLayer | None
    wide_: WideLayer | None
    config_: ModelConfig
    method_: Method
    input_scaling_: Any
    target_scaling_: Any
    history_: dict[str, np.ndarray]
    n_iter_: int
    num_data_: int
    fit_status_: str
    fit_notes_: tuple[str, ...]
    seed_: int
    prediction_seed_: int

    def __init__(
        self,
        *,
        inference="novi",
        preset="default",
        num_layers=2,
        layers=None,
        num_inducing=100,
        hidden_dim=None,
        kernel="rq",
        kernel_sharing="auto",
        mean="linear",
        likelihood="auto",
        whiten=True,
        latent_dim: int | str = "auto",
        features=None,
        local: bool | str | dict[str, Any] = "auto",
        wide: int | str | None = "auto",
        order=None,
        augment=None,
        max_steps=None,
        starts=1,
        batch_size=None,
        devices=None,
        num_predict_samples=100,
        validation_fraction=None,
        patience=None,
        inference_options=None,
        dtype="float32",
        random_state=None,
        warm_start=False,
        verbose=None,
        checkpoint=None,
        checkpoint_every=60.0,
        on_interrupt="raise",
        diagnose=False,
    ):
        self.inference = inference
        self.preset = preset
        self.num_layers = num_layers
        self.layers = layers
        self.num_inducing = num_inducing
        self.hidden_dim = hidden_dim
        self.kernel = kernel
        self.kernel_sharing = kernel_sharing
        self.mean = mean
        self.likelihood = likelihood
        self.whiten = whiten
        self.latent_dim = latent_dim
        self.features = features
        self.local = local
        self.wide = wide
        self.order = order
        self.augment = augment
        self.max_steps = max_steps
        self.starts = starts
        self.batch_size = batch_size
        self.devices = devices
        self.num_predict_samples = num_predict_samples
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.inference_options = inference_options
        self.dtype = dtype
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.on_interrupt = on_interrupt
        self.diagnose = diagnose

    @abc.abstractmethod
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: str | None = None,
        callbacks: Iterable[Callback] = (),
        chunk: int = 100,
    ) -> Self:
        """Fit the model to rows `X` and targets `y`."""

    def save(
        self, path: str | PathLike, extra: dict[str, Any] | None = None, *, without_rows: bool = False
    ) -> None:
        """Write the fitted model to one file: arrays and JSON, no code.

        `extra` is any JSON-able dict to keep with it; `load_model` gives it back as `extra_`. A model with a
        local layer (`local_`) takes its training rows into the file. `without_rows` leaves the layer out: the
        file then predicts as the deep GP alone.
        """
        check_is_fitted(self)
        check_path("path", path)
        check_flag("without_rows", without_rows)
        if without_rows and self.local_ is not None:
            warnings.warn(
                "without_rows=True leaves the local layer out of the file; a model loaded from it predicts "
                "as the deep GP alone. Fit with local=False to have the same model in both places.",
                UserWarning,
                stacklevel=2,
            )
        with deferred_signals():
            save_estimator(self, path, extra, without_rows=without_rows)

    def summary(self) -> None:
        """Print what the model is made of: layers with their shapes and inducing points, parameters, method,
        steps, and whether training rows are in it. Before `fit` it prints what the parameters say."""
        print(summary_text(self))

    def predictive(self, X: Any) -> Predictive:
        """The predictive distribution of the rows `X`: mean, std, quantiles, densities and draws of one
        propagation.

        It holds all rows' moments: 8 bytes a row and path for one target in single precision.
        """
        check_is_fitted(self)
        check_integer("num_predict_samples", self.num_predict_samples)
        return self._predict(self._check_inputs(transformed(self, X)))

    def _check_parameters(self, task: str) -> Method:
        """Refuse bad parameters; the inference method."""
        method = make_method(self.inference, images.image_parameters(self), preset=self.preset)
        check_likelihood(self.likelihood, task)
        check_choice("kernel_sharing", self.kernel_sharing, SHARINGS)
        check_choice("mean", self.mean, MEANS)
        check_choice("dtype", self.dtype, DTYPES)
        check_kernel(self.kernel)
        for name in ("num_layers", "starts", "num_predict_samples"):
            check_integer(name, getattr(self, name))
        check_inducing(self.num_inducing, images.num_layers(self))
        for name in ("hidden_dim", "patience", "max_steps", "batch_size"):
            check_integer(name, getattr(self, name), optional=True)
        check_devices(self.devices)
        if self.checkpoint is not None:
            check_path("checkpoint", self.checkpoint)
        check_number("checkpoint_every", self.checkpoint_every)
        check_choice("on_interrupt", self.on_interrupt, ON_INTERRUPT)
        check_fraction("validation_fraction", self.validation_fraction)
        check_flag("whiten", self.whiten)
        check_flag("diagnose", self.diagnose)
        check_flag("warm_start", self.warm_start)
        check_latent("latent_dim", self.latent_dim)
        check_features(self.features)
        check_order(self.order, task)
        check_wide(self.wide)
        return method

    def _check_inputs(self, X, *, y: Any = "no_validation", fitting: bool = False) -> Any:
        """Rows of numbers. A fit that goes on from another needs the same columns, as a prediction does."""
        reset = fitting and not goes_on(self)
        check_rows(X)
        if (found := images.image_inputs(self, X, y, reset=reset)) is not None:
            return found
        try:
            checked = validate_data(
                self, X, y, reset=reset, dtype=np.float64, ensure_min_samples=2 if fitting else 1
            )
        except (ValueError, TypeError) as error:
            raise explain_text(error, "X") from None
        self.image_shape_ = None
        return checked

    def _config(self, likelihood: str, *, num_targets: int, num_classes: int | None = None) -> ModelConfig:
        return ModelConfig(
            num_layers=int(images.num_layers(self)),
            num_inducing=check_inducing(self.num_inducing, images.num_layers(self)),
            hidden_dim=None if self.hidden_dim is None else int(self.hidden_dim),
            kernel=self.kernel,
            kernel_sharing=self.kernel_sharing,
            mean=self.mean,
            likelihood=likelihood,
            whiten=bool(self.whiten),
            num_targets=num_targets,
            num_classes=num_classes,
            latent_dim=self._local_dim(),
            features=check_features(self.features),
            dtype=self.dtype,
            image=self.image_shape_,
            layers=images.image_layers(self),
        )

    def _local_dim(self) -> int:
        """`auto` is one for the methods that propose local variables, none beside convolutional layers."""
        auto = METHODS[self.inference].uses_local_variable and self.layers is None
        return int(auto if self.latent_dim == "auto" else self.latent_dim)

    def _fit_local(
        self,
        X: np.ndarray,
        y: np.ndarray,
        weight: np.ndarray | None,
        settings: LocalSettings,
        rng: np.random.Generator,
    ) -> None:
        """Give the fitted model a local layer where it pays; `y` is scaled, `X` is not."""
        options = {"dtype": self.config_.dtype, "rng": rng, "weight": weight}
        self.local_, notes = self._local_layer(lambda rows: self._predict(X[rows]), y, settings, **options)
        self.fit_notes_ += notes

    @abc.abstractmethod
    def _local_layer(
        self,
        predict: Callable[[np.ndarray], Predictive],
        y: np.ndarray,
        settings: LocalSettings,
        **options: Any,
    ) -> Any:
        """A local layer or None, and notes on it; `predict` is the deep GP at training rows, by number."""

    def _fitted(self) -> Fitted:
        return Fitted(self.model_, self.posterior_, self.ensemble_)

    def _predictor(self) -> Predictor:
        """The predictor of this model, made once for all its predictions."""
        fitted, count = self._fitted(), int(self.num_predict_samples)
        source = *fitted, self.wide_, self.prediction_seed_, count
        kept = _PREDICTORS.get(self)
        if kept is not None and all(map(operator.is_, kept[0][:5], source[:5])) and kept[0][5] == count:
            return kept[1]
        use_compilation_cache()
        key = seed_key(self.prediction_seed_)
        predictor = make_predictor(fitted, num_paths=count, key=key, wide=self.wide_)
        _PREDICTORS[self] = source, predictor
        return predictor

    def _predict(self, X: np.ndarray) -> Predictive:
        """The predictive distribution of checked rows."""
        scalings = {"inputs": self.input_scaling_, "targets": self.target_scaling_}
        return self._predictor()(X, **scalings, local=self.local_)

    def _collect(self, X, *functions: Callable[[Predictive, slice], np.ndarray]) -> list[np.ndarray]:
        """Each function of a predictive and of the rows it is for, over all rows of raw `X`, in bounded
        memory."""
        check_is_fitted(self)
        check_integer("num_predict_samples", self.num_predict_samples)
        X = self._check_inputs(transformed(self, X))
        parts: list[list[np.ndarray]] = [[] for _ in functions]
        with deferred_signals() as signals:
            for start in range(0, len(X), _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                predictive = self._predict(X[rows])
                for part, function in zip(parts, functions, strict=True):
                    part.append(function(predictive, rows))
                signals.check()
        return [np.concatenate(part) for part in parts]
