"""Nearest rows, by trees and by blocks of distances."""

import numpy as np
import pytest

from novidgp.local.neighbours import Index


@pytest.mark.parametrize("columns", [3, 40])
def test_neighbours_are_the_nearest(columns):
    rng = np.random.default_rng(0)
    points, rows = rng.normal(size=(200, columns)), rng.normal(size=(10, columns))
    distances = np.linalg.norm(rows[:, None] - points, axis=-1)
    np.testing.assert_array_equal(Index(points).nearest(rows, 7), np.argsort(distances, axis=1)[:, :7])
    assert Index(points).nearest(rows, 1).shape == (10, 1)


@pytest.mark.parametrize("columns", [3, 40])
def test_a_row_is_not_its_own_neighbour(columns):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(50, columns))
    numbers = np.array([3, 0, 49])
    found = Index(points).nearest_others(points, numbers, 49)
    for number, others in zip(numbers, found, strict=True):
        assert sorted(others) == sorted(set(range(50)) - {number})


@pytest.mark.parametrize("columns", [3, 40])
def test_a_row_with_many_twins_is_not_its_own_neighbour(columns):
    points = np.ones((1_000, columns))
    numbers = np.arange(0, 1_000, 100)
    found = Index(points).nearest_others(points, numbers, 5)
    assert found.shape == (10, 5)
    assert not np.any(found == numbers[:, None])


def test_among_many_points_nearly_all_neighbours_are_found():
    """94 of 100 here; no neighbour is half as far again as the furthest that should be there."""
    rng = np.random.default_rng(0)
    points, rows = rng.normal(size=(12_000, 5)), rng.normal(size=(20, 5))
    distances = np.linalg.norm(rows[:, None] - points, axis=-1)
    found = Index(points).nearest(rows, 30)
    wanted = np.argsort(distances, axis=1)[:, :30]
    shares = [len(np.intersect1d(*pair)) / 30 for pair in zip(found, wanted, strict=True)]
    assert np.mean(shares) > 0.85
    furthest = np.take_along_axis(distances, wanted, axis=1)[:, -1:]
    assert np.all(np.take_along_axis(distances, found, axis=1) <= 1.5 * furthest)
