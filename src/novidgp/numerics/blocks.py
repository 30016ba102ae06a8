"""Rows in blocks of one fixed size.

Another number of rows then compiles nothing, and a row's results are the same to the last bit whatever rows
are beside it.
"""

from collections.abc import Iterator

import numpy as np


def blocks(count: int, size: int) -> Iterator[tuple[slice, slice | np.ndarray]]:
    """The rows of every block, and the same with the last row repeated up to the block's size."""
    for start in range(0, count, size):
        rows = slice(start, min(start + size, count))
        full = rows.stop - start == size
        yield rows, rows if full else np.minimum(np.arange(start, start + size), count - 1)
