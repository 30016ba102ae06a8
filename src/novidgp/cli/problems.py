"""What `novidgp fit` is to learn: inputs and targets of a table or of a file of images."""

from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from novidgp.cli.console import warn

if TYPE_CHECKING:
    import numpy as np

    from novidgp.tables.images import Images


class Problem(NamedTuple):
    """Inputs and targets as the estimators take them, and how they came about."""

    X: Any
    """An array, or a source of rows and targets that stay on disk."""
    y: "np.ndarray | None"
    """None where the source has them."""
    task: str
    target: str
    rows: str
    """What a row is, in words."""
    encoding: dict[str, Any]
    """Kept in the model file, so that predictions read their rows in the same way."""


def read_problem(data: str, target: str | None, task: str, drop: list[str]) -> Problem:
    """The problem in a table, a file of images or a known data set."""
    from novidgp.tables.files import is_big
    from novidgp.tables.images import read_images

    if is_big(data):
        return _on_disk(data, target, task, drop)
    images = read_images(data)
    if images is not None:
        return _of_images(images, data, target, task, drop)
    return _of_table(data, target, task, drop)


def _on_disk(data: str, target: str | None, task: str, drop: list[str]) -> Problem:
    from novidgp.estimators.sources import TableRows

    rows = TableRows(data, target or "y", task, tuple(drop))
    encoding = rows.encoding
    features = len(encoding.matrix_columns)
    words = f"rows on disk, {len(encoding.columns)} columns, {features} features"
    return Problem(rows, None, encoding.task, encoding.target, words, encoding.to_json())


def _of_images(images: "Images", data: str, target: str | None, task: str, drop: list[str]) -> Problem:
    from novidgp.tables.errors import TableError
    from novidgp.tables.images import ImageEncoding, choose_image_task

    if drop or target not in (None, "y"):
        raise TableError(f"{data} holds images, which have no columns; leave --target and --drop out")
    y = images.target(data)
    kind = choose_image_task(y, task)
    shape = " x ".join(map(str, images.X.shape[1:]))
    return Problem(images.X, y, kind, "y", f"images of {shape}", ImageEncoding(kind).to_json())


def _of_table(data: str, target: str | None, task: str, drop: list[str]) -> Problem:
    from pathlib import Path

    from novidgp.tables.encode import TableEncoding, choose_task, split_target, target_values
    from novidgp.tables.errors import TableError
    from novidgp.tables.read import read_table

    frame = read_table(data)
    if target is None:
        if "y" not in frame.columns or Path(data).suffix.lower() == ".csv":
            raise typer.BadParameter(
                f"name the column to predict, one of: {', '.join(frame.columns[:20])}", param_hint="--target"
            )
        target = "y"
    absent = [name for name in drop if name not in frame.columns]
    if absent:
        raise TableError(f"--drop {absent[0]}: the table has no such column")
    table, column = split_target(frame.drop(columns=drop), target)
    kind = choose_task(column, task)
    if kind == "regression" and task == "auto" and column.nunique() == 2:
        warn(f"target {target!r} has two values; for classes use --task classification")
    encoding = TableEncoding.learn(table, target, kind)
    X = encoding.encode(table)
    rows = f"rows, {len(table.columns)} columns, {X.shape[1]} features"
    return Problem(X, target_values(column, kind), kind, target, rows, encoding.to_json())
