"""Rows in blocks of one fixed size.

Another number of rows then compiles nothing, and a row's results are the same to the last bit whatever rows
are beside it.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from novidgp.numerics.compilation import precision

_FEW = 4
_TURNS = 4


def blocks(count: int, size: int) -> Iterator[tuple[slice, slice | np.ndarray]]:
    """The rows of every block, and the same with the last row repeated up to the block's size."""
    for start in range(0, count, size):
        rows = slice(start, min(start + size, count))
        full = rows.stop - start == size
        yield rows, rows if full else np.minimum(np.arange(start, start + size), count - 1)


def over_blocks(function: Callable[[Any], Any], count: int, size: int, dtype: str) -> list[Any]:
    """A compiled function of each block's rows, computed with this precision, as NumPy arrays in order.

    As many blocks at a time as there are cores: one small program cannot keep two of them busy. A thread has
    a few turns of many blocks each.
    """

    def turn(parts: list[slice | np.ndarray]) -> list[Any]:
        with precision(dtype):  # this thread's
            return [jax.tree.map(np.asarray, function(part)) for part in parts]

    parts = [padded for _, padded in blocks(count, size)]
    cores = _cores()
    if len(parts) < _FEW or cores == 1:
        return turn(parts)
    length = -(-len(parts) // (_TURNS * cores))
    turns = [parts[start : start + length] for start in range(0, len(parts), length)]
    with ThreadPoolExecutor(cores) as pool:
        return list(itertools.chain.from_iterable(pool.map(turn, turns)))


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
