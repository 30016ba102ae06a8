"""Deep Gaussian processes with the posterior you choose.

The estimators `DGPRegressor` and `DGPClassifier` follow scikit-learn. For work with JAX there is a functional
API: `build_dgp`, `fit` and `predict`, with the methods in `inference` and the parts of a model in `kernels`
and `likelihoods`.
"""

import gc
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from novidgp import distributed, features, inference
    from novidgp.estimators import DGPClassifier, DGPRegressor, load_model
    from novidgp.model import kernels, likelihoods
    from novidgp.model.build import build_dgp
    from novidgp.model.dgp import DGP, Batch
    from novidgp.model.layers import GPLayer
    from novidgp.numerics import stein
    from novidgp.posteriors.fitted import Fitted
    from novidgp.prediction.predictive import Predictive
    from novidgp.prediction.predictor import predict
    from novidgp.training.loop import FitResult, fit

    __version__: str

_HOMES = {
    "DGPClassifier": "novidgp.estimators",
    "DGPRegressor": "novidgp.estimators",
    "load_model": "novidgp.estimators",
    "DGP": "novidgp.model.dgp",
    "Batch": "novidgp.model.dgp",
    "GPLayer": "novidgp.model.layers",
    "build_dgp": "novidgp.model.build",
    "Fitted": "novidgp.posteriors.fitted",
    "FitResult": "novidgp.training.loop",
    "fit": "novidgp.training.loop",
    "Predictive": "novidgp.prediction.predictive",
    "predict": "novidgp.prediction.predictor",
}
_MODULES = {
    "distributed": "novidgp.distributed",
    "features": "novidgp.features",
    "inference": "novidgp.inference",
    "kernels": "novidgp.model.kernels",
    "likelihoods": "novidgp.model.likelihoods",
    "stein": "novidgp.numerics.stein",
}

__all__ = [
    "DGP",
    "Batch",
    "DGPClassifier",
    "DGPRegressor",
    "FitResult",
    "Fitted",
    "GPLayer",
    "Predictive",
    "__version__",
    "build_dgp",
    "distributed",
    "features",
    "fit",
    "inference",
    "kernels",
    "likelihoods",
    "load_model",
    "predict",
    "stein",
]


def __getattr__(name: str) -> Any:
    """Import on first use: `import novidgp` alone loads neither JAX nor NumPy, so the command starts at
    once. All that is imported stays: to look for garbage in it takes a seventh of the time."""
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("novidgp")
        except PackageNotFoundError:
            return "0+unknown"
    if name in _MODULES or name in _HOMES:
        enabled = gc.isenabled()
        gc.disable()
        try:
            module = importlib.import_module((_MODULES | _HOMES)[name])
        finally:
            if enabled:
                gc.enable()
        return module if name in _MODULES else getattr(module, name)
    raise AttributeError(f"module 'novidgp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
