"""What fits to arrays and fits to files of rows have in common."""

import warnings
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from novidgp.checks import check_functions, check_integer
from novidgp.estimators.images import CONV_BUDGET
from novidgp.estimators.warm import STEPS
from novidgp.inference.base import Budget, Method
from novidgp.model.build import ModelConfig
from novidgp.model.dgp import DGP
from novidgp.numerics.random import Streams, seed_key
from novidgp.numerics.scaling import Standardiser
from novidgp.training.loop import Callback, FitResult


def budget_of(estimator: Any, method: Method, model: DGP, num_data: int, *, warm: bool = False) -> Budget:
    """Steps and rows of a step: the user's where given, else what the method says it needs. A fit that goes
    on from another (`warm`) needs few."""
    needed = method.budget(model, num_data) if estimator.layers is None else CONV_BUDGET
    needed = needed._replace(steps=STEPS) if warm else needed
    wanted = zip((estimator.max_steps, estimator.batch_size), needed, strict=True)
    return Budget(*(default if value is None else int(value) for value, default in wanted))


def limited(estimator: Any, config: ModelConfig, rows: int) -> ModelConfig:
    """The configuration with no more inducing points than rows."""
    if config.layers is not None or max(config.inducing_counts()) <= rows:
        return config
    warnings.warn(
        f"num_inducing={estimator.num_inducing} exceeds the {rows} training rows; using {rows}.",
        UserWarning,
        stacklevel=4,
    )
    fewer = tuple(min(count, rows) for count in config.inducing_counts())
    return config._replace(num_inducing=fewer if len(set(fewer)) > 1 else fewer[0])


def training_options(estimator: Any, callbacks: Iterable[Callback], chunk: int) -> dict[str, Any]:
    """What `training.fit` is told whatever the data are."""
    check_integer("chunk", chunk)
    return {
        "starts": int(estimator.starts),
        "devices": estimator.devices,
        "callbacks": check_functions("callbacks", callbacks),
        "diagnose": bool(estimator.diagnose),
        "checkpoint": estimator.checkpoint,
        "checkpoint_every": estimator.checkpoint_every,
        "resume": estimator.checkpoint is not None,
        "on_interrupt": estimator.on_interrupt,
        "progress": estimator.verbose,
        "chunk": chunk,
    }


def keep(
    estimator: Any,
    result: FitResult,
    method: Method,
    config: ModelConfig,
    budget: Budget,
    seed: int,
    num_data: int,
    inputs: Standardiser,
    targets: Standardiser,
) -> None:
    """Take over the result of a fit, and warn if it diverged."""
    if result.status == "diverged":
        warnings.warn(
            f"Training diverged after {result.steps} steps ({'; '.join(result.notes)}); the model is the "
            "last finite one. Use dtype='float64', or lower the rates in inference_options.",
            ConvergenceWarning,
            stacklevel=4,
        )
    estimator.input_scaling_, estimator.target_scaling_ = inputs, targets
    estimator.config_ = config
    estimator.method_ = method
    estimator.num_data_ = num_data
    estimator.seed_ = seed
    estimator.prediction_seed_ = Streams(seed_key(seed)).integer("predictions")
    estimator.extra_ = None
    estimator.model_, estimator.posterior_, estimator.ensemble_ = jax.tree.map(np.asarray, result.fitted)
    estimator.history_ = result.history
    estimator.n_iter_ = int(result.steps)
    estimator.fit_status_ = result.status
    estimator.fit_notes_ = tuple(result.notes)
    estimator.local_ = None
    estimator.wide_ = None
    if estimator.max_steps is None and result.status == "finished":
        rows = "all rows" if num_data <= budget.batch_size else f"{budget.batch_size:,} rows"
        note = f"{budget.steps:,} steps of {rows}: what {method.name} needs for {num_data:,} rows."
        estimator.fit_notes_ += (note,)
