"""Loading a data set by name."""

from dataclasses import dataclass

import numpy as np

from novidgp.datasets.builtin import load_builtin
from novidgp.datasets.cache import read_arrays, require_dataset
from novidgp.datasets.fingerprint import check_fingerprint
from novidgp.datasets.info import DatasetInfo
from novidgp.datasets.registry import dataset_info


@dataclass(frozen=True, eq=False)
class Dataset:
    """A checked data set: all rows in the order of its file, nothing scaled.

    `X` has shape (n, d), for images (n, height, width) or (n, height, width, channels) in uint8; `y` has
    shape (n,), float for regression and int64 class indices for classification. Where there is an official
    split, its test rows are the last ones.
    """

    name: str
    X: np.ndarray
    y: np.ndarray
    info: DatasetInfo

    def __len__(self) -> int:
        return len(self.y)

    @property
    def official_train_rows(self) -> int | None:
        """Number of official training rows, `None` without an official split."""
        return self.info.official_train_rows


def load_dataset(name: str) -> Dataset:
    """Load a data set by name and check its fingerprint.

    Raises `UnknownDatasetError` for a name not in the registry, `DatasetNotFoundError` (with instructions)
    when its file is not on this machine, `DatasetError` when the file holds something else.
    """
    info = dataset_info(name)
    if info.builtin:
        X, y = load_builtin(name)
        check_fingerprint(info, X, y)
    else:
        X, y = read_arrays(info, require_dataset(name))
    return Dataset(name=name, X=X, y=y, info=info)
