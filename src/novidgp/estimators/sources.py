"""What `fit` takes instead of arrays in memory: files of tables, memory maps, and objects that give rows."""

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from novidgp.features.transformers import is_transformer
from novidgp.tables.encode import TableEncoding
from novidgp.tables.files import encoded_parts, find_tables, learn_encoding
from novidgp.training.rowfile import Block

_BLOCK_ROWS = 65_536


class TableRows:
    """The rows of table files."""

    named = False
    """Whether the model is to know the columns' names: not where tables are encoded before they reach it."""

    def __init__(self, path: str | PathLike, target: str, task: str, drop: tuple[str, ...] = ()):
        self._files = find_tables(Path(path))
        self.encoding: TableEncoding = learn_encoding(self._files, target, task, drop)

    @property
    def name(self) -> str:
        return self._files.description

    @property
    def identity(self) -> str:
        return f"{self._files.identity()} {self.encoding.to_json()}"

    def blocks(self) -> Iterator[Block]:
        for _, x, y in encoded_parts(self._files, self.encoding, with_target=True):
            assert y is not None
            yield Block(x, y.reshape(len(y), 1))


class ArrayRows:
    """The rows of a memory map, or of an object with `__len__` and `__getitem__` of index arrays."""

    def __init__(self, X: Any, y: Any):
        if len(X) != len(y):
            raise ValueError(f"X has {len(X)} rows and y has {len(y)}; give equally many.")
        self._x, self._y = X, y

    @property
    def name(self) -> str:
        return "X"

    @property
    def identity(self) -> str:
        return ""

    def blocks(self) -> Iterator[Block]:
        for first in range(0, len(self._x), _BLOCK_ROWS):
            numbers = np.arange(first, min(first + _BLOCK_ROWS, len(self._x)))
            x, y = self._numbers("X", self._x, numbers), self._targets(numbers)
            if x.ndim != 2 or y.ndim != 2 or y.shape[1] != 1:
                raise ValueError(
                    f"rows {first} to {numbers[-1]} of X have the shape {x.shape} and of y {y.shape}; X must "
                    f"give (rows, columns), and y one target per row."
                )
            yield Block(x, y)

    def _targets(self, numbers: np.ndarray) -> np.ndarray:
        values = np.asarray(self._y[numbers])
        values = values.reshape(len(numbers), -1) if values.size == len(numbers) else values
        return values if values.dtype.kind in "OUSb" else _finite("y", values, numbers[0])

    def _numbers(self, name: str, rows: Any, numbers: np.ndarray) -> np.ndarray:
        try:
            values = np.asarray(rows[numbers], np.float64)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"{name}[numpy.array([...])] must give rows of numbers; it failed: {error}"
            ) from error
        if len(values) != len(numbers):
            raise ValueError(f"{name} gave {len(values)} rows for {len(numbers)} indices.")
        return _finite(name, values, numbers[0])


def _finite(name: str, values: np.ndarray, first: int) -> np.ndarray:
    values = np.asarray(values, np.float64)
    bad = ~np.isfinite(values).all(axis=1) if values.ndim == 2 else np.zeros(len(values), bool)
    if bad.any():
        row = int(np.argmax(bad))
        column = int(np.argmax(~np.isfinite(values[row])))
        raise ValueError(
            f"{name} holds {values[row, column]} in row {first + row:,}, column {column}, counted from 0; "
            "drop such rows or fill them."
        )
    return values


def row_source(
    X: Any, y: Any, target: str | None, task: str, *, features: Any = None
) -> TableRows | ArrayRows | None:
    """The source that the arguments of `fit` name; None for arrays in memory, and for what a transformer
    given as `features` takes."""
    if isinstance(X, TableRows):
        return X
    if isinstance(X, str | PathLike):
        if target is None or y is not None:
            raise ValueError(
                f"fit({str(X)!r}) takes the name of the column to predict: fit({str(X)!r}, target='y')."
            )
        source = TableRows(X, target, task)
        source.named = all(column.kind != "category" for column in source.encoding.columns)
        return source
    if target is not None:
        raise ValueError(
            f"target={target!r} names a column of a file; with arrays pass the targets as y, and with a "
            f"table in memory fit(table.drop(columns={target!r}), table[{target!r}])."
        )
    if is_transformer(features):
        return None
    if isinstance(X, np.memmap) and X.ndim == 2 and y is not None:
        return ArrayRows(X, y)
    array_like = hasattr(X, "__array__") or hasattr(X, "tocsr") or isinstance(X, list | tuple | dict | set)
    if not array_like and hasattr(X, "__len__") and hasattr(X, "__getitem__") and y is not None:
        return ArrayRows(X, y)
    return None
