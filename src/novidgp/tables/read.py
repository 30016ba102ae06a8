"""Reading tables from files and writing them."""

import contextlib
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
import pandas as pd

from novidgp.messages import listed
from novidgp.storage import atomic_write
from novidgp.tables.errors import TableError
from novidgp.tables.header import check_names, read_header
from novidgp.tables.numbers import numbers_from_text

CSV_ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")
_MISSING = ("", "nan", "NaN", "NA", "N/A", "None", "null", "<NA>")


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
    elif name.endswith(PARQUET_ENDINGS):
        frame = _read_parquet(path)
    elif name.endswith(CSV_ENDINGS):
        frame = _read_csv(path)
    else:
        raise TableError(f"{path}: unknown kind of table {path.suffix!r}; use .csv, .parquet or .npz")
    if frame.empty:
        raise TableError(f"{path} holds no rows")
    names = [str(column).strip() for column in frame.columns]
    check_names(names, path)
    frame.columns = names
    # All of an array has one type, so that its text says nothing about a column; other files have types.
    return numbers_from_text(frame, labels=["y"] if name.endswith(".npz") else names)


def write_table(frame: pd.DataFrame, path: str | Path) -> None:
    """Write CSV or Parquet, atomically."""
    path = Path(path)
    check_writable_table(path)
    with atomic_write(path) as file:
        if path.name.lower().endswith(PARQUET_ENDINGS):
            frame.to_parquet(file, index=False)
        else:
            frame.to_csv(file, mode="wb", index=False, sep="\t" if path.suffix.lower() == ".tsv" else ",")


@contextlib.contextmanager
def table_writer(path: str | Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """A function that adds rows to a CSV or Parquet file, which takes its place when the block ends well."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(path)
    check_writable_table(path)
    with atomic_write(path) as file, contextlib.ExitStack() as stack:
        writer: list[pq.ParquetWriter] = []

        def add_parquet(frame: pd.DataFrame) -> None:
            rows = pa.Table.from_pandas(frame, preserve_index=False)
            if not writer:
                writer.append(stack.enter_context(pq.ParquetWriter(file, rows.schema)))
            writer[0].write_table(rows.cast(writer[0].schema))

        def add_csv(frame: pd.DataFrame) -> None:
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            frame.to_csv(file, mode="wb", index=False, header=file.tell() == 0, sep=separator)

        yield add_parquet if path.name.lower().endswith(PARQUET_ENDINGS) else add_csv


def check_writable_table(path: str | Path) -> None:
    """Refuse a path that `write_table` could not write; to be called before anything is computed."""
    path = Path(path)
    if not path.name.lower().endswith((".csv", ".tsv", *PARQUET_ENDINGS)):
        raise TableError(f"{path}: write predictions to a .csv, .tsv or .parquet file")
    if path.is_dir():
        raise TableError(f"{path} is a directory; give the path of a file")
    if not path.parent.is_dir():
        raise TableError(f"{path}: there is no directory {path.parent}; create it first")


def _read_csv(path: Path) -> pd.DataFrame:
    with csv_errors(path):
        header = read_header(path)
        check_names(header.names, path)
        return pd.read_csv(path, sep=header.separator, low_memory=False)


@contextlib.contextmanager
def csv_errors(path: Path) -> Iterator[None]:
    """A block in which whatever pandas finds wrong with a CSV file is a `TableError`."""
    try:
        yield
    except TableError:
        raise
    except (
        pd.errors.ParserError,
        pd.errors.EmptyDataError,
        ValueError,
        OSError,
        EOFError,
        zlib.error,
    ) as error:
        raise TableError(f"{path} cannot be read as CSV: {_first_line(error)}") from error


def _read_parquet(path: Path) -> pd.DataFrame:
    import pyarrow.parquet as pq

    with parquet_errors(path):
        check_names([name.strip() for name in pq.read_schema(path).names], path)
        return pd.read_parquet(path)


@contextlib.contextmanager
def parquet_errors(path: Path) -> Iterator[None]:
    """A block in which whatever Arrow finds wrong with a Parquet file is a `TableError`."""
    import pyarrow as pa

    try:
        yield
    except TableError:
        raise
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        MemoryError,
    ) as error:
        raise TableError(
            f"{path} cannot be read as Parquet: {_first_line(error)}; it may be cut off or damaged"
        ) from error


def _read_npz(path: Path) -> pd.DataFrame:
    return arrays_to_frame(*npz_arrays(path), str(path))


def npz_arrays(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """The arrays `X` and, if there is one, `y` of an NPZ file."""
    with path.open("rb") as file:
        if file.read(6) == b"\x93NUMPY":
            raise TableError(f"{path} is one array as np.save writes it; use np.savez with the names X and y")
    try:
        with zipfile.ZipFile(path) as archive:
            for member in ("X.npy", "y.npy"):
                if member in archive.namelist():
                    _check_size(archive, member, path)
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in ("X", "y") if name in stored.files}
            names = stored.files
    except TableError:
        raise
    except MemoryError as error:
        raise TableError(f"{path} holds more than fits into memory; take fewer rows or columns") from error
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise TableError(f"{path} cannot be read as NPZ: {_first_line(error)}") from error
    if "X" not in arrays:
        raise TableError(f"{path} holds {listed(names)} but no array named 'X'")
    return arrays["X"], arrays.get("y")


def array_shape(path: Path, name: str) -> tuple[int, ...] | None:
    """The shape of an array of an NPZ file, from its header; None where it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            return _array_header(file)[0]
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return None


def _array_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    major, _ = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _check_size(archive: zipfile.ZipFile, member: str, path: Path) -> None:
    """Refuse an array whose header claims another size than it has, before that much memory is asked for."""
    with archive.open(member) as file:
        shape, dtype = _array_header(file)
        held = archive.getinfo(member).file_size - file.tell()
    claimed = math.prod(shape) * dtype.itemsize
    if claimed != held and not dtype.hasobject:
        raise TableError(
            f"{path} is damaged: its array {member.removesuffix('.npy')!r} claims the shape {shape}, "
            f"{claimed:,} bytes, but the file has {held:,}; save it anew"
        )


def _read_known(name: str) -> pd.DataFrame:
    """A registered data set as a table."""
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
        raise TableError(
            f"{where}: X has shape {X.shape}; a table needs two dimensions, rows and columns (`novidgp fit` "
            "takes images too: three or four)"
        )
    X, y = _plain(X, where), None if y is None else _plain(y, where)
    frame = pd.DataFrame(X, columns=[f"x{index}" for index in range(X.shape[1])])
    if y is not None:
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
        if y.shape != (len(X),):
            raise TableError(f"{where}: y has shape {y.shape} but X has {len(X)} rows; one target per row")
        frame["y"] = y
    return frame


def _plain(array: np.ndarray, where: str) -> np.ndarray:
    """An array as pandas takes it: in native byte order, and None for texts that mean a missing value."""
    if array.dtype.names is not None:
        raise TableError(f"{where} holds a structured array; save its fields as columns of one X")
    if array.dtype.kind not in "SU":
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    try:
        texts = array.astype(np.str_)
    except UnicodeDecodeError as error:
        raise TableError(f"{where} holds bytes that are no text; save numbers, or text as str") from error
    values = texts.astype(object)
    values[np.isin(np.char.strip(texts), _MISSING)] = None
    return values


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
