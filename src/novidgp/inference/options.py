"""Options of inference methods: declared as dataclass fields, checked against their annotations."""

import dataclasses
import inspect
import math
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from novidgp.checks import check_choice, check_flag, check_integer, check_number


def option(default: Any, *, least: float | None = None, most: float = math.inf) -> Any:
    """A field with limits of its own. Without it integers are at least 1 and other numbers at least 0."""
    return dataclasses.field(default=default, metadata={"least": least, "most": most})


def option_names(method: Any) -> list[str]:
    """The names of a method's options, in the order of its fields."""
    return [field.name for field in dataclasses.fields(method)]


def check_options(options: Any) -> None:
    """Refuse a value that does not fit its field: a Literal's choices, a flag, an integer or a number."""
    hints = _annotations(type(options))
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if isinstance(value, list):
            value = tuple(value)
            object.__setattr__(options, field.name, value)
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                f"{field.name}={value!r} must be a plain value (number, string, tuple)."
            ) from None
        _check(field.name, value, hints[field.name], field.metadata)


def refuse_idle(options: Any, names: Iterable[str], because: str) -> None:
    """Refuse options that were set although they have no effect."""
    defaults = {field.name: field.default for field in dataclasses.fields(options)}
    for name in names:
        value = getattr(options, name)
        if value != defaults[name]:
            raise ValueError(f"{name}={value!r} has no effect with {because}. Leave it out.")


def _annotations(kind: type) -> dict[str, Any]:
    """The annotations of a class and of its bases. (`get_type_hints` has none for a `Method`.)"""
    classes = reversed(kind.__mro__)
    return {k: v for base in classes for k, v in inspect.get_annotations(base, eval_str=True).items()}


def _check(name: str, value: Any, annotation: Any, limits: Any) -> None:
    union = get_origin(annotation) in (Union, UnionType)  # `Literal[...] | None` is the first kind
    kinds = get_args(annotation) if union else (annotation,)
    if value is None and NoneType in kinds:
        return
    kind = kinds[0]
    least = limits.get("least")
    if get_origin(kind) is Literal:
        check_choice(name, value, get_args(kind))
    elif kind is bool:
        check_flag(name, value)
    elif kind is int:
        check_integer(name, value, least=1 if least is None else least)
    elif kind is float:
        check_number(name, value, least=0.0 if least is None else least, most=limits.get("most", math.inf))
    elif get_origin(kind) is tuple:
        count = len(get_args(kind))
        if not isinstance(value, tuple) or len(value) != count:
            raise TypeError(f"{name} must be {count} numbers, got {value!r}.")
        for part in value:
            check_number(name, part, least=0.0)
