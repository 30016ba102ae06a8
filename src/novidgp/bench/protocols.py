"""Which rows are for training and which for testing, decided before any method is run.

A split depends on the number of rows, the protocol and the seed only, so that every method of a benchmark
sees the same rows. Protocols pose different problems: numbers of different protocols must not be compared.
This module needs NumPy only.

- `random`: a shuffled 90/10 split; the one to report, over several seeds.
- `contiguous`: the last 10 % of the rows. Files are often ordered, so this is a shift in distribution.
- `drawn`: the rows in the order of `numpy.random.RandomState(seed).permutation`, of which the last ones test:
  with the seed 0 and 800,000 rows, the split of the airline file.
- `official`: the split that comes with the data set.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

PROTOCOLS = ("random", "contiguous", "drawn", "official")


@runtime_checkable
class SplittableDataset(Protocol):
    """What a split needs of a data set; `novidgp.datasets.Dataset` has it."""

    def __len__(self) -> int: ...

    @property
    def official_train_rows(self) -> int | None:
        """Number of official training rows, which come first; `None` without an official split."""
        ...


@dataclass(frozen=True, eq=False)
class Split:
    """Row indices of one split, and how to draw it again."""

    train: np.ndarray
    test: np.ndarray
    protocol: str
    seed: int | None
    """`None` where the protocol has no randomness."""


def split(
    data: int | SplittableDataset,
    protocol: str = "random",
    seed: int = 0,
    test_fraction: float = 0.1,
    rows: int | None = None,
) -> Split:
    """Split `data`, a number of rows or a data set, into training and test rows.

    `test_fraction` of the rows (rounded, at least one, and at least one left to train on) is the test set,
    except under `official`, which needs a data set that has an official split. Other protocols can be had of
    the first `rows` rows alone; `drawn` then draws so many of all. `seed` matters to `random` and `drawn`.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    n = data if isinstance(data, int | np.integer) else len(data)
    if n < 2:
        raise ValueError(f"a split needs at least 2 rows, got {n}")
    if protocol == "official":
        return _official(data, n)
    total, n = n, n if rows is None else min(n, rows)
    if not 0.0 < test_fraction < 1.0:
        raise ValueError(f"test_fraction must be between 0 and 1, got {test_fraction}")
    test_rows = min(max(round(n * test_fraction), 1), n - 1)
    if protocol == "contiguous":
        return _cut(n, n - test_rows, protocol)
    if protocol == "drawn":
        order = np.random.RandomState(seed).permutation(total)[:n]
        return Split(order[: n - test_rows], order[n - test_rows :], protocol, seed)
    order = np.random.default_rng(seed).permutation(n)
    return Split(order[test_rows:], order[:test_rows], protocol, seed)


def _cut(n: int, train_rows: int, protocol: str) -> Split:
    rows = np.arange(n)
    return Split(train=rows[:train_rows], test=rows[train_rows:], protocol=protocol, seed=None)


def _official(data: int | SplittableDataset, n: int) -> Split:
    if isinstance(data, int | np.integer):
        raise ValueError(
            f"protocol 'official' needs a data set, got a number of rows ({n}); pass the data set"
        )
    train_rows = data.official_train_rows
    if train_rows is None:
        name = getattr(data, "name", "the data set")
        raise ValueError(f"{name} has no official split; use protocol 'random' or 'contiguous'")
    return _cut(n, train_rows, "official")
