"""Fingerprints: short texts that differ where data or transformers differ.

They key the cache of features, and a model file keeps that of its transformer. A fingerprint covers an
object's class by name and its state, but not the code of the class; of a function it covers the code.
"""

import inspect
from types import FunctionType
from typing import Any

import joblib
from sklearn.base import BaseEstimator


def fingerprint(value: Any) -> str | None:
    """The fingerprint of data or of a transformer; None where its state cannot be read.

    An object with a method `fingerprint()` answers for itself: what a network's features depend on is the
    contents of its file, not the path.
    """
    try:
        return joblib.hash(_state(value))
    except Exception:  # whatever an object's own pickling raises
        return None


def _state(value: Any) -> Any:
    """A value without what differs between sessions for no reason, such as a library's version."""
    own = getattr(value, "fingerprint", None)
    if callable(own) and not isinstance(value, type):
        return name_of(value), own()
    if isinstance(value, BaseEstimator) and not isinstance(value, type):
        return name_of(value), {key: _state(part) for key, part in sorted(vars(value).items())}
    if isinstance(value, FunctionType):
        return name_of(value), _code(value), _state(value.__defaults__), _closure(value)
    if isinstance(value, list | tuple):
        return [_state(part) for part in value]
    if isinstance(value, dict):
        return {key: _state(part) for key, part in value.items()}
    return value


def _code(function: FunctionType) -> Any:
    try:
        return inspect.getsource(function)
    except OSError:  # typed at a prompt
        return function.__code__.co_code


def _closure(function: FunctionType) -> list[Any]:
    return [_state(cell.cell_contents) for cell in function.__closure__ or ()]


def name_of(value: Any) -> str:
    """The full name of a function, or of an object's class."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"
