"""Checks of single arguments. Every message names the argument, what was got and what to do about it."""

import math
import numbers
from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

import numpy as np

from novidgp.messages import unknown


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


def check_number(name: str, value: Any, *, least: float = 0.0, most: float = math.inf) -> None:
    """Refuse anything but a finite number between `least` and `most`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    if not (math.isfinite(value) and least <= float(value) <= most):
        limits = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
        raise ValueError(f"{name}={value!r} must be a finite number, {limits}.")


def check_fraction(name: str, value: Any) -> None:
    """Refuse anything but None or a number strictly between zero and one."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0.0 < float(value) < 1.0:
        raise ValueError(f"{name}={value!r} must be None or a number between 0 and 1, such as 0.1.")


def check_path(name: str, value: Any) -> None:
    """Refuse anything but the path of a file."""
    if not isinstance(value, str | PathLike):
        raise TypeError(f"{name} must be the path of a file, got {value!r}.")


def check_functions(name: str, values: Any) -> tuple[Callable[..., Any], ...]:
    """Several functions as a tuple; anything else is refused."""
    found = tuple(values) if isinstance(values, Iterable) else None
    if found is None or not all(map(callable, found)):
        raise TypeError(f"{name} must be a list of functions, got {values!r}.")
    return found


def check_flag(name: str, value: Any) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}.")
