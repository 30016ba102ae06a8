"""Numbers that a file holds as text: decimal commas, arrays of text, and single cells that are no number."""

import re
from collections.abc import Container
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
from pandas.api import types


def _form(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)  # digits of other scripts are text to pandas


_POINT = _form(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_COMMA = _form(r"[+-]?(?:\d+,?\d*|\d{1,3}(?:\.\d{3})+,\d*|,\d+)(?:[eE][+-]?\d+)?")
"""With a decimal comma; points may group thousands before it."""
_TWO_WAYS = _form(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+")
"""Thousands grouped by commas; with one comma this may also be a decimal comma."""
_GROUPED = _form(r"[+-]?\d{1,3}(?:[.,' \u2019\u00a0\u202f]\d{3})*(?:[.,]\d*)?")
"""Thousands grouped by any character in use."""
_WHOLE = _form(r"[+-]?\d+")
_CODES = 20
"""Up to this many distinct whole numbers may be codes of categories; more are amounts."""


class Stray(NamedTuple):
    """The first cell with a text in a column that holds numbers otherwise."""

    row: int
    """Counted from 1, without the header."""
    text: str
    fractions: bool
    """Whether some of the numbers have a decimal mark or an exponent."""
    amounts: bool
    """Whether the numbers cannot be codes of categories: they have fractions or are very many."""


def floats(column: pd.Series) -> np.ndarray:
    """A column as floats: NaN where there is no number, infinite where a number is too large for a float."""
    if types.is_numeric_dtype(column):
        return column.to_numpy(np.float64, na_value=np.nan)
    try:
        return np.asarray(pd.to_numeric(column.astype(object), errors="coerce"), np.float64)
    except OverflowError:
        return np.array([_float(value) for value in column.astype(object)])


def numbers_from_text(frame: pd.DataFrame, labels: Container[str]) -> pd.DataFrame:
    """The table with columns of text as numbers where every value is one and can be read in one way only.

    Whole numbers without a mark stay text in the columns `labels`, where they may be names of classes.
    Decimal commas are read where the same table has no decimal points and some comma cannot group thousands.
    """
    found: dict[str, pd.Series] = {}
    commas: dict[str, list[str]] = {}
    for name in map(str, frame.columns):
        column = cast(pd.Series, frame[name])
        texts = _distinct(column) or [""]
        if all(map(_POINT.fullmatch, texts)):
            if name not in labels or not all(map(_WHOLE.fullmatch, texts)):
                found[name] = column
        elif all(map(_COMMA.fullmatch, texts)):
            commas[name] = texts
    certain = any(
        "," in text and not _TWO_WAYS.fullmatch(text) for texts in commas.values() for text in texts
    )
    if certain and not any(map(_has_fractions, [*found.values(), *_float_columns(frame)])):
        for name in commas:
            texts = cast(pd.Series, frame[name]).str.replace(".", "", regex=False)
            found[name] = texts.str.replace(",", ".", regex=False)
    numbers = {name: floats(column.str.strip()) for name, column in found.items()}
    return frame.assign(**numbers) if numbers else frame


def doubtful_number(column: pd.Series) -> str | None:
    """An example from a column of numbers as text that can be read in two ways; None for other columns."""
    texts = _distinct(column)
    if not texts or all(map(_POINT.fullmatch, texts)) or not all(map(_is_number, texts)):
        return None
    return next(text for text in texts if not _POINT.fullmatch(text))


def are_whole(column: pd.Series) -> bool:
    """Whether a column holds nothing but whole numbers, as text."""
    texts = _distinct(column)
    return bool(texts) and all(map(_WHOLE.fullmatch, texts))


def find_stray(column: pd.Series) -> Stray | None:
    """The first text in a column of text in which most values are numbers; None for other columns."""
    texts = _distinct(column)
    numbers = {text for text in texts or () if _is_number(text)}
    if not texts or not 0 < len(numbers) < len(texts):
        return None
    present = column.notna().to_numpy()
    readable = column.where(column.notna(), "").str.strip().isin(numbers).to_numpy()
    if readable.sum() <= 0.5 * present.sum():
        return None
    row = int(np.argmax(present & ~readable))
    fractions = not all(map(_WHOLE.fullmatch, numbers))
    return Stray(row + 1, str(column.iloc[row]), fractions, fractions or len(numbers) > _CODES)


def _distinct(column: pd.Series) -> list[str] | None:
    """The distinct values of a column of text, without blanks around them; None for other columns."""
    if not (types.is_object_dtype(column) or types.is_string_dtype(column)):
        return None
    if isinstance(column.dtype, pd.CategoricalDtype):
        return None
    present = column.dropna()
    if not all(isinstance(value, str) for value in present):
        return None
    return list(present.str.strip().unique())


def _is_number(text: str) -> bool:
    return any(form.fullmatch(text) for form in (_POINT, _COMMA, _GROUPED))


def _float_columns(frame: pd.DataFrame) -> list[pd.Series]:
    return [column for _, column in frame.items() if types.is_float_dtype(column)]


def _has_fractions(column: pd.Series) -> bool:
    values = floats(column)
    values = values[np.isfinite(values)]
    return not np.array_equal(values, np.round(values))


def _float(value: Any) -> float:
    if not isinstance(value, Real | Decimal | str) or (
        isinstance(value, str) and not _POINT.fullmatch(value)
    ):
        return np.nan
    try:
        return float(value)
    except OverflowError:
        return np.inf if cast(Any, value) > 0 else -np.inf
