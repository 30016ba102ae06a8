"""Rows in blocks of a fixed size, so that another number of rows compiles nothing."""

from collections.abc import Iterator

import numpy as np

SMALL = 8
"""Up to so many rows go through in one small block: a served model answers them in a millisecond or two."""


def block_rows(count: int, largest: int) -> int:
    """Rows of a block where `count` are asked for."""
    return min(SMALL, largest) if count <= SMALL else largest


def blocks(count: int, largest: int) -> Iterator[tuple[slice, np.ndarray]]:
    """The rows of every block, and their numbers with the last row repeated up to the block's size."""
    size = block_rows(count, largest)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count)), np.minimum(np.arange(start, start + size), count - 1)
