"""Training rows in a file: scaled once, in the model's precision, and mapped into memory.

Whatever the rows come from (Parquet, CSV, a memory map, an object that gives rows) is read twice: for the
scaling and the checks, and to write this file. After that a run reads any rows at the disk's speed, and a
resumed run reads the same ones. The file has a directory to itself, under `NOVIDGP_ROWS` or in the user's
cache directory, and is used again by fits to the same rows.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from novidgp.numerics.scaling import RunningStandardiser, Standardiser, identity

VARIABLE = "NOVIDGP_ROWS"
_VERSION = 1
_ROWS, _ABOUT = "rows.npy", "about.json"
_KEPT_DAYS = 14.0
"""Files that no fit has used for so long are removed when another is written."""


class Block(NamedTuple):
    """Rows: inputs `(n, d)` and targets `(n, t)`, without NaN."""

    x: np.ndarray
    y: np.ndarray


@runtime_checkable
class RowSource(Protocol):
    """Rows that can be read from the first to the last, as often as is needed."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def identity(self) -> str:
        """Equal only for sources of equal rows; empty where that cannot be told without reading them."""
        ...

    def blocks(self) -> Iterator[Block]:
        """All rows, in blocks of bounded size."""
        ...


@dataclass(frozen=True, eq=False)
class RowFile:
    """Scaled rows on disk."""

    rows: np.ndarray
    """A memory map `(n, d + t)`: inputs, then targets."""
    inputs: Standardiser
    targets: Standardiser
    digest: str
    """A fingerprint of the rows."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_inputs(self) -> int:
        """Columns of the inputs."""
        return len(self.inputs.shift)

    def read(self, numbers: np.ndarray) -> Block:
        """The scaled rows with these numbers, read in the order of the file."""
        order = np.argsort(numbers, kind="stable")
        found = np.empty((len(numbers), self.rows.shape[1]), self.rows.dtype)
        found[order] = self.rows[numbers[order]]
        return Block(found[:, : self.num_inputs], found[:, self.num_inputs :])


def write_rows(source: RowSource, dtype: str, *, scale_targets: bool) -> RowFile:
    """The file of a source, written now or by an earlier fit to the same rows."""
    folder = rows_directory()
    known = source.identity
    name = hashlib.blake2b(f"{_VERSION} {known} {dtype} {scale_targets}".encode(), digest_size=12).hexdigest()
    if known and (folder / name / _ABOUT).exists():
        with contextlib.suppress(OSError, ValueError, LookupError):
            return _open(folder / name)
    _remove_old(folder)
    work = Path(tempfile.mkdtemp(prefix=".writing-", dir=folder))
    try:
        _write(source, work, dtype, scale_targets)
        if not known:  # nobody can find it again: a memory map needs no name
            return _open(work)
        with contextlib.suppress(OSError):  # another process was faster: its file has the same rows
            work.rename(folder / name)
        return _open(folder / name)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def rows_directory() -> Path:
    """Where files of rows are kept. It is made if need be."""
    import platformdirs

    wanted = os.environ.get(VARIABLE)
    folder = Path(wanted).expanduser() if wanted else platformdirs.user_cache_path("novidgp") / "rows"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(
            f"Rows that do not fit into memory are copied to {folder}, which cannot be written ({error}). "
            f"Name another directory in the environment variable {VARIABLE}."
        ) from error
    return folder


def _write(source: RowSource, folder: Path, dtype: str, scale_targets: bool) -> None:
    """Learn the scaling, then write scaled rows and what is known about them."""
    inputs, targets, count = RunningStandardiser(), RunningStandardiser(), 0
    for x, y in source.blocks():
        inputs.add(x)
        targets.add(y)
        count += len(x)
    if count < 2:
        raise ValueError(f"{source.name} holds {count} rows; a fit needs at least two.")
    x_scale = inputs.standardiser()
    y_scale = targets.standardiser() if scale_targets else identity(targets.columns)
    shape = count, inputs.columns + targets.columns
    kind = np.dtype(dtype)
    _check_space(folder, int(np.prod(shape)) * kind.itemsize, source)
    total, place = hashlib.blake2b(digest_size=16), 0
    with (folder / _ROWS).open("wb") as file:
        header = {"descr": kind.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for x, y in source.blocks():
            block = np.concatenate([x_scale.inputs(x), y_scale.targets(y)], axis=1).astype(kind).tobytes()
            file.write(block)
            total.update(block)
            place += len(x)
    if place != count:
        raise ValueError(f"{source.name} changed while it was read: {count:,} rows, then {place:,}.")
    about = {
        "inputs": [part.tolist() for part in x_scale],
        "targets": [part.tolist() for part in y_scale],
        "digest": total.hexdigest(),
        "source": source.name,
    }
    (folder / _ABOUT).write_text(json.dumps(about))


def _open(folder: Path) -> RowFile:
    about: dict[str, Any] = json.loads((folder / _ABOUT).read_text())
    os.utime(folder / _ABOUT)
    inputs, targets = (Standardiser(*map(np.asarray, about[name])) for name in ("inputs", "targets"))
    return RowFile(np.load(folder / _ROWS, mmap_mode="r"), inputs, targets, about["digest"])


def _check_space(folder: Path, size: int, source: RowSource) -> None:
    """Refuse to fill a disk, before anything is written."""
    free = shutil.disk_usage(folder).free
    if size > free:
        raise OSError(
            f"The rows of {source.name} take {size / 2**20:,.0f} MB on disk, and {folder.parent} has "
            f"{free / 2**20:,.0f} MB left. Free some, or name another directory in the environment variable "
            f"{VARIABLE}."
        )


def _remove_old(folder: Path) -> None:
    oldest = time.time() - 86_400 * _KEPT_DAYS
    for entry in folder.iterdir():
        with contextlib.suppress(OSError):
            about = entry / _ABOUT
            if (about if about.exists() else entry).stat().st_mtime < oldest:
                shutil.rmtree(entry, ignore_errors=True)
