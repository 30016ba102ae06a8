"""The header of a CSV file, read before pandas reads the file.

pandas gives columns of one name other names, and needs minutes for a header of a million names.
"""

import contextlib
import csv
import gzip
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from novidgp.tables.errors import TableError

MAX_COLUMNS = 100_000
_SEPARATORS = (",", ";", "\t", "|")


class Header(NamedTuple):
    """The names of a table's columns and the character between them."""

    names: list[str]
    separator: str


def read_header(path: Path) -> Header:
    """The header of a CSV file, which must be followed by a row.

    The separator is the one that splits the header and the first row alike, and into most parts. Where none
    does, it is the first one in the header.
    """
    separators = ("\t",) if ".tsv" in path.name.lower() else _SEPARATORS
    tops: dict[str, list[list[str]]] = {}
    for separator in separators:
        with contextlib.suppress(csv.Error):  # a line that this separator does not split is too long a name
            tops[separator] = _two_lines(path, separator)
    if not tops:
        raise TableError(f"{path} cannot be read as CSV: its first line is no list of names")
    if any(len(top) < 2 for top in tops.values()):
        raise TableError(f"{path} holds no rows")
    split = [mark for mark, (header, _) in tops.items() if len(header) > 1]
    alike = [mark for mark in split if len(tops[mark][0]) == len(tops[mark][1])]
    chosen = max(alike, key=lambda mark: len(tops[mark][0])) if alike else (split or list(tops))[0]
    names, values = tops[chosen]
    if len(values) > len(names):  # pandas would take the first value for a label of the row
        raise TableError(
            f"{path} has {len(values)} values in its first row but {len(names)} names in its header; "
            f"name every column, and put values that contain {chosen!r} in quotes"
        )
    return Header([name.strip() for name in names], chosen)


def check_names(names: Sequence[str], path: Path) -> None:
    """Refuse a table with two columns of one name, or with too many columns."""
    if len(names) > MAX_COLUMNS:
        raise TableError(f"{path} has {len(names):,} columns (at most {MAX_COLUMNS:,}); leave some out")
    places: dict[str, int] = {}
    for place, name in enumerate(names, start=1):
        if name and places.setdefault(name, place) != place:
            raise TableError(
                f"{path} has two columns named {name!r}, the {_ordinal(places[name])} and the "
                f"{_ordinal(place)}; rename or remove one"
            )


def _two_lines(path: Path, separator: str) -> list[list[str]]:
    """The first two rows that are not blank, as pandas would split them."""
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter=separator)
        return list(itertools.islice((row for row in rows if len(row) > 1 or "".join(row).strip()), 2))


def _ordinal(place: int) -> str:
    ending = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{ending}"
