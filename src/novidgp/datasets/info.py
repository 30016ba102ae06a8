"""The record of what the library knows about a data set.

The facts are kept apart from the arrays: a benchmark table can name licence, citation and size without any
file, and every load is compared with the recorded `Fingerprint`, so that a wrong column, a truncated download
or another data set under the right name is refused.
"""

import math
from dataclasses import dataclass
from typing import Literal

Task = Literal["regression", "classification"]

UCI = "https://archive.ics.uci.edu"
CC_BY = "CC BY 4.0"
DELVE = "free for research (DELVE; no licence stated)"


@dataclass(frozen=True)
class Fingerprint:
    """Order-free facts that tell one data set from another.

    No field depends on the order of the rows (several official files come in more than one order), except
    that feature statistics and `train_class_counts` are over the official training rows where a data set has
    an official split. `None` means the fact is not known and is not checked.
    """

    shape: tuple[int, ...]
    """Shape of `X` over all rows, training and test."""
    target_mean: float | None = None
    target_sd: float | None = None
    class_counts: tuple[int, ...] | None = None
    train_class_counts: tuple[int, ...] | None = None
    feature_mean: float | None = None
    """Mean of all entries of `X`."""
    feature_sd: float | None = None
    """Standard deviation of all entries of `X`."""


@dataclass(frozen=True)
class DatasetInfo:
    """Everything known about one data set without reading it."""

    name: str
    task: Task
    target: str
    """What `y` holds, in words."""
    licence: str
    citation: str
    source: str
    """The official page, for people to read."""
    fingerprint: Fingerprint
    files: tuple[str, ...] = ()
    """Names of the official raw files. With a single one, the importer takes any file name."""
    urls: tuple[str, ...] = ()
    """Direct addresses of the raw files or of one archive with all of them; empty if there are none."""
    official_train_rows: int | None = None
    """Rows before this one are the official training set, the others the official test set."""
    builtin: bool = False
    """Needs no file: comes with scikit-learn or is drawn by this package."""
    note: str = ""

    @property
    def rows(self) -> int:
        """Number of rows, training and test together."""
        return self.fingerprint.shape[0]

    @property
    def columns(self) -> int:
        """Number of features of a row; for images, of pixels times channels."""
        return math.prod(self.fingerprint.shape[1:])

    @property
    def classes(self) -> int | None:
        """Number of classes, `None` for regression."""
        counts = self.fingerprint.class_counts
        return None if counts is None else len(counts)

    @property
    def images(self) -> bool:
        """Whether a row of `X` is an image rather than a vector."""
        return len(self.fingerprint.shape) > 2
