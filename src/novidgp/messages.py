"""Words that error messages share: the nearest known name, and lists of names."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


def nearest(value: Any, known: Iterable[str], *, cutoff: float = 0.5) -> str | None:
    """The known name most like `value`; None if none has a similarity of at least `cutoff`."""
    near = difflib.get_close_matches(str(value), list(known), n=1, cutoff=cutoff)
    return near[0] if near else None


def unknown(name: str, value: Any, known: Iterable[str]) -> str:
    """The message for an unknown value of the option `name`, with the nearest known one."""
    known = list(known)
    near = nearest(value, known)
    hint = "" if near is None else f" Did you mean {near!r}?"
    listing = ", ".join(map(repr, known)) or "none"
    return f"{name}={value!r} is unknown.{hint} Choose one of: {listing}."


def listed(names: Sequence[str], limit: int = 12) -> str:
    """Names in quotes and separated by commas, at most `limit` of them."""
    shown = ", ".join(map(repr, names[:limit]))
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
