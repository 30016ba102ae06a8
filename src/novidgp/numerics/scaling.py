"""Scaling between the user's units and the model's.

Statistics come from the training rows only and are computed in float64 on columns divided by their largest
magnitude, so that columns of 1e-300 or 1e300 neither vanish nor overflow.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

_BLOCK = 1_024
_LARGEST_INPUT = 1e5
"""In training standard deviations: a stationary kernel is back at its prior long before, float32 finite."""


class Standardiser(NamedTuple):
    """`(values - shift) / scale`, column by column. A constant column has infinite scale: it becomes zero."""

    shift: np.ndarray
    scale: np.ndarray

    def inputs(self, values: np.ndarray) -> np.ndarray:
        """Scaled inputs, clipped where no training row is anywhere near."""
        with np.errstate(over="ignore"):
            scaled = (values - self.shift) / self.scale
        return np.clip(np.nan_to_num(scaled, nan=0.0), -_LARGEST_INPUT, _LARGEST_INPUT)

    def inputs_as(self, values: np.ndarray, dtype: DTypeLike) -> np.ndarray:
        """Scaled inputs of a type, made in blocks of rows: only the result is as large as the data."""
        scaled = np.empty(values.shape, dtype)
        for start in range(0, len(values), _BLOCK):
            rows = slice(start, start + _BLOCK)
            scaled[rows] = self.inputs(values[rows])
        return scaled

    def without(self, columns: Sequence[int]) -> "Standardiser":
        """The same, for a model that is not to see some columns: they become zero, as constant ones do."""
        scale = np.array(self.scale, np.float64)
        scale[list(columns)] = np.inf
        return self._replace(scale=scale)

    def original(self, scaled: np.ndarray) -> np.ndarray:
        """Inputs from scaled ones; those of a constant column are the constant."""
        constant = ~np.isfinite(self.scale)
        return np.where(constant, self.shift, scaled * np.where(constant, 1.0, self.scale) + self.shift)

    def targets(self, values: np.ndarray) -> np.ndarray:
        """Scaled targets; NaN stays NaN."""
        with np.errstate(over="ignore"):
            return np.clip((values - self.shift) / self.scale, -1e15, 1e15)


def standardiser(values: np.ndarray, weight: np.ndarray | None = None) -> Standardiser:
    """The standardiser of the columns of `values`; NaN entries do not count, others as often as their row's
    `weight` `(n, 1)` says."""
    values = np.asarray(values, np.float64)
    magnitude = np.nanmax(np.abs(values), axis=0)
    unit = np.where(magnitude > 0, magnitude, 1.0)
    relative = values / unit
    if weight is None:
        centre, spread = np.nanmean(relative, axis=0), np.nanstd(relative, axis=0)
    else:
        share = np.where(np.isnan(relative), 0.0, weight)
        share = share / share.sum(0)
        centre = np.nansum(share * relative, axis=0)
        spread = np.sqrt(np.nansum(share * (relative - centre) ** 2, axis=0))
    return _standardiser(unit, centre, spread)


def _standardiser(unit: np.ndarray, centre: np.ndarray, spread: np.ndarray) -> Standardiser:
    """From moments in units of the columns' largest magnitudes."""
    scale = unit * np.where(spread > 0, spread, 1.0)
    constant = (spread <= 16 * np.finfo(np.float64).eps) | (scale < np.finfo(np.float64).tiny)
    return Standardiser(unit * centre, np.where(constant, np.inf, scale))


def channel_standardiser(values: np.ndarray, channels: int, weight: np.ndarray | None = None) -> Standardiser:
    """The standardiser of images, rows `(n, pixels * channels)` of any type: all pixels of a channel have one
    mean and one scale. Rows count as often as their `weight` `(n, 1)` says."""
    share = np.ones((len(values), 1)) if weight is None else weight
    starts = range(0, len(values), _BLOCK)

    def blocks():
        for start in starts:
            rows = slice(start, start + _BLOCK)
            pixels = np.asarray(values[rows], np.float64).reshape(len(share[rows]), -1, channels)
            yield share[rows, :, None], pixels

    magnitude = np.max([np.abs(pixels).max(axis=(0, 1)) for _, pixels in blocks()], axis=0)
    unit = np.where(magnitude > 0, magnitude, 1.0)
    count = share.sum() * values.shape[1] / channels
    centre = sum(np.sum(w * (x / unit), axis=(0, 1)) for w, x in blocks()) / count
    spread = np.sqrt(sum(np.sum(w * (x / unit - centre) ** 2, axis=(0, 1)) for w, x in blocks()) / count)
    constant = spread <= 16 * np.finfo(np.float64).eps
    scale = np.where(constant, np.inf, unit * np.where(constant, 1.0, spread))
    repeats = values.shape[1] // channels
    return Standardiser(np.tile(unit * centre, repeats), np.tile(scale, repeats))


class RunningStandardiser:
    """The standardiser of rows that come in blocks, none of them NaN: equal to that of all rows but for
    rounding (Chan, Golub and LeVeque 1979)."""

    def __init__(self) -> None:
        self._count = 0
        self._unit = self._centre = self._square = np.zeros(0)

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return len(self._unit)

    def add(self, values: np.ndarray) -> None:
        """Take in a block `(n, d)`."""
        if len(values) == 0:
            return
        values = np.asarray(values, np.float64)
        magnitude = np.max(np.abs(values), axis=0)
        first = self._count == 0
        unit = magnitude if first else np.maximum(self._unit, magnitude)
        safe = np.where(unit > 0, unit, 1.0)
        relative = values / safe
        centre = relative.mean(0)
        square = np.sum((relative - centre) ** 2, axis=0)
        count = self._count + len(values)
        if not first:
            change = self._unit / safe
            step = centre - change * self._centre
            square = square + change**2 * self._square + step**2 * (self._count * len(values) / count)
            centre = change * self._centre + step * (len(values) / count)
        self._count, self._unit, self._centre, self._square = count, unit, centre, square

    def standardiser(self) -> Standardiser:
        """The standardiser of all blocks so far."""
        unit = np.where(self._unit > 0, self._unit, 1.0)
        return _standardiser(unit, self._centre, np.sqrt(self._square / self._count))


def is_constant(values: np.ndarray) -> bool:
    """Whether a column `(n,)` does not vary beyond rounding, so that it has no scale."""
    return not np.isfinite(standardiser(values[:, None]).scale[0])


def identity(columns: int) -> Standardiser:
    """Leaves the values as they are: labels and counts have no units."""
    return Standardiser(np.zeros(columns), np.ones(columns))
