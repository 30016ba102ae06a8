"""Checks of options and data, made before anything is compiled.

Every message names the argument, what was got and what to do about it.
"""

import inspect
import numbers
from collections.abc import Callable, Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

import numpy as np

from novidgp.messages import unknown
from novidgp.model.feature_map import FEATURES
from novidgp.model.kernels import PROFILES, kernel_names
from novidgp.numerics.nets import ACTIVATIONS

MEANS = ("zero", "linear", "linear-learned")
SHARINGS = ("auto", "separate", "shared")
DTYPES = ("float32", "float64")
REGRESSION_LIKELIHOODS = ("auto", "gaussian", "student-t", "heteroscedastic", "poisson")
CLASSIFICATION_LIKELIHOODS = ("auto", "bernoulli", "softmax")
_INTERNAL_OPTIONS = ("num_data", "steps", "step_scale")
_MAY_BE_ZERO = ("depth", "critic_steps", "discriminator_steps", "window_samples")


def check_choice(name: str, value: Any, known: Iterable[str]) -> None:
    """Refuse a `value` that is not one of the `known` names."""
    known = list(known)
    if value not in known:
        raise ValueError(unknown(name, value, known))


def check_integer(name: str, value: Any, *, least: int = 1, optional: bool = False) -> None:
    """Refuse anything but an integer of at least `least` (or None, where `optional`)."""
    if optional and value is None:
        return
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        kind = "an integer or None" if optional else "an integer"
        raise TypeError(f"{name} must be {kind}, got {value!r} of type {type(value).__name__}.")
    if value < least:
        raise ValueError(f"{name}={value} is too small; it must be at least {least}.")


def check_latent(name: str, value: Any) -> None:
    """Refuse anything but a number of latent variables, 0 or more, or `auto`."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(
                f"{name}={value!r} is unknown. Pass a number of latent variables (0: none), or 'auto'."
            )
        return
    check_integer(name, value, least=0)


def check_features(value: Any) -> dict[str, Any] | None:
    """All settings of a feature network, from None (there is none), `mlp` or a dict of some of them."""
    if value is None:
        return None
    if isinstance(value, str):
        check_choice("features", value, ["mlp"])
        value = {}
    if not isinstance(value, Mapping):
        raise TypeError(f"features must be None, 'mlp' or a dict such as {{'width': 64}}, got {value!r}.")
    for name in value:
        if name not in FEATURES:
            raise ValueError(unknown("features key", name, FEATURES))
    settings = FEATURES | dict(value)
    for name in ("width", "depth", "outputs"):
        check_integer(f"features[{name!r}]", settings[name], optional=name == "outputs")
        settings[name] = None if settings[name] is None else int(settings[name])
    check_choice("features['activation']", settings["activation"], ACTIVATIONS)
    check_flag("features['trainable']", settings["trainable"])
    return settings | {"trainable": bool(settings["trainable"])}


def check_fraction(name: str, value: Any) -> None:
    """Refuse anything but None or a number strictly between zero and one."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0.0 < float(value) < 1.0:
        raise ValueError(f"{name}={value!r} must be None or a number between 0 and 1, such as 0.1.")


def check_flag(name: str, value: Any) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}.")


def check_kernel(spec: Any) -> None:
    """Refuse a kernel expression with an unknown name: profiles joined by `+` and `*`."""
    if not isinstance(spec, str):
        raise TypeError(f"kernel must be a name or an expression such as 'rq+matern12', got {spec!r}.")
    for name in kernel_names(spec):
        if name not in PROFILES:
            context = "" if name == spec else f" (in kernel={spec!r})"
            raise ValueError(unknown("kernel", name, PROFILES) + context)


def check_inference(method: Any, options: Any, methods: Mapping[str, Callable]) -> dict[str, Any]:
    """The options of the method called `method`, refused where its factory has no such keyword."""
    check_choice("inference", method, methods)
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(
            f"inference_options must be a dict of options for inference={method!r}, got {options!r}."
        )
    parameters = inspect.signature(methods[method]).parameters
    known = [name for name in parameters if name not in _INTERNAL_OPTIONS]
    checked = {}
    for name, value in options.items():
        if name not in known:
            raise ValueError(
                unknown("inference_options key", name, known) + f" (options of inference={method!r})"
            )
        value = tuple(value) if isinstance(value, list) else value
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                f"inference_options[{name!r}]={value!r} must be a plain value (number, string, tuple)."
            ) from None
        least = 0 if name in _MAY_BE_ZERO else 1
        check_annotated(f"inference_options[{name!r}]", value, parameters[name].annotation, least=least)
        if name.endswith("activation") and value is not None:
            check_choice(f"inference_options[{name!r}]", value, ACTIVATIONS)
        checked[name] = value
    return checked


def check_annotated(name: str, value: Any, annotation: Any, *, least: int) -> None:
    """Refuse a value that is none of the annotation's choices, or no flag or number where one is meant."""
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    if value is None and NoneType in kinds:
        return
    kind = kinds[0]
    if get_origin(kind) is Literal:
        check_choice(name, value, get_args(kind))
    elif kind is bool:
        check_flag(name, value)
    elif kind is int:
        check_integer(name, value, least=least)
    elif kind is float and (isinstance(value, bool) or not isinstance(value, numbers.Real)):
        raise TypeError(f"{name} must be a number, got {value!r}.")


def check_quantiles(q: Any) -> np.ndarray:
    """Quantile levels as a flat array, refused outside (0, 1)."""
    levels = np.asarray(q, np.float64)
    if levels.ndim > 1 or levels.size == 0:
        raise ValueError(f"q must be a number or a flat sequence of numbers, got {q!r}.")
    if not np.all((levels > 0) & (levels < 1)):
        raise ValueError(f"q={q!r} must lie strictly between 0 and 1; for a 90 % interval use [0.05, 0.95].")
    return levels


def check_regression_targets(y: np.ndarray, likelihood: str) -> None:
    """Refuse targets `(n, t)` that cannot be learned from: missing, constant, or (Poisson) no counts."""
    if y.shape[1] == 0:
        raise ValueError("y has 0 columns; pass one target value per row.")
    missing = np.isnan(y)
    if y.shape[1] == 1 and missing.any():
        raise ValueError(
            f"Input y contains NaN in {int(missing.sum())} of {len(y)} rows; drop these rows. "
            "(Missing targets are allowed where y has several columns.)"
        )
    for column in range(y.shape[1]):
        where = "y" if y.shape[1] == 1 else f"y[:, {column}]"
        observed = y[~missing[:, column], column]
        if observed.size == 0:
            raise ValueError(f"{where} holds only NaN; drop this target column.")
        if np.ptp(observed / max(np.abs(observed).max(), np.finfo(float).tiny)) == 0.0:
            raise ValueError(
                f"{where} is constant ({observed[0]:g} in every row); there is nothing to learn. "
                "Check that the right column was passed as the target."
            )
        if likelihood == "poisson" and (np.any(observed < 0) or np.any(observed != np.round(observed))):
            wrong = observed[(observed < 0) | (observed != np.round(observed))][0]
            raise ValueError(
                f"{where} holds {wrong:g}, but likelihood='poisson' needs counts: non-negative integers. "
                "Use likelihood='gaussian' or 'student-t' for real-valued targets."
            )


def explain_text(error: ValueError, argument: str) -> ValueError:
    """A clearer error where scikit-learn says that it could not convert a string."""
    detail = str(error)
    if "could not convert string" not in detail:
        return error
    cure = {
        "X": "Encode text columns first, for example with sklearn.preprocessing.OneHotEncoder.",
        "y": "Pass numbers, or use DGPClassifier for labels.",
    }
    return ValueError(f"{argument} holds text ({detail}). {cure[argument]}")
