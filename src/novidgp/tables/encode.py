"""From a table to the matrix a model is fitted on, in the same way at training and at prediction.

A `TableEncoding` is learnt from the training table and kept in the model file as plain JSON: which columns
are inputs, their order, and the categories of the text columns. What cannot be turned into numbers without
guessing (dates, missing values, unseen categories) is refused; the error names the column and the cure.
"""

from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, cast, get_args

import numpy as np
import pandas as pd
from pandas.api import types

from novidgp.datasets.info import Task
from novidgp.messages import listed, nearest
from novidgp.tables.errors import TableError
from novidgp.tables.numbers import are_whole, doubtful_number, find_stray, floats

Kind = Literal["number", "boolean", "category"]

MAX_CATEGORIES = 100
"""More distinct texts in one column are refused: their one-hot columns would dominate the others."""

_KIND_NAMES: dict[type, str] = {
    str: "text",
    bytes: "bytes",
    bool: "true/false",
    int: "numbers",
    float: "numbers",
    Decimal: "numbers",
}
_IN_PYTHON = "DGPClassifier in Python"
_DATE = r"^\s*(?:\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{4})(?:[T ]\d{1,2}:\d{2}.*)?\s*$"


def pick(frame: pd.DataFrame, name: str) -> pd.Series:
    """One column of a table."""
    return cast(pd.Series, frame[name])


def column_kind(column: pd.Series, *, target: bool = False) -> Kind:
    """What a column holds. Dates and other objects are refused with the column's name."""
    name = column.name
    last_cure = "choose another target" if target else f"leave it out (--drop {name})"
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "category"
    if types.is_bool_dtype(column):
        return "boolean"
    if types.is_datetime64_any_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
        raise _date_error(name, last_cure)
    if types.is_timedelta64_dtype(column):
        raise _date_error(name, last_cure)
    if types.is_complex_dtype(column):
        raise TableError(f"column {name!r} holds complex numbers; split it into two columns, or {last_cure}")
    if types.is_numeric_dtype(column):
        return "number"
    present = column.dropna()
    values = list(present)
    if all(isinstance(value, bool | np.bool_) for value in values):
        return "boolean" if values else "number"
    if all(isinstance(value, Real | Decimal) for value in values):
        return "number"
    if all(isinstance(value, str) for value in values):
        if present.str.match(_DATE).all():
            raise _date_error(name, last_cure)
        example = doubtful_number(column)
        if example is not None:
            raise TableError(
                f"column {name!r} holds numbers such as {example!r}, whose marks may be decimal or group "
                "thousands; write a decimal point and group nothing"
            )
        return "category"
    if all(hasattr(value, "isoformat") for value in values):
        raise _date_error(name, last_cure)
    if any(isinstance(value, dict | list | tuple | set | np.ndarray) for value in values):
        raise TableError(
            f"column {name!r} holds lists or records in its cells; make a column of each of their parts, "
            f"or {last_cure}"
        )
    kinds = sorted({_KIND_NAMES.get(type(value), type(value).__name__) for value in values})
    what = f"mixes {' and '.join(kinds)}" if len(kinds) > 1 else f"holds {kinds[0]}"
    raise TableError(f"column {name!r} {what}; make it all numbers or all text, or {last_cure}")


def input_kind(column: pd.Series) -> Kind:
    """What an input column holds. Refuses amounts with a stray text, which would become categories."""
    kind = column_kind(column)
    stray = find_stray(column)
    if stray is not None and stray.amounts:
        raise TableError(
            f"column {column.name!r} holds numbers, but {stray.text!r} in data row {stray.row}; correct that "
            f"cell, or leave the column out (--drop {column.name}); if all are categories, give them names"
        )
    return kind


def check_target(frame: pd.DataFrame, target: str) -> None:
    """Refuse a target that is no column; the message has the nearest name, or all of them."""
    if target not in frame.columns:
        near = nearest(target, frame.columns, cutoff=0.6)
        hint = f"columns: {listed(list(frame.columns))}" if near is None else f"did you mean {near!r}?"
        raise TableError(f"no column is named {target!r}; {hint}")


def split_target(frame: pd.DataFrame, target: str) -> tuple[pd.DataFrame, pd.Series]:
    """The table without the target column, and the target column, in which nothing may be missing."""
    check_target(frame, target)
    column = pick(frame, target)
    missing = int(np.sum(column.isna()))
    if missing:
        row = int(np.argmax(column.isna())) + 1
        raise TableError(
            f"target {target!r} is missing in {missing} of {len(frame)} rows, first in data row {row}; drop "
            "those rows, or give a class called None, NA or null another name"
        )
    return frame.drop(columns=target), column


def choose_task(target: pd.Series, task: str = "auto") -> Task:
    """`task` itself unless it is `auto`: then classification for text and true/false, else regression."""
    if task not in ("auto", *get_args(Task)):
        raise TableError(f"task must be auto, regression or classification, got {task!r}")
    kind = column_kind(target, target=True)
    if kind == "category":
        _check_text_target(target, task)
    if task == "auto":
        return "regression" if kind == "number" else "classification"
    return "regression" if task == "regression" else "classification"


def _check_text_target(target: pd.Series, task: str) -> None:
    """Refuse text that is meant as numbers; what is asked for by name is believed as far as possible."""
    name, example = target.name, target.iloc[0]
    if are_whole(target):
        if task == "auto":
            raise TableError(
                f"target {name!r} holds whole numbers as text such as {example!r}; "
                "say --task regression for amounts, --task classification for classes"
            )
        return
    stray = find_stray(target)
    if stray is not None and (task != "classification" or stray.fractions):
        meant = f", or use --task classification ({_IN_PYTHON}) if they are classes"
        classes = "" if stray.fractions else meant
        raise TableError(
            f"target {name!r} holds numbers, but {stray.text!r} in data row {stray.row}; "
            f"correct that cell or drop the row{classes}"
        )
    if task == "regression":
        raise TableError(
            f"target {name!r} holds text such as {example!r}; use --task classification ({_IN_PYTHON})"
        )
    distinct = target.nunique()
    if task == "auto" and distinct > max(20, 0.5 * len(target)):
        raise TableError(
            f"target {name!r} holds {distinct} different texts in {len(target)} rows, such as {example!r}; "
            "write numbers without units and signs, or use --task classification if they are classes"
        )


def target_values(target: pd.Series, task: Task) -> np.ndarray:
    """The target as estimators take it: floats for regression; text, integers or booleans as labels."""
    kind = column_kind(target, target=True)
    if task == "regression":
        values = floats(target)
        unreadable = np.isnan(values)
        if unreadable.any():
            row = int(np.argmax(unreadable))
            raise TableError(
                f"target {target.name!r} holds {target.iloc[row]!r} in data row {row + 1}, no number; "
                "correct that cell or drop the row"
            )
        bad = int((~np.isfinite(values)).sum())
        if bad:
            raise TableError(f"target {target.name!r} is infinite in {bad} rows; drop those rows")
        return values
    if kind == "category":
        return target.astype(str).to_numpy(dtype=np.str_)
    if kind == "boolean":
        return target.to_numpy(bool)
    values = floats(target)
    if np.abs(values).max() >= 2.0**63:
        raise TableError(f"target {target.name!r} holds numbers beyond 2^63, which are no class labels")
    if not np.array_equal(values, np.round(values)):
        raise TableError(
            f"target {target.name!r} holds fractions such as {values[values != np.round(values)][0]:g}, "
            "which are no class labels; use --task regression (DGPRegressor in Python)"
        )
    return values.astype(np.int64)


@dataclass(frozen=True)
class InputColumn:
    """One column of the training table; `categories` is empty unless the column holds text."""

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()

    @property
    def matrix_columns(self) -> tuple[str, ...]:
        """Names of the matrix columns that this column becomes."""
        return tuple(f"{self.name}={category}" for category in self.categories) or (self.name,)


@dataclass(frozen=True)
class TableEncoding:
    """How a table becomes a matrix: numbers as they are, true/false as 1/0, text one-hot."""

    columns: tuple[InputColumn, ...]
    target: str
    task: Task

    @classmethod
    def learn(cls, inputs: pd.DataFrame, target: str, task: Task) -> "TableEncoding":
        """Record kinds, order and categories of the training table's columns, given without the target."""
        if not len(inputs.columns):
            raise TableError("the table has no feature columns besides the target")
        return cls(tuple(_learn_column(pick(inputs, str(name))) for name in inputs.columns), target, task)

    @property
    def matrix_columns(self) -> tuple[str, ...]:
        """Names of the columns of the encoded matrix."""
        return tuple(name for column in self.columns for name in column.matrix_columns)

    def extra_columns(self, frame: pd.DataFrame) -> list[str]:
        """Columns of a table that the model does not use (the target is not counted)."""
        known = {column.name for column in self.columns} | {self.target}
        return [str(name) for name in frame.columns if name not in known]

    def encode(self, frame: pd.DataFrame) -> np.ndarray:
        """The float64 matrix of a table. Columns may be in any order; unknown columns are left out."""
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise TableError(f"the table lacks {listed(absent)}, which the model was fitted on")
        _refuse_missing({column.name: pick(frame, column.name) for column in self.columns})
        return np.hstack([_encode_column(column, pick(frame, column.name)) for column in self.columns])

    def to_json(self) -> dict[str, Any]:
        """A dictionary of strings and lists, for the model file."""
        columns = [
            {"name": column.name, "kind": column.kind, "categories": list(column.categories)}
            for column in self.columns
        ]
        return {"columns": columns, "target": self.target, "task": self.task}

    @classmethod
    def from_json(cls, stored: Any) -> "TableEncoding":
        """The encoding that `to_json` described."""
        try:
            columns = tuple(
                InputColumn(str(column["name"]), column["kind"], tuple(map(str, column["categories"])))
                for column in stored["columns"]
            )
            encoding = cls(columns, str(stored["target"]), stored["task"])
        except (KeyError, TypeError) as error:
            raise TableError("the model file says nothing readable about the columns of its table") from error
        if encoding.task not in get_args(Task) or any(c.kind not in get_args(Kind) for c in columns):
            raise TableError("the model file describes columns of a kind this version does not know")
        return encoding


def _learn_column(column: pd.Series) -> InputColumn:
    kind = input_kind(column)
    name = str(column.name)
    if kind != "category":
        return InputColumn(name, kind)
    categories = tuple(sorted(column.dropna().astype(str).unique()))
    if len(categories) > MAX_CATEGORIES:
        raise TableError(
            f"column {name!r} holds {len(categories)} distinct texts (at most {MAX_CATEGORIES}); "
            f"group them, or leave the column out (--drop {name})"
        )
    return InputColumn(name, kind, categories)


def _encode_column(column: InputColumn, values: pd.Series) -> np.ndarray:
    if column.kind == "category":
        texts = values.astype(str)
        codes = pd.Index(column.categories).get_indexer(pd.Index(texts))
        if (codes < 0).any():
            unseen = sorted(set(texts[codes < 0]))
            shown = ", ".join(map(repr, unseen[:5])) + (", ..." if len(unseen) > 5 else "")
            known = ", ".join(map(repr, column.categories[:8]))
            known += ", ..." if len(column.categories) > 8 else ""
            raise TableError(
                f"column {column.name!r} holds {shown}, never seen in training (there: {known}); "
                "map to a known category, or fit again with such rows"
            )
        return np.eye(len(column.categories))[codes]
    numbers = floats(values)
    unreadable = np.isnan(numbers)
    if unreadable.any():
        row = int(np.argmax(unreadable))
        raise TableError(
            f"column {column.name!r} held {column.kind}s in training but now {values.iloc[row]!r} "
            f"(data row {row + 1}); make it numeric"
        )
    infinite = int(np.isinf(numbers).sum())
    if infinite:
        raise TableError(
            f"column {column.name!r} is infinite in {infinite} rows (beyond 1.8e308); drop or replace them"
        )
    return numbers[:, None]


def _refuse_missing(columns: dict[str, pd.Series]) -> None:
    absent = {name: column.isna().to_numpy() for name, column in columns.items() if column.hasnans}
    if absent:
        listed = ", ".join(f"{name!r} {rows.sum()}" for name, rows in absent.items())
        rows = np.logical_or.reduce(list(absent.values()))
        raise TableError(
            f"missing values in {rows.sum()} of {len(rows)} rows (by column: {listed}); "
            "drop those rows or columns, or fill them (median, or a category of its own)"
        )


def _date_error(name: Any, last_cure: str) -> TableError:
    return TableError(
        f"column {name!r} holds dates or times; turn it into numbers that mean something "
        f"(days since a start, month, hour), or {last_cure}"
    )
