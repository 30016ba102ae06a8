"""Tables that need not fit into memory: one file, a directory or a pattern of files, read in blocks of rows.

Columns are known by their names, so that files may have them in any order. What is wrong is refused with the
file and the data row, counted from 1.
"""

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from novidgp.messages import listed
from novidgp.tables.encode import (
    MAX_CATEGORIES,
    InputColumn,
    TableEncoding,
    check_target,
    choose_task,
    pick,
    split_target,
    target_values,
)
from novidgp.tables.errors import TableError
from novidgp.tables.header import check_names, read_header
from novidgp.tables.numbers import numbers_from_text
from novidgp.tables.read import CSV_ENDINGS, PARQUET_ENDINGS, csv_errors, parquet_errors

_BLOCK_ROWS = 65_536
_BIG_BYTES = 256 * 2**20
"""A file above this size is read in blocks."""


class Part(NamedTuple):
    """Consecutive rows of one file."""

    path: Path
    first: int
    """The data row of the file with which the part begins, counted from 1."""
    frame: pd.DataFrame


@dataclass(frozen=True)
class TableFiles:
    """Files with the same columns."""

    paths: tuple[Path, ...]
    names: tuple[str, ...]
    """The columns, in the order of the first file."""

    @property
    def description(self) -> str:
        """What messages call them."""
        first, *others = self.paths
        return f"{first} and {len(others)} more" if others else str(first)

    def parts(self, columns: Sequence[str] | None = None) -> Iterator[Part]:
        """All rows, file by file, with all columns or with some."""
        wanted = list(self.names if columns is None else columns)
        for path in self.paths:
            first = 1
            for frame in _parquet(path, wanted) if _is_parquet(path) else _csv(path, wanted):
                yield Part(path, first, frame.reindex(columns=wanted))
                first += len(frame)

    def identity(self) -> str:
        """Paths, sizes and times of the files: they change when a file does."""
        stats = [(path.resolve(), path.stat()) for path in self.paths]
        return repr([(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats])


def find_tables(source: str | Path) -> TableFiles:
    """The files that a path, a directory or a pattern such as `flights/*.parquet` names.

    Their headers are read, so that a damaged file or one with other columns is refused at once.
    """
    paths = tuple(_paths(source))
    names = [_names(path) for path in paths]
    for path, own in zip(paths[1:], names[1:], strict=True):
        absent, extra = set(names[0]) - set(own), set(own) - set(names[0])
        if absent or extra:
            what = f"lacks {listed(sorted(absent))}" if absent else f"has {listed(sorted(extra))} as well"
            raise TableError(f"{path} {what}, unlike {paths[0]}; all files must have the same columns")
    return TableFiles(paths, tuple(names[0]))


def is_big(source: str | Path) -> bool:
    """Whether a command reads its table in blocks: a directory, a pattern of files, or a large file."""
    path = Path(source)
    if path.is_file():
        return _is_table(path) and path.stat().st_size > _BIG_BYTES
    return path.is_dir() or glob.has_magic(str(source))


def learn_encoding(
    files: TableFiles, target: str, task: str = "auto", drop: Sequence[str] = ()
) -> TableEncoding:
    """How the files become a matrix: kinds of columns by the first rows, categories by all rows."""
    part = next(files.parts(), None)
    if part is None:
        raise TableError(f"{files.description} holds no rows")
    check_target(part.frame, target)
    absent = [name for name in drop if name not in files.names]
    if absent:
        raise TableError(f"--drop {absent[0]}: the table has no such column")
    with _place(part):
        table, column = split_target(part.frame.drop(columns=list(drop)), target)
        encoding = TableEncoding.learn(table, target, choose_task(column, task))
    texts = [column.name for column in encoding.columns if column.kind == "category"]
    if not texts:
        return encoding
    found: dict[str, set[str]] = {name: set() for name in texts}
    for part in files.parts(texts):
        for name, values in found.items():
            values |= set(pick(part.frame, name).dropna().astype(str).unique())
            if len(values) > MAX_CATEGORIES:
                raise TableError(
                    f"column {name!r} of {files.description} holds more than {MAX_CATEGORIES} distinct "
                    f"texts; group them, or leave the column out"
                )
    columns = (
        replace(column, categories=tuple(sorted(found[column.name]))) if column.name in found else column
        for column in encoding.columns
    )
    return replace(encoding, columns=tuple(columns))


def encoded_parts(
    files: TableFiles, encoding: TableEncoding, *, with_target: bool
) -> Iterator[tuple[Part, np.ndarray, np.ndarray | None]]:
    """The rows as matrices, beside the tables they are from, and with their targets."""
    absent = [column.name for column in encoding.columns if column.name not in files.names]
    absent += [encoding.target] if with_target and encoding.target not in files.names else []
    if absent:
        raise TableError(f"{files.description} lacks {listed(absent)}, which the model was fitted on")
    for part in files.parts():
        _refuse_gaps(part, encoding.columns, [encoding.target] if with_target else [])
        with _place(part):
            x = encoding.encode(part.frame)
            y = target_values(pick(part.frame, encoding.target), encoding.task) if with_target else None
        yield part, x, y


class _place:
    """A block whose errors get the name of a part's file and its rows."""

    def __init__(self, part: Part):
        self._part = part

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, TableError):
            path, first, frame = self._part
            raise TableError(f"{path}, data rows {first:,} to {first + len(frame) - 1:,}: {error}") from None


def _refuse_gaps(part: Part, columns: Sequence[InputColumn], others: Sequence[str]) -> None:
    """Refuse a missing value, by its row and column."""
    for name in [*(column.name for column in columns), *others]:
        column = pick(part.frame, name)
        if column.hasnans:
            row = part.first + int(np.argmax(column.isna().to_numpy()))
            raise TableError(
                f"{part.path} has no value of {name!r} in data row {row:,}; drop such rows, fill them, or "
                f"leave the column out"
            )


def _paths(source: str | Path) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.is_file() and not _hidden(p.relative_to(path)))
        foreign = [p for p in found if not _is_table(p)]
        if foreign:
            raise TableError(
                f"{foreign[0]} is no .parquet or .csv file; move it out of the directory, or give a pattern "
                f"such as '{path}/*.parquet'"
            )
        if not found:
            raise TableError(f"the directory {path} holds no .parquet or .csv file")
        return _of_one_kind(found)
    if path.exists():
        if not _is_table(path):
            raise TableError(f"{path}: unknown kind of table {path.suffix!r}; use .parquet or .csv")
        return [path]
    matches = sorted(Path(name) for name in glob.glob(str(source), recursive=True))
    if not matches:
        raise TableError(f"there is no file or directory {source}, and no file matches that pattern")
    foreign = [p for p in matches if not _is_table(p)]
    if foreign:
        raise TableError(f"{foreign[0]} is no .parquet or .csv file; give a pattern that leaves it out")
    return _of_one_kind(matches)


def _of_one_kind(paths: list[Path]) -> list[Path]:
    """The paths, refused where one table may be there twice: as Parquet and as text."""
    parquet, text = ([p for p in paths if _is_parquet(p) is kind] for kind in (True, False))
    if parquet and text:
        raise TableError(
            f"{parquet[0]} is a Parquet file and {text[0]} is not; give a pattern that names one kind, such "
            f"as '{parquet[0].parent}/*{parquet[0].suffix}'"
        )
    return paths


def _hidden(path: Path) -> bool:
    """Spark and others leave such names beside their files."""
    return any(part.startswith((".", "_")) for part in path.parts)


def _is_table(path: Path) -> bool:
    return path.name.lower().endswith((*PARQUET_ENDINGS, *CSV_ENDINGS))


def _is_parquet(path: Path) -> bool:
    return path.name.lower().endswith(PARQUET_ENDINGS)


def _names(path: Path) -> list[str]:
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty")
    if _is_parquet(path):
        import pyarrow.parquet as pq

        with parquet_errors(path), pq.ParquetFile(path) as file:
            names = list(file.schema_arrow.names)
    else:
        with csv_errors(path):
            names = read_header(path).names
    check_names([name.strip() for name in names], path)
    return [name.strip() for name in names]


def _parquet(path: Path, columns: list[str]) -> Iterator[pd.DataFrame]:
    import pyarrow.parquet as pq

    with parquet_errors(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        own = {name.strip(): name for name in file.schema_arrow.names}
        batches = file.iter_batches(_BLOCK_ROWS, columns=[own[name] for name in columns])
        for batch in batches:
            yield _tidy(batch.to_pandas())


def _csv(path: Path, columns: list[str]) -> Iterator[pd.DataFrame]:
    with csv_errors(path):
        header = read_header(path)
        options: dict[str, Any] = {"sep": header.separator, "names": header.names, "header": 0}
        options |= {"usecols": columns, "chunksize": _BLOCK_ROWS, "low_memory": False}
        with pd.read_csv(path, **options) as blocks:
            for frame in blocks:
                yield _tidy(frame)


def _tidy(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.reset_index(drop=True)
    frame.columns = [str(name).strip() for name in frame.columns]
    return numbers_from_text(frame, labels=list(frame.columns))
