"""Deep Gaussian process regression as a scikit-learn estimator.

`__init__` only stores. `fit` checks everything before anything is compiled, scales inputs and targets by the
training rows, trains, and keeps what prediction needs. Predictions are in the user's units.
"""

from collections.abc import Iterable
from typing import Any, Self

import jax
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from novidgp.checks import check_integer
from novidgp.estimators.arrays import fit_arrays
from novidgp.estimators.base import DGPEstimator
from novidgp.estimators.checks import (
    check_quantiles,
    check_regression_targets,
    explain_text,
    refuse_dates,
    seed_of,
    weighted_rows,
)
from novidgp.estimators.sources import ArrayRows, TableRows, row_source
from novidgp.estimators.streaming import fit_rows, note_source, open_rows, refuse_options
from novidgp.estimators.transformed import fit_transformer
from novidgp.inference import Method
from novidgp.local.choice import Paths, fit_local_layer
from novidgp.model.likelihoods import LIKELIHOODS
from novidgp.training.loop import Callback


class DGPRegressor(RegressorMixin, DGPEstimator):
    """Deep Gaussian process regression, with one or several targets.

    Inputs are rows of numbers, or images `(n, height, width)` or `(n, height, width, channels)`. They and the
    targets are scaled inside, by the training rows only, images channel by channel. All parameters are
    keyword-only. They are in four groups: the inference method, the model, the training, and the rest.

    Parameters
    ----------
    inference : str, default="novi"
        The inference method, a name in `novidgp.inference.METHODS`.
    preset : str, default="default"
        `"paper"` makes `novi` the published algorithm, which is the method `novi-paper`.
    inference_options : dict, default=None
        Options of the method: the fields of its class, such as `novidgp.inference.NOVI`.
    num_layers : int, default=2
        GP layers. One layer is a sparse GP.
    layers : {None, "conv"} or list of dict, default=None
        Convolutional layers for images, instead of dense ones: `"conv"` has `num_layers` of them, which suit
        the images' size. A list describes each: `{"kind": "conv"}` with some of `size` (of a patch, 5),
        `stride` (1), `maps` (feature maps, 10) and `pool` (mean over so many pixels, 1), and a last
        `{"kind": "sum"}` with some of `size`, `stride` and `location` (whether the place of a patch counts,
        True).
    num_inducing : int or tuple of int, default=100
        Inducing points of every layer, or of each in turn: `(100, 300)`. They are cheapest in the last.
    hidden_dim : int, default=None
        Width of hidden layers. None is the number of features, at most 30.
    kernel : str, default="rq"
        `rq`, `rbf`, `matern12`, `matern32`, `matern52`, or an expression such as `"rq+matern12"`.
    kernel_sharing : {"auto", "separate", "shared"}, default="auto"
        One kernel per output, or one per layer. `auto` is separate in the first hidden layer, where that is
        cheap, and shared for images.
    mean : {"linear", "linear-learned", "zero"}, default="linear"
        Mean functions of hidden layers.
    likelihood : str, default="auto"
        `gaussian` (which is `auto`), `student-t`, `heteroscedastic` or `poisson` (counts).
    whiten : bool, default=True
        Whether inducing outputs are whitened.
    latent_dim : int or "auto", default="auto"
        Local variables beside the inputs, for densities with several modes. `auto` is 1 for the methods that
        propose them (`iwvi`, `iwvi-dreg`) and 0 for the others.
    features : {None, "mlp"}, dict, transformer or function, default=None
        `mlp`: a network in front of the first layer (deep kernel learning). A dict has some of `width`,
        `depth`, `activation`, `outputs` (the number of features) and `trainable`. An object with `transform`,
        or a function: what it makes of X, of any shape, is what the model sees. If it has a `fit` and is not
        fitted, a copy of it is, to the training rows.
    local : bool, "auto" or dict, default="auto"
        A local last layer: a GP on what the deep GP's mean leaves, seen through the training rows nearest
        to a row. `auto` keeps it where it improves the log density of rows that are left out, and tells in
        `fit_notes_`; it needs the `gaussian` likelihood, or classes, and 200 rows. True or a dict keep it in
        any case. A dict has some of `neighbours` (64) and `steps` (64). A model with this layer holds its
        training rows.
    wide : int, "auto" or None, default="auto"
        A wide last layer, for classes: after training, hidden layers held still, the last layer is solved
        once more with so many inducing points. It needs 200 rows, `starts=1` and one kernel for all classes.
        `auto` is 2,000, or half of the rows, for 1,000 images and more, where that improves on the last layer
        as trained, and `fit_notes_` tells; none otherwise.
    order : {None, "time"}, default=None
        `time`: the rows are in the order of time, or of groups, and rows to come will follow them. Columns
        such as a date, in which neighbouring rows are alike, are then left out where the last tenth of the
        rows is predicted better without, and `fit_notes_` names them. It needs 1,000 rows, in memory.
    augment : {None, "shift", "flip", "shift+flip"}, default=None
        What every step does to the images of its batch: shift them by a few pixels, mirror half of them.
    max_steps : int, default=None
        Training steps. None is what the method needs for so many rows, and `fit_notes_` tells the number: for
        `novi` with Gaussian noise 400 up to 2,000 rows and 700 beyond, with other likelihoods 600 and 1000;
        with convolutional layers 2000; else 1000.
    starts : int, default=1
        Models trained side by side from different starts, whose mixture predicts. Two take twice the time.
    batch_size : int, default=None
        Rows of a step. None is what the method needs: for `novi` 256 up to 2,000 rows, all of up to 320, 64
        images with convolutional layers, else 1000.
    devices : None, int or "all", default=None
        How many of JAX's devices (of every process, where there are several) share the work: the starts,
        where each can have equally many, or the rows of every step. None is one. The model is the same but
        for rounding.
    validation_fraction : float, default=None
        Share of the rows held out to choose the best model.
    patience : int, default=None
        Chunks of 100 steps without progress after which to stop: on the held-out rows, or of the training
        loss without them.
    checkpoint : path, default=None
        A file to save the run to, and to resume from where it exists.
    checkpoint_every : float, default=60
        Seconds between two writes of that file. It is also written when the run ends or is interrupted.
    on_interrupt : {"raise", "return"}, default="raise"
        What Ctrl-C does: raise KeyboardInterrupt, or end the fit with the best model so far and a warning.
    diagnose : bool, default=False
        Whether to measure what the method can tell of its fit after every chunk: for `novi` the Stein
        discrepancy and the Fisher divergence, in `history_`. It compiles a program of its own.
    num_predict_samples : int, default=100
        Posterior paths of a prediction.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the model.
    random_state : int, Generator, RandomState or None, default=None
        Equal seeds give equal models.
    warm_start : bool, default=False
        Whether a second `fit` goes on from the first, with more rows or the same: the model, its posterior
        and its scalings stay, and `max_steps=None` is 50 steps. Columns, targets or classes, and the
        parameters of the model must be the same. The local layer is made anew.
    verbose : bool, default=None
        Progress on stderr. None shows a bar at a terminal; True also a line every ten seconds where there is
        none.

    Attributes
    ----------
    model_ : DGP
        The fitted model.
    posterior_ : Posterior
        The posterior over its inducing outputs.
    ensemble_ : Fitted or None
        Further models and posteriors that predictions are a mixture over, on a leading axis: snapshots from
        the course of training and other starts.
    features_ : object or None
        The transformer that the model's inputs go through, fitted.
    wide_ : WideLayer or None
        The wide last layer.
    local_ : LocalLayer or None
        The local last layer, with the training rows in it.
    history_ : dict of arrays
        `loss` and other scalars of every step; `chunk_step`, `seconds` and more for every chunk.
    n_iter_ : int
        Steps done.
    fit_status_ : str
        How training ended: `finished`, `early-stopped`, `plateau`, `interrupted` or `diverged`.
    fit_notes_ : tuple of str
        What happened during training, in words.
    method_ : Method
        The inference method with all its options.
    n_features_in_ : int
        Number of columns of the training inputs; of an image, pixels times channels; with a transformer,
        of its features.
    image_shape_ : tuple of int or None
        Height, width and channels, where the inputs were images.
    feature_names_in_ : array of str
        Names of these columns, if they had names.
    """

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
        """Fit to rows `X` `(n, d)`, or images, and targets `y` `(n,)` or `(n, t)`; some of several targets
        may be NaN.

        A row of `sample_weight` `(n,)` 2 counts as two equal rows, and one of weight 0 is left out.
        Callbacks see a `Progress` after every `chunk` steps and stop the fit by returning True.

        Rows may stay on disk: `fit("big.parquet", target="y")` takes a Parquet or CSV file, a directory or a
        pattern of such files; `fit(X, y)` also a `numpy.memmap`, or any object whose `X[numbers]` are rows.
        """
        method = self._check_parameters("regression")
        source = row_source(X, y, target, "regression", features=self.features)
        if source is not None:
            return self._fit_source(source, method, sample_weight, callbacks=callbacks, chunk=chunk)
        X = fit_transformer(self, X, y)
        X = self._check_inputs(X, y=None if y is None else "no_validation", fitting=True)
        y = self._check_targets(X, y)
        self.target_ndim_ = y.ndim
        X, y, weight = weighted_rows(X, y.reshape(len(y), -1), sample_weight)
        likelihood = "gaussian" if self.likelihood == "auto" else self.likelihood
        check_regression_targets(y, likelihood)
        config = self._config(likelihood, num_targets=y.shape[1])
        scale_targets = LIKELIHOODS[likelihood].scales_targets
        if not scale_targets:
            config = config._replace(count_rate=max(float(np.nanmean(y)), 1e-3))
        options = {"scale_targets": scale_targets, "callbacks": callbacks, "chunk": chunk}
        fit_arrays(self, X, y, method, config, weight=weight, **options)
        return self

    def _fit_source(
        self, source: TableRows | ArrayRows, method: Method, sample_weight: Any, **options: Any
    ) -> Self:
        """Fit to rows that stay on disk."""
        refuse_options(self, sample_weight)
        likelihood = "gaussian" if self.likelihood == "auto" else self.likelihood
        kind = LIKELIHOODS[likelihood]

        def checked(y):
            refusal = kind.refusal(y[:, 0])
            if refusal is not None:
                raise ValueError(f"the target in {source.name} holds {refusal}")
            return y

        file = open_rows(source, checked, dtype=self.dtype, scale_targets=kind.scales_targets)
        config = self._config(likelihood, num_targets=1)
        if not kind.scales_targets:
            config = config._replace(count_rate=max(float(file.rows[:, file.num_inputs].mean()), 1e-3))
        self.target_ndim_ = 1
        fit_rows(self, file, method, config, **options)
        note_source(self, source)
        return self

    def _local_layer(self, predict, y, settings, **options):
        def paths(rows: np.ndarray) -> Paths:
            predictive = predict(rows)
            assert predictive.columns is not None
            return Paths(*predictive.moments, predictive.noise_variance(), predictive.columns)

        most_freedom = 2.0 * self.model_.layers[-1].num_inducing
        return fit_local_layer(paths, y, settings, most_freedom=most_freedom, **options)

    def predict(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predictive mean `(n,)` or `(n, t)`, and with `return_std` the standard deviation of y beside it."""
        if not return_std:
            return self._shaped(self._collect(X, lambda predictive, _: predictive.mean())[0])
        mean, std = self._collect(
            X, lambda predictive, _: predictive.mean(), lambda predictive, _: predictive.std()
        )
        return self._shaped(mean), self._shaped(std)

    def predict_quantiles(self, X: Any, q: Any) -> np.ndarray:
        """Predictive quantiles at the levels `q`: `(n, len(q))`, or `(n, len(q), t)` for 2-d targets.

        A single number `q` gives `(n,)` or `(n, t)`.
        """
        levels = check_quantiles(q)
        (values,) = self._collect(X, lambda predictive, _: predictive.quantile(levels.reshape(-1)))
        values = values[:, 0] if levels.ndim == 0 else values
        return values if self.target_ndim_ == 2 else values[..., 0]

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draws from the predictive: `(n, n_samples)`, or `(n, t, n_samples)` for 2-d targets."""
        check_integer("n_samples", n_samples)
        key = jax.random.key(seed_of(random_state))
        draws = np.moveaxis(self.predictive(X).sample(int(n_samples), key=key), 0, -1)
        return draws if self.target_ndim_ == 2 else draws[:, 0]

    def log_density(self, X: Any, y: Any) -> np.ndarray:
        """`log p(y | X)` of every row, `(n,)`, in the units of y; joint over targets, NaN left out."""
        check_is_fitted(self)
        y = self._check_targets(X, y)
        columns = self.config_.num_targets
        if (y.shape[1] if y.ndim == 2 else 1) != columns:
            raise ValueError(
                f"y has shape {y.shape}, but the model was fitted to {columns} target column(s)."
            )
        y = y.reshape(-1, columns)
        return self._collect(X, lambda predictive, rows: predictive.log_prob(y[rows]))[0]

    def _check_targets(self, X, y) -> np.ndarray:
        refuse_dates(y, "y")
        try:
            y = check_array(
                y,
                ensure_2d=False,
                dtype=np.float64,  # pyright: ignore[reportArgumentType]
                ensure_all_finite="allow-nan",  # pyright: ignore[reportArgumentType]
                input_name="y",
                estimator=self,
            )
        except (ValueError, TypeError) as error:
            raise explain_text(error, "y") from None
        if y.ndim > 2:
            raise ValueError(f"y has shape {y.shape}; it must be (rows,) or (rows, targets).")
        check_consistent_length(X, y)
        return y

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values if self.target_ndim_ == 2 else values[:, 0]

    def __sklearn_tags__(self):
        """Several targets are fine."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
