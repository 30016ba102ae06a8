"""Open the official raw files of a data set: single files, in a directory, or in an archive."""

import gzip
import io
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, cast

from novidgp.datasets.errors import DatasetError
from novidgp.datasets.info import DatasetInfo

_TAR_ENDINGS = (".tar", ".tar.gz", ".tgz")


class RawFiles:
    """The raw files of one data set, found from one path.

    `path` is a directory or a zip or tar archive that holds the official files (gzipped or not, at any depth
    in an archive), or a file itself. Where a data set has several files, naming any of them finds the others
    beside it; where it has one, the file may have any name. Archive members are streamed, never extracted.
    """

    def __init__(self, info: DatasetInfo, path: Path):
        self.info = info
        self.path = path

    @property
    def ending(self) -> str:
        """The lower-case suffix of `path`, for data sets that come in more than one format."""
        return self.path.suffix.lower()

    @contextmanager
    def open(self, file: str) -> Iterator[IO[bytes]]:
        """Open one official file by name, decompressed; damage found while reading is a `DatasetError`."""
        try:
            with self._open_stored(file) as (name, stored):
                if name.lower().endswith(".gz"):
                    with gzip.GzipFile(fileobj=stored) as stream:
                        yield cast(IO[bytes], stream)
                else:
                    yield stored
        except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, tarfile.TarError) as error:
            raise DatasetError(
                f"{self.info.name}: {self.path} is damaged or cut short ({error}); fetch it again"
            ) from error

    @contextmanager
    def _open_stored(self, file: str) -> Iterator[tuple[str, IO[bytes]]]:
        lower = self.path.name.lower()
        if self.path.is_dir():
            location = self._beside(self.path, file)
            with location.open("rb") as stream:
                yield location.name, stream
        elif lower.endswith(".zip"):
            with zipfile.ZipFile(self.path) as archive:
                member = self._member(archive.namelist(), file)
                with archive.open(member) as stream:
                    yield member, stream
        elif lower.endswith(_TAR_ENDINGS):
            with tarfile.open(self.path) as archive:
                member = self._member(archive.getnames(), file)
                stream = archive.extractfile(member)
                if stream is None:
                    raise DatasetError(f"{self.info.name}: {member} in {self.path} is not a regular file")
                with stream:
                    yield member, stream
        else:
            alone = len(self.info.files) == 1 or file not in self.info.files
            location = self.path if alone else self._beside(self.path.parent, file)
            with location.open("rb") as stream:
                yield location.name, stream

    def _beside(self, directory: Path, file: str) -> Path:
        for candidate in (directory / file, directory / f"{file}.gz"):
            if candidate.is_file():
                return candidate
        raise DatasetError(
            f"{self.info.name}: {file} is missing from {directory}; all of {self._wanted()} are read"
        )

    def _member(self, names: list[str], file: str) -> str:
        for name in names:
            if PurePosixPath(name).name in (file, f"{file}.gz"):
                return name
        raise DatasetError(
            f"{self.info.name}: {file} is missing from {self.path}; all of {self._wanted()} are read"
        )

    def _wanted(self) -> str:
        return ", ".join(self.info.files)

    def read(self, file: str) -> io.BytesIO:
        """The whole of one file in memory, for readers that seek."""
        with self.open(file) as stream:
            return io.BytesIO(stream.read())
