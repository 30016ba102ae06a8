"""Compare arrays with the recorded facts of their data set."""

import numpy as np

from novidgp.datasets.errors import DatasetError
from novidgp.datasets.info import DatasetInfo

TOLERANCE = 1e-3
"""Largest accepted error of a mean or a standard deviation, in standard deviations.

Copies of one data set differ by rounding, which moves these by far less; a wrong column moves them by more.
"""

_ROWS_AT_ONCE = 8192


def moments(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of all entries in double precision, without a double-precision copy."""
    total = squares = 0.0
    for start in range(0, len(values), _ROWS_AT_ONCE):
        block = values[start : start + _ROWS_AT_ONCE].astype(np.float64)
        total += block.sum()
        squares += np.square(block).sum()
    mean = total / values.size
    return float(mean), float(np.sqrt(max(squares / values.size - mean**2, 0.0)))


def check_fingerprint(info: DatasetInfo, X: np.ndarray, y: np.ndarray, origin: str = "") -> None:
    """Raise `DatasetError` naming the data set, the first fact that differs and `origin` (a file)."""
    where = f" (read from {origin})" if origin else ""
    expected = info.fingerprint
    if X.shape != expected.shape:
        hint = "is the file complete?" if X.shape[1:] == expected.shape[1:] else "is this the right file?"
        raise DatasetError(f"{info.name}: X has shape {X.shape}, expected {expected.shape}: {hint}{where}")
    if y.shape != expected.shape[:1]:
        raise DatasetError(f"{info.name}: y has shape {y.shape}, expected {expected.shape[:1]}{where}")
    for label, values in (("X", X), ("y", y)):
        if values.dtype.kind not in "iuf":
            raise DatasetError(f"{info.name}: {label} has dtype {values.dtype}, expected numbers{where}")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise DatasetError(f"{info.name}: {label} has missing or infinite values{where}")

    if expected.class_counts is None:
        _check_moments(
            f"{info.name}: target",
            y,
            expected.target_mean,
            expected.target_sd,
            "is this the right column?",
            where,
        )
    else:
        _check_classes(info, y, where)
    train = X[: info.official_train_rows]
    _check_moments(
        f"{info.name}: feature",
        train,
        expected.feature_mean,
        expected.feature_sd,
        "is this the right file?",
        where,
    )


def _check_moments(
    what: str, values: np.ndarray, mean: float | None, sd: float | None, hint: str, where: str
) -> None:
    if mean is None or sd is None:
        return
    for label, got, wanted in zip(("mean", "sd"), moments(values), (mean, sd), strict=True):
        if abs(got - wanted) > TOLERANCE * sd:
            raise DatasetError(f"{what} {label} is {got:.6g}, expected {wanted:.6g}: {hint}{where}")


def _check_classes(info: DatasetInfo, y: np.ndarray, where: str) -> None:
    if y.dtype.kind not in "iu":
        raise DatasetError(f"{info.name}: y has dtype {y.dtype}, expected class indices{where}")
    expected = info.fingerprint
    parts = (
        ("all rows", y, expected.class_counts),
        ("the official training rows", y[: info.official_train_rows], expected.train_class_counts),
    )
    for part, labels, counts in parts:
        if counts is None:
            continue
        if labels.min() < 0 or labels.max() >= len(counts):
            raise DatasetError(
                f"{info.name}: classes run from {labels.min()} to {labels.max()}, expected 0 to "
                f"{len(counts) - 1}: is this the right column?{where}"
            )
        got = tuple(int(count) for count in np.bincount(labels, minlength=len(counts)))
        if got != counts:
            raise DatasetError(
                f"{info.name}: class counts of {part} are {got}, expected {counts}: "
                f"is this the right column?{where}"
            )
