"""Nearest training rows of a row."""

import numpy as np
from scipy.spatial import KDTree
from sklearn.neighbors import NearestNeighbors

_TREE_COLUMNS = 24
_LEAF = 32
_EXACT_POINTS = 10_000
_FEW_ROWS = 32
"""For no more of them threads are not worth their start."""
_SLACK = 0.5
"""Among more points a neighbour may be further away than one that was missed, by this share at most. Measured
among 40,000 points in 8 and 18 columns: half of the time, and 97 and 100 % of the nearest 64 found."""


class Index:
    """The nearest of some points `(n, d)`, by Euclidean distance: a k-d tree for few columns, which is
    approximate among many points, and blocks of all distances for many columns. Memory is linear in the
    points."""

    def __init__(self, points: np.ndarray):
        self._tree = self._blocks = None
        self._slack = _SLACK if len(points) > _EXACT_POINTS else 0.0
        if points.shape[1] <= _TREE_COLUMNS:
            self._tree = KDTree(points, leafsize=_LEAF)
        else:
            self._blocks = NearestNeighbors(algorithm="brute").fit(points)

    def nearest(self, rows: np.ndarray, count: int) -> np.ndarray:
        """Indices `(m, count)` of the points nearest to each of the `rows`, the nearest first."""
        if self._tree is not None:
            found = self._tree.query(
                rows, count, eps=self._slack, workers=1 if len(rows) <= _FEW_ROWS else -1
            )[1]
        else:
            assert self._blocks is not None
            found = self._blocks.kneighbors(rows, count, return_distance=False)
        return np.asarray(found).reshape(len(rows), count)

    def nearest_others(self, points: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
        """Indices `(m, count)` of the points nearest to the points number `rows`, themselves left out."""
        found = self.nearest(points[rows], count + 1)
        itself = found == rows[:, None]
        itself[~itself.any(axis=1), -1] = True  # a row with so many twins that it was not found itself
        return found[~itself].reshape(-1, count)
