"""Model files."""

from pathlib import Path

from novidgp import storage as persist
from novidgp.estimators.classifier import DGPClassifier
from novidgp.estimators.regressor import DGPRegressor

_ESTIMATORS = {"DGPRegressor": DGPRegressor, "DGPClassifier": DGPClassifier}


def load_model(path: str | Path) -> DGPRegressor | DGPClassifier:
    """The estimator that `save` wrote to `path`: predicts exactly as it did. Runs no code from the file."""
    arrays, metadata = persist.load(path)
    if metadata.get("estimator") not in _ESTIMATORS:
        raise persist.ModelFileError(
            f"{path} holds no model (a checkpoint, perhaps). Give a file written by save()."
        )
    try:
        return _ESTIMATORS[metadata["estimator"]](**metadata["params"])._restore(arrays, metadata)
    except (KeyError, TypeError, AttributeError) as error:
        raise persist.ModelFileError(
            f"{path} was written by another version of novidgp and cannot be read by this one ({error!r})."
        ) from error
