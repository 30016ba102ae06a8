"""Turn the official raw files of each data set into `X` and `y`.

A parser knows the layout of files only; the facts of a data set are checked afterwards by its fingerprint.
The rows of an official test set follow the training rows. Tables become float32, images uint8 and classes
int64 indices, as in the `.npz` files that the importer writes.
"""

import zipfile
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from novidgp.datasets.errors import DatasetError
from novidgp.datasets.raw import RawFiles

Arrays = tuple[np.ndarray, np.ndarray]
Parser = Callable[[RawFiles], Arrays]

AIRLINE_COLUMNS = (
    "Month",
    "DayofMonth",
    "DayOfWeek",
    "plane_age",
    "AirTime",
    "Distance",
    "ArrTime",
    "DepTime",
)


def parse(raw: RawFiles) -> Arrays:
    """Parse the raw files of the data set `raw` was opened for."""
    try:
        return PARSERS[raw.info.name](raw)
    except DatasetError:
        raise
    except (ValueError, KeyError, IndexError, zipfile.BadZipFile) as error:
        raise DatasetError(
            f"{raw.info.name}: {raw.path} cannot be read ({error}); expected the official "
            f"{', '.join(raw.info.files)}"
        ) from error


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _text_table(raw: RawFiles, file: str, dtype: type | None = None) -> pd.DataFrame:
    """A text table with any separator; a header line and ARFF or KEEL declarations are skipped.

    The first line that is neither blank nor a declaration decides: it is a header if none of its fields is a
    number, and its first `;`, `,` or else white space separates the fields.
    """
    with raw.open(file) as stream:
        skipped = 0
        for line in stream:
            text = line.decode("utf-8-sig").strip()
            if text and text[0] not in "@%#":
                break
            skipped += 1
        else:
            raise DatasetError(f"{raw.info.name}: {raw.path} has no rows")
        separator = next((mark for mark in ";," if mark in text), r"\s+")
        fields = text.split(None if separator == r"\s+" else separator)
        header = None if any(map(_is_number, fields)) else 0
        stream.seek(0)
        frame = pd.read_csv(
            stream,
            sep=separator,
            header=header,
            skiprows=skipped,
            skip_blank_lines=True,
            skipinitialspace=True,
            dtype=dtype,
            encoding="utf-8-sig",
        )
    return frame.rename(columns=lambda column: str(column).strip())


def _sheet(raw: RawFiles, file: str) -> pd.DataFrame:
    """The first sheet of a workbook, its first row the header, without its empty rows and columns."""
    content = raw.read(file)
    if not content.getvalue():
        raise DatasetError(f"{raw.info.name}: {raw.path} is empty")
    try:
        if content.getvalue()[:2] == b"PK":
            frame = pd.read_excel(content, sheet_name=0, engine="openpyxl")
        else:
            frame = _old_sheet(raw, content.getvalue())
    except ImportError as error:
        raise ImportError(
            f"{raw.info.name}: reading {file} needs the extra 'excel': pip install 'novidgp[excel]' ({error})"
        ) from error
    return frame.dropna(how="all").dropna(how="all", axis="columns")


def _old_sheet(raw: RawFiles, content: bytes) -> pd.DataFrame:
    """The first sheet of an `.xls`, read by xlrd directly because pandas is dropping its support."""
    import xlrd
    from xlrd.biffh import XLRDError
    from xlrd.compdoc import CompDocError

    try:
        sheet = xlrd.open_workbook(file_contents=content).sheet_by_index(0)
    except (XLRDError, CompDocError) as error:
        raise DatasetError(f"{raw.info.name}: {raw.path} is not an Excel workbook ({error})") from error
    header, *rows = (sheet.row_values(row) for row in range(sheet.nrows))
    return pd.DataFrame(rows, columns=list(map(str, header))).replace("", np.nan)


def _numbers(raw: RawFiles, frame: pd.DataFrame) -> np.ndarray:
    """All columns as float64; the error for a field that is no number names the first one."""
    columns = []
    for name in frame.columns:
        values = np.asarray(pd.to_numeric(frame[name], errors="coerce"), np.float64)
        bad = np.flatnonzero(np.isnan(values))
        if bad.size:
            raise DatasetError(
                f"{raw.info.name}: row {bad[0] + 1}, column {name} of {raw.path.name} is "
                f"{frame[name].iloc[bad[0]]!r}, not a number: is the file complete?"
            )
        columns.append(values)
    return np.column_stack(columns)


def _coded_first(raw: RawFiles, frame: pd.DataFrame, codes: dict[str, int]) -> np.ndarray:
    """As `_numbers`, with the words in the first column replaced by their codes."""
    first = frame.columns[0]
    words = [str(word).strip() for word in frame[first]]
    unknown = sorted(set(words) - codes.keys())
    if unknown:
        raise DatasetError(
            f"{raw.info.name}: column {first} of {raw.path.name} has {unknown[0]!r}, expected one of "
            f"{', '.join(codes)}: is this the right file?"
        )
    return _numbers(raw, frame.assign(**{str(first): [codes[word] for word in words]}))


def _split(values: np.ndarray, target: int = -1, drop: tuple[int, ...] = ()) -> Arrays:
    """Take the target column out, and leave out columns that are neither feature nor target."""
    y = values[:, target]
    X = np.delete(values, (target, *drop), axis=1)
    return X.astype(np.float32), y.astype(np.float32)


def _only(raw: RawFiles) -> str:
    return raw.info.files[0]


def _table(raw: RawFiles, target: int = -1) -> Arrays:
    return _split(_numbers(raw, _text_table(raw, _only(raw))), target)


def _log_protein(raw: RawFiles) -> Arrays:
    """`log(1 + RMSD)`, the target of half of the literature."""
    X, y = _table(raw, target=0)
    return X, np.log1p(y)


def _workbook(raw: RawFiles, target: int = -1, drop: tuple[int, ...] = ()) -> Arrays:
    return _split(_numbers(raw, _sheet(raw, _only(raw))), target, drop)


def _boston(raw: RawFiles) -> Arrays:
    """UCI's file has one line per row, StatLib's has prose and then two lines per row: 14 numbers in both."""
    with raw.open(_only(raw)) as stream:
        lines = [line.split() for line in stream.read().decode("latin-1").splitlines()]
    numbers = [float(field) for line in lines if all(map(_is_number, line)) for field in line]
    if not numbers or len(numbers) % 14:
        raise DatasetError(
            f"{raw.info.name}: {raw.path} holds {len(numbers)} numbers, expected 14 a row: "
            "is the file complete?"
        )
    return _split(np.reshape(numbers, (-1, 14)))


def _elevators(raw: RawFiles) -> Arrays:
    """The `.mat` copy is read as it is; the raw files are centred, the target after taking its logarithm."""
    if raw.ending == ".mat":
        from scipy.io import loadmat

        return _split(np.asarray(loadmat(raw.read(raw.path.name))["data"], np.float64))
    single = raw.ending in (".arff", ".csv")
    files = (raw.path.name,) if single else raw.info.files
    values = np.concatenate([_numbers(raw, _text_table(raw, file)) for file in files])
    if (values[:, -1] <= 0.0).any():
        raise DatasetError(
            f"{raw.info.name}: the target Goal has values that are not positive: wrong column?"
        )
    values[:, -1] = np.log(values[:, -1])
    return _split(values - values.mean(axis=0))


def _year(raw: RawFiles) -> Arrays:
    values = _text_table(raw, _only(raw), dtype=np.float32).to_numpy()
    return values[:, 1:], values[:, 0]


def _airline(raw: RawFiles) -> Arrays:
    with raw.open(_only(raw)) as stream:
        frame = pd.read_csv(stream, usecols=[*AIRLINE_COLUMNS, "ArrDelay"], dtype=np.float32)
    return frame[list(AIRLINE_COLUMNS)].to_numpy(), frame["ArrDelay"].to_numpy()


def _class_index(labels: np.ndarray) -> np.ndarray:
    """Labels as indices into their sorted distinct values."""
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def _classes(raw: RawFiles) -> Arrays:
    X, y = _table(raw)
    return X, _class_index(y)


def _ringnorm(raw: RawFiles) -> Arrays:
    values = _numbers(raw, _text_table(raw, _only(raw)))
    X = values[:, :-1]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X.astype(np.float32), _class_index(values[:, -1])


def _abalone(raw: RawFiles) -> Arrays:
    X, rings = _split(_coded_first(raw, _text_table(raw, _only(raw)), {"F": 0, "I": 1, "M": 2}))
    return X, np.digitize(rings, [8.5, 10.5]).astype(np.int64)


def _wilt(raw: RawFiles) -> Arrays:
    frame = pd.concat([_text_table(raw, file) for file in raw.info.files], ignore_index=True)
    X, y = _split(_coded_first(raw, frame, {"n": 0, "w": 1}), target=0)
    return X, y.astype(np.int64)


def _idx(raw: RawFiles, file: str) -> np.ndarray:
    """LeCun's idx format, unsigned bytes: two zeros, 8, the number of axes, their sizes, the entries."""
    content = raw.read(file).getvalue()
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise DatasetError(
            f"{raw.info.name}: {file} is not an idx file of unsigned bytes: is it the right file?"
        )
    start = 4 + 4 * content[3]
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], ">u4"))
    if len(content) - start != int(np.prod(shape)):
        raise DatasetError(
            f"{raw.info.name}: {file} holds {len(content) - start} entries, its head says {shape}: "
            "is the file complete?"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _idx_images(raw: RawFiles) -> Arrays:
    train_images, train_labels, test_images, test_labels = (_idx(raw, file) for file in raw.info.files)
    X = np.concatenate([train_images, test_images])
    return X, np.concatenate([train_labels, test_labels]).astype(np.int64)


def _cifar10(raw: RawFiles) -> Arrays:
    """The binary version: a label byte, then the red, green and blue plane of 32 by 32 bytes."""
    record = 1 + 3 * 32 * 32
    batches = []
    for file in raw.info.files:
        content = raw.read(file).getvalue()
        if len(content) % record:
            raise DatasetError(
                f"{raw.info.name}: {file} has {len(content)} bytes, not a multiple of {record}: "
                "is the file complete?"
            )
        batches.append(np.frombuffer(content, np.uint8).reshape(-1, record))
    rows = np.concatenate(batches)
    planes = rows[:, 1:].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), rows[:, 0].astype(np.int64)


PARSERS: dict[str, Parser] = {
    "boston": _boston,
    "energy": partial(_workbook, target=-2, drop=(-1,)),
    "power": _workbook,
    "concrete": _workbook,
    "yacht": _table,
    "qsar": _table,
    "protein": partial(_table, target=0),
    "protein-log": _log_protein,
    "kin8nm": _table,
    "estate": partial(_workbook, drop=(0,)),
    "elevators": _elevators,
    "year": _year,
    "airline": _airline,
    "wine_red_cls": _classes,
    "wine_white_cls": _classes,
    "abalone_cls": _abalone,
    "german": _classes,
    "wilt": _wilt,
    "twonorm": _classes,
    "ringnorm": _ringnorm,
    "mnist": _idx_images,
    "fashion_mnist": _idx_images,
    "cifar10": _cifar10,
}
