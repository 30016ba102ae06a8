"""From a file on disk to the matrix a model is fitted on, the same way at training and at prediction.

A `TableEncoding` is learnt from the training table and kept in the model file as plain JSON: which columns
are features, in which order, and for text columns which categories there were. What cannot be turned into
numbers without guessing (dates, missing values, unseen categories) is refused with the column's name and the
cure.
"""

import os
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import pandas as pd
from pandas.api import types

Kind = Literal["number", "boolean", "category"]
Task = Literal["regression", "classification"]

MAX_CATEGORIES = 100
"""More distinct texts than this in one column are refused: one-hot columns would swamp the others."""

_CSV = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")
_PARQUET = (".parquet", ".pq")
_DATE = r"^\s*(?:\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{4})(?:[T ]\d{1,2}:\d{2}.*)?\s*$"


class TableError(ValueError):
    """The table cannot be used as it is; the message names the column and the cure."""


def read_table(source: str | Path) -> pd.DataFrame:
    """Read a CSV, Parquet or NPZ file (arrays `X` and, if there is one, `y`), or a data set known by name."""
    path = Path(source)
    if not path.exists():
        return _read_known(str(source))
    if path.is_dir():
        raise TableError(f"{path} is a directory, not a table; give a .csv, .parquet or .npz file")
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty")
    name = path.name.lower()
    if name.endswith(".npz"):
        frame = _read_npz(path)
    elif name.endswith(_PARQUET):
        frame = _read_parquet(path)
    elif name.endswith(_CSV):
        frame = _read_csv(path)
    else:
        raise TableError(f"{path}: unknown kind of table {path.suffix!r}; use .csv, .parquet or .npz")
    if frame.empty:
        raise TableError(f"{path} holds no rows")
    frame.columns = [str(column).strip() for column in frame.columns]
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise TableError(f"{path} has two columns named {twice[0]!r}; rename one")
    return frame


def write_table(frame: pd.DataFrame, path: str | Path) -> None:
    """Write CSV or Parquet, atomically: a reader sees the old file or the whole new one."""
    path = Path(path)
    check_writable_table(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    try:
        if path.name.lower().endswith(_PARQUET):
            frame.to_parquet(temporary, index=False)
        else:
            frame.to_csv(temporary, index=False, sep="\t" if path.suffix.lower() == ".tsv" else ",")
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def check_writable_table(path: str | Path) -> None:
    """Refuse a path `write_table` could not write, before anything is computed."""
    path = Path(path)
    if not path.name.lower().endswith((".csv", ".tsv", *_PARQUET)):
        raise TableError(f"{path}: write predictions to a .csv, .tsv or .parquet file")
    if not path.parent.is_dir():
        raise TableError(f"{path}: there is no directory {path.parent}; create it first")


def pick(frame: pd.DataFrame, name: str) -> pd.Series:
    """One column of a table."""
    return cast(pd.Series, frame[name])


def column_kind(column: pd.Series) -> Kind:
    """What a column holds; dates and objects of other kinds are refused by name."""
    name = column.name
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "category"
    if types.is_bool_dtype(column):
        return "boolean"
    if types.is_datetime64_any_dtype(column) or types.is_timedelta64_dtype(column):
        raise _date_error(name)
    if types.is_complex_dtype(column):
        raise TableError(f"column {name!r} holds complex numbers; split it into two columns or drop it")
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
            raise _date_error(name)
        return "category"
    if all(hasattr(value, "isoformat") for value in values):
        raise _date_error(name)
    kinds = sorted({type(value).__name__ for value in values})
    raise TableError(
        f"column {name!r} mixes {' and '.join(kinds)}; make it all numbers or all text, or drop it"
    )


def split_target(frame: pd.DataFrame, target: str) -> tuple[pd.DataFrame, pd.Series]:
    """The table without the target column, and that column, complete."""
    if target not in frame.columns:
        raise TableError(f"no column is named {target!r}; {_nearest(target, list(frame.columns))}")
    column = pick(frame, target)
    missing = int(np.sum(column.isna()))
    if missing:
        raise TableError(f"target {target!r} is missing in {missing} of {len(frame)} rows; drop those rows")
    return frame.drop(columns=target), column


def choose_task(target: pd.Series, task: str = "auto") -> Task:
    """Classification for text and true/false, regression for numbers, unless told otherwise."""
    if task not in ("auto", *get_args(Task)):
        raise TableError(f"task must be auto, regression or classification, got {task!r}")
    kind = column_kind(target)
    if task == "auto":
        return "regression" if kind == "number" else "classification"
    if task == "regression" and kind == "category":
        example = target.iloc[0]
        raise TableError(f"target {target.name!r} holds text such as {example!r}; use --task classification")
    return "regression" if task == "regression" else "classification"


def target_values(target: pd.Series, task: Task) -> np.ndarray:
    """Target as the estimators take it: floats to regress on; text, integers or booleans as labels."""
    kind = column_kind(target)
    if task == "regression":
        values = target.to_numpy(np.float64)
        bad = int((~np.isfinite(values)).sum())
        if bad:
            raise TableError(f"target {target.name!r} is infinite in {bad} rows; drop those rows")
        return values
    if kind == "category":
        return target.astype(str).to_numpy(dtype=np.str_)
    if kind == "boolean":
        return target.to_numpy(bool)
    values = target.to_numpy(np.float64)
    if not np.array_equal(values, np.round(values)):
        raise TableError(
            f"target {target.name!r} holds fractions such as {values[values != np.round(values)][0]:g}, "
            "which are no class labels; use --task regression"
        )
    return values.astype(np.int64)


@dataclass(frozen=True)
class FeatureColumn:
    """One column of the training table; `categories` is empty unless it holds text."""

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the matrix columns it becomes."""
        return tuple(f"{self.name}={category}" for category in self.categories) or (self.name,)


@dataclass(frozen=True)
class TableEncoding:
    """How a table becomes a matrix: numbers as they are, true/false as 1/0, text one-hot."""

    columns: tuple[FeatureColumn, ...]
    target: str
    task: Task

    @classmethod
    def learn(cls, features: pd.DataFrame, target: str, task: Task) -> "TableEncoding":
        """Record kinds, order and categories of the training table's feature columns."""
        if not len(features.columns):
            raise TableError("the table has no feature columns besides the target")
        return cls(tuple(_learn_column(pick(features, str(name))) for name in features.columns), target, task)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns of the encoded matrix."""
        return tuple(name for column in self.columns for name in column.features)

    def extra_columns(self, frame: pd.DataFrame) -> list[str]:
        """Columns of a table that the model does not use (the target is not counted)."""
        known = {column.name for column in self.columns} | {self.target}
        return [str(name) for name in frame.columns if name not in known]

    def encode(self, frame: pd.DataFrame) -> np.ndarray:
        """The float64 matrix of a table; columns may come in any order, further columns are left out."""
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise TableError(f"the table lacks {_listed(absent)}, which the model was fitted on")
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
        """Read back what `to_json` gave."""
        try:
            columns = tuple(
                FeatureColumn(str(column["name"]), column["kind"], tuple(map(str, column["categories"])))
                for column in stored["columns"]
            )
            encoding = cls(columns, str(stored["target"]), stored["task"])
        except (KeyError, TypeError) as error:
            raise TableError("the model file says nothing readable about the columns of its table") from error
        if encoding.task not in get_args(Task) or any(c.kind not in get_args(Kind) for c in columns):
            raise TableError("the model file describes columns of a kind this version does not know")
        return encoding


def _learn_column(column: pd.Series) -> FeatureColumn:
    kind = column_kind(column)
    name = str(column.name)
    if kind != "category":
        return FeatureColumn(name, kind)
    categories = tuple(sorted(column.dropna().astype(str).unique()))
    if len(categories) > MAX_CATEGORIES:
        raise TableError(
            f"column {name!r} holds {len(categories)} distinct texts (at most {MAX_CATEGORIES}); "
            f"group them, or leave the column out with --drop {name}"
        )
    return FeatureColumn(name, kind, categories)


def _encode_column(column: FeatureColumn, values: pd.Series) -> np.ndarray:
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
    try:
        numbers = values.to_numpy(np.float64)
    except (TypeError, ValueError):
        unreadable = np.isnan(np.asarray(pd.to_numeric(values, errors="coerce"), np.float64))
        example = values.iloc[int(np.argmax(unreadable))]
        raise TableError(
            f"column {column.name!r} held {column.kind}s in training but now {example!r}; make it numeric"
        ) from None
    infinite = int(np.isinf(numbers).sum())
    if infinite:
        raise TableError(f"column {column.name!r} is infinite in {infinite} rows; drop or replace them")
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


def _date_error(name: Any) -> TableError:
    return TableError(
        f"column {name!r} holds dates or times; turn it into numbers that mean something "
        f"(days since a start, month, hour) or leave it out with --drop {name}"
    )


def _nearest(name: str, known: Sequence[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"columns: {_listed(known)}"


def _listed(names: Sequence[str], limit: int = 12) -> str:
    shown = ", ".join(map(repr, names[:limit]))
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def _read_csv(path: Path) -> pd.DataFrame:
    separator = "\t" if ".tsv" in path.name.lower() else ","
    try:
        frame = pd.read_csv(path, sep=separator, low_memory=False)
        if len(frame.columns) == 1:
            header = str(frame.columns[0])
            other = next((mark for mark in (";", "\t", "|") if mark in header), None)
            frame = frame if other is None else pd.read_csv(path, sep=other, low_memory=False)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError, OSError, EOFError) as error:
        raise TableError(f"{path} cannot be read as CSV: {_first_line(error)}") from error
    return frame


def _read_parquet(path: Path) -> pd.DataFrame:
    import pyarrow as pa

    try:
        return pd.read_parquet(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(f"{path} cannot be read as Parquet: {_first_line(error)}") from error


def _read_npz(path: Path) -> pd.DataFrame:
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in ("X", "y") if name in stored.files}
            names = stored.files
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise TableError(f"{path} cannot be read as NPZ: {_first_line(error)}") from error
    if "X" not in arrays:
        raise TableError(f"{path} holds {_listed(names)} but no array named 'X'")
    return arrays_to_frame(arrays["X"], arrays.get("y"), str(path))


def _read_known(name: str) -> pd.DataFrame:
    """A registered data set, where the name is one and no file is meant."""
    from novidgp.datasets import dataset_names, load_dataset

    if name not in dataset_names():
        raise TableError(f"there is no file {name} (nor a data set of that name: see `novidgp data list`)")
    dataset = load_dataset(name)
    target = dataset.y
    if dataset.info.task == "classification":
        target = np.array([f"class {label}" for label in target])
    return arrays_to_frame(dataset.X, target, name)


def arrays_to_frame(X: np.ndarray, y: np.ndarray | None, where: str = "the data") -> pd.DataFrame:
    """A table with columns x0, x1, ... and, if there is a target, y."""
    if X.ndim != 2:
        raise TableError(f"{where}: X has shape {X.shape}; a table needs two dimensions, rows and columns")
    frame = pd.DataFrame(X, columns=[f"x{index}" for index in range(X.shape[1])])
    if y is not None:
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if y.shape != (len(X),):
            raise TableError(f"{where}: y has shape {y.shape} but X has {len(X)} rows; one target per row")
        frame["y"] = y
    return frame


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
