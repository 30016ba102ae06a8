"""scikit-learn estimators."""

from pathlib import Path
from typing import Any

from novidgp import storage
from novidgp.estimators.classifier import DGPClassifier
from novidgp.estimators.regressor import DGPRegressor
from novidgp.estimators.saving import restore_estimator
from novidgp.training.interrupts import deferred_signals

_ESTIMATORS = {"DGPRegressor": DGPRegressor, "DGPClassifier": DGPClassifier}


def load_model(path: str | Path, *, features: Any = None) -> DGPRegressor | DGPClassifier:
    """The estimator that `save` wrote to `path`. It predicts exactly as it did, and no code from the file
    runs.

    A model whose inputs go through a transformer of yours needs it again: the `features_` of the model that
    was saved. `PatchFeatures` is in the file.
    """
    with deferred_signals():
        return _load(path, features)


def _load(path: str | Path, features: Any) -> DGPRegressor | DGPClassifier:
    arrays, metadata = storage.load(path)
    if str(metadata.get("estimator")) not in _ESTIMATORS:
        raise storage.ModelFileError(
            f"{path} holds no model (a checkpoint, perhaps). Give a file written by save()."
        )
    try:
        return restore_estimator(_ESTIMATORS, arrays, metadata, features)
    except storage.ModelFileError as error:
        raise storage.ModelFileError(f"{path}: {error}") from error
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError) as error:
        raise storage.ModelFileError(
            f"{path} was written by another version of novidgp and cannot be read by this one ({error!r})."
        ) from error


__all__ = ["DGPClassifier", "DGPRegressor", "load_model"]
