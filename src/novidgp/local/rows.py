"""The training rows that a local layer conditions on, and its GP at other rows given the nearest of them."""

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from novidgp.local.conditional import Neighbourhoods
from novidgp.local.gp import LEAST_DF, LocalGP
from novidgp.local.neighbours import Index
from novidgp.numerics.blocks import over_blocks
from novidgp.numerics.compilation import COMPILER_OPTIONS, WIDE_VECTORS
from novidgp.numerics.linalg import single_threaded_lapack

_BLOCK = 16
"""Rows per call of the compiled program."""
_DOUBTING_NEIGHBOURS = 32


@dataclass(frozen=True, eq=False)
class Rows:
    """Training rows with one observed target."""

    inputs: np.ndarray
    """`(n, d)`, scaled."""
    residuals: np.ndarray
    """`(n,)`: what the deep GP's mean leaves; `(n, c)` of classes."""
    deep_variance: np.ndarray
    """`(n,)`: the deep GP's predictive variance."""
    noise_factor: np.ndarray
    """`(n,)`: factor of the noise variance. A row of weight w is w equal rows, so it is 1 / w, and larger
    where the neighbours of a row contradict it."""

    def __len__(self) -> int:
        return len(self.inputs)

    def first(self, count: int) -> "Rows":
        """The first rows alone."""
        return Rows(*(getattr(self, field.name)[:count] for field in dataclasses.fields(self)))

    def neighbourhoods(self, inputs: np.ndarray, found: np.ndarray) -> Neighbourhoods:
        """The rows `found` `(m, k)` as neighbours of rows with these `inputs` `(m, d)`, on the host."""
        columns = self.residuals, self.deep_variance, self.noise_factor
        parts: Any = self.inputs[found] - inputs[:, None], *(column[found] for column in columns)
        return Neighbourhoods(*parts)


@dataclass(frozen=True, eq=False)
class ConditionedGP:
    """A local GP and the rows it has seen."""

    gp: LocalGP
    rows: Rows

    @property
    def df(self) -> float:
        """Degrees of freedom of the errors."""
        return LEAST_DF + float(np.exp(self.gp.log_excess_df))

    @functools.cached_property
    def _scaled(self) -> np.ndarray:
        return self.rows.inputs * np.exp(-np.asarray(self.gp.log_lengthscale))

    @functools.cached_property
    def _index(self) -> Index:
        return Index(self._scaled)

    def nearest(self, inputs: np.ndarray, count: int) -> np.ndarray:
        """Numbers `(m, k)` of the rows nearest to `inputs`, at most `count`."""
        scaled = inputs * np.exp(-np.asarray(self.gp.log_lengthscale))
        return self._index.nearest(scaled, min(count, len(self.rows)))

    def nearest_others(self, rows: np.ndarray, count: int) -> np.ndarray:
        """Numbers `(m, k)` of the rows nearest to the rows with the numbers `rows`, themselves left out."""
        return self._index.nearest_others(self._scaled, rows, min(count, len(self.rows) - 1))

    def with_doubts(self) -> "ConditionedGP":
        """The same GP, in which rows that their neighbours contradict count for less.

        A t distribution of `df` degrees of freedom is a Gaussian whose variance has a factor of its own for
        every row. Given the error z of a row in units of its standard deviation, the mean inverse of that
        factor is `(df + 1) / (df + z^2)`. So one wrong row does not rule its neighbourhood.
        """
        rows, df = self.rows, self.df
        found = self.nearest_others(np.arange(len(rows)), _DOUBTING_NEIGHBOURS)
        mean, variance = self.moments(rows.inputs, rows.deep_variance, found)
        factor = (df + (rows.residuals - mean) ** 2 / variance) / (df + 1.0)
        doubted = dataclasses.replace(
            rows, noise_factor=(factor * rows.noise_factor).astype(rows.inputs.dtype)
        )
        return dataclasses.replace(self, rows=doubted)

    def moments(
        self, inputs: np.ndarray, deep_variance: np.ndarray, found: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance `(m,)` of residuals at `inputs`, noise included, given the rows `found`."""
        mean, variance = self.over_rows(_predict, inputs, deep_variance, found)
        return mean, variance

    def over_rows(self, program: Callable, inputs: np.ndarray, facts: np.ndarray, found: np.ndarray) -> Any:
        """What a compiled `program(gp, neighbourhoods, facts)` says of rows with these `inputs` and `facts`,
        given the rows `found` `(m, k)`."""

        def block(numbers):
            return program(self.gp, self.rows.neighbourhoods(inputs[numbers], found[numbers]), facts[numbers])

        with single_threaded_lapack():
            parts = over_blocks(block, len(inputs), _BLOCK, "float64")
        return jax.tree.map(lambda *part: np.concatenate(part)[: len(inputs)], *parts)


@functools.partial(jax.jit, compiler_options=COMPILER_OPTIONS | WIDE_VECTORS)
def _predict(gp: LocalGP, hoods: Neighbourhoods, deep_variance):
    mean, variance = gp.conditional(hoods)
    return mean, variance + gp.noise(deep_variance)
