"""Loading a model file with the encoding of its table."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from novidgp.cli.console import warn

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from novidgp.prediction.predictive import Predictive
    from novidgp.tables.encode import TableEncoding
    from novidgp.tables.images import ImageEncoding, Images

ENCODING = "table"
"""Key of the encoding in the model file's `extra`."""
ROWS_AT_ONCE = 10_000
"""Bounds the memory of predictions, which hold a mean and a variance per row and path."""


def load_with_encoding(path: str) -> "tuple[Any, TableEncoding | ImageEncoding]":
    """The estimator in a model file, and the encoding from tables, or files of images, to its inputs."""
    import novidgp
    from novidgp.tables.encode import TableEncoding
    from novidgp.tables.errors import TableError
    from novidgp.tables.images import ImageEncoding, is_image_encoding

    model = novidgp.load_model(path)
    stored = (getattr(model, "extra_", None) or {}).get(ENCODING)
    if stored is None:
        raise TableError(
            f"{path} was saved from Python and knows no column names; load it there with novidgp.load_model"
        )
    if is_image_encoding(stored):
        return model, ImageEncoding(stored["task"])
    cast(Any, model).__dict__.pop("feature_names_in_", None)  # the encoding puts the columns in order
    return model, TableEncoding.from_json(stored)


def images_of(source: str) -> "Images":
    """The images of a file, for a model of images."""
    from novidgp.tables.errors import TableError
    from novidgp.tables.images import read_images

    found = read_images(source)
    if found is None:
        raise TableError(
            f"{source}: the model is for images; give an .npz file whose X has 3 or 4 dimensions"
        )
    return found


def predictives(model: Any, X: "np.ndarray") -> "Iterator[Predictive]":
    """The predictive distributions of blocks of consecutive rows: each row is propagated once."""
    for start in range(0, len(X), ROWS_AT_ONCE):
        yield model.predictive(X[start : start + ROWS_AT_ONCE])


def warn_of_extra_columns(encoding: "TableEncoding", frame: "pd.DataFrame") -> None:
    """Warn of columns that the model does not use."""
    extra = encoding.extra_columns(frame)
    if extra:
        shown = ", ".join(map(repr, extra[:8])) + (", ..." if len(extra) > 8 else "")
        warn(f"columns the model does not know are left out: {shown}")
