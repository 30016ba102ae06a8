"""Result files: one JSON line per finished fit, safe against a kill at any moment.

A line is one `write` to a file opened for appending, followed by `fsync`. If the machine stops in the middle,
at most the last line is incomplete, and the next run repairs it. A lock, which ends with its process, makes
sure that one run at a time writes a file.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from novidgp.bench.spec import Fit, fit_from_json

Record = dict[str, Any]


class Results:
    """The result file of a suite, open for appending."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            _lock(self._file, self.path)
            self.repaired = _repair(self._file, self.path)
        except BaseException:
            os.close(self._file)
            raise

    def append(self, record: Record) -> None:
        """Add a record. It is on the disk when this returns."""
        line = json.dumps(record, sort_keys=False, allow_nan=True).encode() + b"\n"
        written = os.write(self._file, line)
        if written != len(line):
            raise OSError(f"{self.path}: only {written} of {len(line)} bytes were written; is the disk full?")
        os.fsync(self._file)

    def records(self) -> list[Record]:
        """All records so far."""
        return read_records(self.path)

    def close(self) -> None:
        """Close the file and release the lock."""
        os.close(self._file)

    def __enter__(self) -> "Results":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_records(path: str | Path) -> list[Record]:
    """The records of a file, or none if it does not exist. An incomplete last line is skipped."""
    path = Path(path)
    if not path.exists():
        return []
    records = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            missing = {"key", "fit", "status"} - set(record)
            if missing:
                raise ValueError(f"no {sorted(missing)[0]!r}")
        except (ValueError, TypeError) as error:
            if number == len(lines):
                break
            raise ValueError(
                f"{path}, line {number}: not a record of `novidgp bench run` ({error}). Delete the line, or "
                "name another directory."
            ) from None
        records.append(record)
    return records


def finished(records: Iterable[Record]) -> dict[str, Record]:
    """The successful records by key, the last one if there are several."""
    return {record["key"]: record for record in records if record["status"] == "ok"}


def failed(records: Iterable[Record]) -> dict[str, Record]:
    """The failed records by key, without fits that succeeded at another time."""
    records = list(records)
    good = finished(records)
    return {r["key"]: r for r in records if r["status"] != "ok" and r["key"] not in good}


def fit_of(record: Record) -> Fit:
    """The fit that a record is about."""
    return fit_from_json(record["fit"])


def _lock(file: int, path: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows has no such lock: the user must not start two runs of one suite at once
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ValueError(
            f"{path} is being written by another `novidgp bench run`. Wait for it, or give another --out."
        ) from None


def _repair(file: int, path: Path) -> bool:
    """Add a missing last newline or drop an incomplete last line; whether there was anything to repair."""
    content = path.read_bytes()
    if not content or content.endswith(b"\n"):
        return False
    whole = content.rfind(b"\n") + 1
    try:
        complete = isinstance(json.loads(content[whole:]), dict)
    except ValueError:
        complete = False
    if complete:
        os.write(file, b"\n")
    else:
        os.ftruncate(file, whole)
    os.fsync(file)
    return True
