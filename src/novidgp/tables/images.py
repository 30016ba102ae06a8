"""Files of images: an NPZ whose `X` has three or four dimensions, or a data set of images known by name."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from novidgp.datasets.info import Task
from novidgp.tables.errors import TableError
from novidgp.tables.read import array_shape, npz_arrays

_KEY = "images"


@dataclass(frozen=True)
class Images:
    """Images `(n, height, width[, channels])`, and what they show, if the file says."""

    X: np.ndarray
    y: np.ndarray | None

    def target(self, where: str) -> np.ndarray:
        """One target for every image; refused where there is none."""
        if self.y is None:
            raise TableError(f"{where} holds no array named 'y'; save what the images show beside them")
        y = self.y[:, 0] if self.y.ndim == 2 and self.y.shape[1] == 1 else self.y
        if y.shape != (len(self.X),):
            raise TableError(
                f"{where}: y has shape {y.shape} but X has {len(self.X)} images; one target each"
            )
        return y


@dataclass(frozen=True)
class ImageEncoding:
    """What a model file keeps of the file of images it was fitted to."""

    task: Task

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {_KEY: True, "task": self.task}


def is_image_encoding(stored: dict[str, Any]) -> bool:
    """Whether a model file's encoding is that of images."""
    return _KEY in stored


def read_images(source: str | Path) -> Images | None:
    """The images of a file or of a data set known by name; None where it is a table."""
    path = Path(source)
    if not path.exists():
        return _read_known(str(source))
    if path.suffix.lower() != ".npz" or not zipfile.is_zipfile(path):
        return None
    if len(array_shape(path, "X") or ()) < 3:
        return None
    return Images(*npz_arrays(path))


def choose_image_task(y: np.ndarray, task: str) -> Task:
    """The task asked for; `auto` is regression for numbers with a fraction, and classification otherwise."""
    if task not in ("auto", "regression", "classification"):
        raise TableError(f"--task {task}: use regression, classification or auto")
    if task == "auto":
        return "regression" if y.dtype.kind == "f" and not np.all(y == np.round(y)) else "classification"
    return "regression" if task == "regression" else "classification"


def _read_known(name: str) -> Images | None:
    from novidgp.datasets import dataset_info, dataset_names, load_dataset

    if name not in dataset_names() or not dataset_info(name).images:
        return None
    dataset = load_dataset(name)
    return Images(dataset.X, dataset.y)
