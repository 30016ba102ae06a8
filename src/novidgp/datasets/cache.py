"""Where data sets are on this machine, and how they are imported and fetched.

A data set is one `<name>.npz` (arrays `X`, `y`, and `X_test`, `y_test` for image sets) in the directory named
by the environment variable `NOVIDGP_DATA` or in the user's cache directory, or a folder `<name>/` with the
official raw files. Nothing is ever unpickled.
"""

import os
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import platformdirs

from novidgp.datasets.download import download
from novidgp.datasets.errors import DatasetError, DatasetNotFoundError, DownloadError
from novidgp.datasets.fingerprint import check_fingerprint
from novidgp.datasets.info import DatasetInfo
from novidgp.datasets.raw import RawFiles
from novidgp.datasets.registry import dataset_info
from novidgp.storage import atomic_write

DATA_VARIABLE = "NOVIDGP_DATA"


def cache_directory() -> Path:
    """The user's own data directory, where imports are written."""
    return platformdirs.user_cache_path("novidgp") / "data"


def search_path() -> tuple[Path, ...]:
    """The directories searched for data sets, first match first."""
    named = os.environ.get(DATA_VARIABLE)
    return (*((Path(named),) if named else ()), cache_directory())


def locate_dataset(name: str) -> Path | None:
    """The file or folder that a data set is read from, `None` if it is not on this machine."""
    dataset_info(name)
    for directory in search_path():
        for candidate in (directory / f"{name}.npz", directory / name):
            if candidate.exists():
                return candidate
    return None


def is_available(name: str) -> bool:
    """Whether `load_dataset` finds the data set without a download."""
    return dataset_info(name).builtin or locate_dataset(name) is not None


def how_to_get(info: DatasetInfo) -> str:
    """Instructions for getting the files of a data set."""
    fetch = f"`novidgp data fetch {info.name}` downloads it; or by hand: " if info.urls else ""
    return (
        f"{fetch}get {', '.join(info.files)} from {info.source} and run "
        f"`novidgp data import {info.name} FILE`, or set {DATA_VARIABLE} to a directory with {info.name}.npz"
    )


def read_arrays(info: DatasetInfo, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read `X`, `y` (all rows) from an `.npz`, raw file, archive or folder and check the fingerprint."""
    if not path.exists():
        raise FileNotFoundError(f"{info.name}: no file {path}")
    if path.suffix == ".npz":
        X, y = _read_npz(info, path)
    else:
        from novidgp.datasets.parsers import parse  # needs pandas

        X, y = parse(RawFiles(info, path))
    check_fingerprint(info, X, y, str(path))
    return X, y


def _read_npz(info: DatasetInfo, path: Path) -> tuple[np.ndarray, np.ndarray]:
    if not zipfile.is_zipfile(path):
        raise DatasetError(f"{info.name}: {path} cannot be read: it is no .npz, or cut short")
    try:
        with np.load(path, allow_pickle=False) as stored:
            X, y = stored["X"], stored["y"]
            if "X_test" in stored.files:
                X, y = np.concatenate([X, stored["X_test"]]), np.concatenate([y, stored["y_test"]])
    except (EOFError, ValueError, KeyError, zlib.error, zipfile.BadZipFile) as error:
        raise DatasetError(
            f"{info.name}: {path} cannot be read ({error}); expected an .npz with plain arrays X and y"
        ) from error
    return X, y


def import_dataset(name: str, file: str | Path, directory: Path | None = None) -> Path:
    """Parse an official raw file, check it, and store it as `<directory>/<name>.npz`; return that path.

    `file` may be the raw file, one of several, an archive or directory of them, or an `.npz`. `directory`
    is the user's cache unless given. The file appears whole or not at all.
    """
    info = _file_based(name)
    X, y = read_arrays(info, Path(file))
    arrays = {"X": X, "y": y}
    if info.images:
        cut = info.official_train_rows
        arrays = {"X": X[:cut], "y": y[:cut], "X_test": X[cut:], "y_test": y[cut:]}
    directory = cache_directory() if directory is None else directory
    directory.mkdir(parents=True, exist_ok=True)
    destination = directory / f"{name}.npz"
    with atomic_write(destination) as stream:
        np.savez_compressed(stream, **arrays)  # pyright: ignore[reportArgumentType]  # ** is read as allow_pickle
    return destination


def fetch_dataset(
    name: str,
    *,
    url: str | Sequence[str] | None = None,
    directory: Path | None = None,
    attempts: int = 3,
    backoff: float = 1.0,
    progress: bool = True,
) -> Path:
    """Download a data set from its official address and import it; return the stored path.

    `url` (one, or one for each raw file) replaces the official address. Each download is tried `attempts`
    times, waiting `backoff` seconds before the second and twice as long before each further one.
    """
    info = _file_based(name)
    urls = info.urls if url is None else (url,) if isinstance(url, str) else tuple(url)
    if not urls:
        raise DownloadError(f"{name}: no direct address is known; {how_to_get(info)}")
    directory = cache_directory() if directory is None else directory
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=f".{name}-") as scratch:
        try:
            files = [
                download(address, Path(scratch), attempts=attempts, backoff=backoff, progress=progress)
                for address in urls
            ]
        except OSError as error:
            raise DownloadError(f"{name}: download failed ({error}); {how_to_get(info)}") from error
        return import_dataset(name, files[0] if len(files) == 1 else Path(scratch), directory)


def _file_based(name: str) -> DatasetInfo:
    info = dataset_info(name)
    if info.builtin:
        raise DatasetError(f"{name} is built in: load_dataset({name!r}) needs no file")
    return info


def require_dataset(name: str) -> Path:
    """The path of a data set; raises `DatasetNotFoundError` with instructions if there is none."""
    path = locate_dataset(name)
    if path is None:
        searched = ", ".join(map(str, search_path()))
        raise DatasetNotFoundError(f"{name}: not found in {searched}; {how_to_get(dataset_info(name))}")
    return path
