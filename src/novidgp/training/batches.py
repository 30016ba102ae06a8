"""Rows for training: held out, padded, and in minibatches."""

import functools

import numpy as np

from novidgp.numerics.random import Streams

_LEAST_MULTIPLE = 64
_BLOCK_ROWS = 1_024
_WINDOW_BLOCKS = 256
"""Of rows on disk, so many consecutive ones are read together, and rows of so many blocks are mixed."""


def hold_out(count: int, fraction: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the rows to train on and of those to validate on."""
    held = max(1, round(fraction * count))
    if count - held < 2:
        raise ValueError(
            f"validation_fraction={fraction} leaves {count - held} of {count} rows to train on; lower it."
        )
    order = rng.permutation(count)
    return np.sort(order[held:]), np.sort(order[:held])


def pad_rows(inputs: np.ndarray, targets: np.ndarray, *weights: np.ndarray) -> tuple[np.ndarray, ...]:
    """Rows up to a multiple of 64, or of an eighth of the largest power of two in their number, if that is
    more. Padding has no targets and no weight. Sets of similar size then share one compiled step."""
    missing = -len(inputs) % max(_LEAST_MULTIPLE, 2 ** (len(inputs).bit_length() - 4))
    return (
        np.concatenate([inputs, np.repeat(inputs[:1], missing, axis=0)]),
        np.concatenate([targets, np.full((missing, targets.shape[1]), np.nan)]),
        *(np.concatenate([weight, np.zeros((missing, 1))]) for weight in weights),
    )


class Minibatches:
    """Rows of the minibatches: every epoch has its own order, cut into consecutive batches.

    A last partial batch is dropped.
    """

    def __init__(self, rows: int, size: int, streams: Streams):
        self._rows, self._size, self._streams = rows, size, streams
        self._order = functools.lru_cache(maxsize=2)(self._new_order)

    def _new_order(self, epoch: int) -> np.ndarray:
        return self._streams.numpy("row order", epoch).permutation(self._rows).astype(np.int32)

    def at(self, step: int, count: int) -> np.ndarray | None:
        """Row numbers of `count` batches from `step` on; None where a batch is all the data."""
        if self._size >= self._rows:
            return None
        places = (divmod(s, self._rows // self._size) for s in range(step, step + count))
        return np.stack([self._order(e)[i * self._size : (i + 1) * self._size] for e, i in places])


class BlockOrder:
    """Rows of the minibatches of a file: shuffled as far as a disk likes it.

    Every epoch has its own order of blocks of consecutive rows. The rows of a window of blocks, which come
    from all over the file, are mixed, and the result is cut into batches. A last partial batch is dropped.
    """

    def __init__(self, rows: int, size: int, streams: Streams):
        if size > rows:
            raise ValueError(f"batch_size={size} exceeds the {rows} rows of the file; lower it.")
        self._rows, self._size, self._streams = rows, size, streams
        self._blocks = functools.lru_cache(maxsize=2)(self._new_blocks)
        self._window = functools.lru_cache(maxsize=3)(self._new_window)

    def _new_blocks(self, epoch: int) -> np.ndarray:
        count = -(-self._rows // _BLOCK_ROWS)
        order = self._streams.numpy("block order", epoch).permutation(count)
        return np.append(order[order != count - 1], count - 1)  # the last, which may be shorter, comes last

    def _new_window(self, epoch: int, number: int) -> np.ndarray:
        blocks = self._blocks(epoch)[number * _WINDOW_BLOCKS : (number + 1) * _WINDOW_BLOCKS]
        rows = (blocks[:, None] * _BLOCK_ROWS + np.arange(_BLOCK_ROWS)).reshape(-1)
        rng = self._streams.numpy("window order", epoch * (1 + self._rows // _BLOCK_ROWS) + number)
        return rng.permutation(rows[rows < self._rows])

    def at(self, step: int) -> np.ndarray:
        """Row numbers of the batch of one step."""
        epoch, batch = divmod(step, self._rows // self._size)
        window, parts, place = _BLOCK_ROWS * _WINDOW_BLOCKS, [], batch * self._size
        end = place + self._size
        while place < end:
            number, inside = divmod(place, window)
            parts.append(self._window(epoch, number)[inside : inside + end - place])
            place += len(parts[-1])
        return np.concatenate(parts)
