"""Where the batches of a run come from: rows in memory, or a file of rows that are read as they are needed.

A feed answers one question: which rows do the steps from `step` on see? Its answer is a pair `(data,
indices)`: step `i` of a call sees `data[indices[i]]`, or all of `data` where there are no indices. It is a
function of (seed, step) alone.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, runtime_checkable

import jax
import numpy as np

from novidgp.model.dgp import Batch
from novidgp.numerics.random import Streams
from novidgp.numerics.sharding import Layout, replicated
from novidgp.numerics.trees import on_device
from novidgp.training.batches import BlockOrder, Minibatches
from novidgp.training.checkpoint import digest
from novidgp.training.rowfile import Block, RowFile


@runtime_checkable
class Feed(Protocol):
    """The batches of a run."""

    def example(self) -> Batch:
        """Rows of the shape and type that `at` gives."""
        ...

    def at(self, step: int, count: int) -> tuple[Batch, np.ndarray | None]:
        """Data, and the rows of `count` batches from `step` on. Of the last ones, those that the chunk of
        `step` has no more are any rows."""
        ...

    def digest(self) -> str:
        """A fingerprint of all rows."""
        ...

    def close(self) -> None:
        """The run is over."""
        ...


class RowsInMemory:
    """A feed of arrays, all of which are on the device."""

    def __init__(self, data: Batch, rows: int, size: int, streams: Streams, layout: Layout | None):
        self._data = _placed(layout, data)
        self._minibatches = Minibatches(rows, size, streams)

    def example(self) -> Batch:
        return self._data

    def at(self, step: int, count: int) -> tuple[Batch, np.ndarray | None]:
        return self._data, self._minibatches.at(step, count)

    def digest(self) -> str:
        return digest(*jax.tree.leaves(self._data))

    def close(self) -> None:
        pass


class RowsOnDisk:
    """A feed of a file: the rows of a chunk are on the device, those of the next are read by a thread."""

    def __init__(self, file: RowFile, size: int, chunk: int, streams: Streams, layout: Layout | None):
        self._file, self._size, self._chunk = file, size, chunk
        self._order = BlockOrder(len(file), size, streams)
        self._layout = layout
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="novidgp-rows")
        self._coming: dict[int, Future[Block]] = {}
        self._held: tuple[int, Batch] | None = None

    def example(self) -> Batch:
        return self._rows_of(0)

    def at(self, step: int, count: int) -> tuple[Batch, np.ndarray | None]:
        place = step % self._chunk
        data = self._rows_of(step - place)
        batches = (place + np.arange(count)) % self._chunk
        return data, (batches[:, None] * self._size + np.arange(self._size)).astype(np.int32)

    def digest(self) -> str:
        return self._file.digest

    def close(self) -> None:
        self._reader.shutdown(wait=True, cancel_futures=True)

    def _rows_of(self, first: int) -> Batch:
        """The rows of the chunk that begins with the step `first`, one batch after the other."""
        if self._held is None or self._held[0] != first:
            coming = self._coming.pop(first, None) or self._reader.submit(self._read, first)
            self._held = first, _placed(self._layout, coming.result())
            following = first + self._chunk
            self._coming = {following: self._reader.submit(self._read, following)}
        return self._held[1]

    def _read(self, first: int) -> Block:
        numbers = [self._order.at(step) for step in range(first, first + self._chunk)]
        return self._file.read(np.concatenate(numbers))


def make_feed(
    data: Batch | RowFile,
    rows: int,
    size: int,
    chunk: int,
    streams: Streams,
    layout: Layout | None,
) -> Feed:
    """The feed of a run in chunks of `chunk` steps with batches of `size` of the first `rows` rows."""
    if isinstance(data, RowFile):
        return RowsOnDisk(data, size, chunk, streams, layout)
    return RowsInMemory(data, rows, size, streams, layout)


def _placed(layout: Layout | None, data: Batch | Block) -> Batch:
    parts = tuple(data)
    return Batch(*(jax.tree.map(on_device, parts) if layout is None else replicated(layout, parts)))
