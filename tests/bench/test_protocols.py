"""A split is a partition that depends on the rows, the protocol and the seed only."""

import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from novidgp.bench.protocols import split


@dataclass
class Rows:
    name: str
    rows: int
    official_train_rows: int | None = None

    def __len__(self) -> int:
        return self.rows


@pytest.mark.parametrize("protocol", ["random", "contiguous", "drawn", "official"])
@pytest.mark.parametrize("n", [2, 3, 10, 101])
def test_every_row_is_on_one_side_and_neither_side_is_empty(protocol, n):
    drawn = split(Rows("a", n, official_train_rows=n - 1), protocol)
    np.testing.assert_array_equal(np.sort(np.concatenate([drawn.train, drawn.test])), np.arange(n))
    assert min(len(drawn.train), len(drawn.test)) >= 1
    assert drawn.protocol == protocol


def test_random_is_the_documented_permutation():
    rows = np.random.default_rng(7).permutation(506)
    drawn = split(506, "random", seed=7)
    np.testing.assert_array_equal(drawn.test, rows[:51])
    np.testing.assert_array_equal(drawn.train, rows[51:])


def test_random_splits_repeat_by_seed_and_differ_between_seeds():
    np.testing.assert_array_equal(split(100, seed=1).test, split(Rows("a", 100), seed=1).test)
    assert not np.array_equal(split(100, seed=1).test, split(100, seed=2).test)


def test_contiguous_tests_on_the_last_rows():
    assert split(100, "contiguous").test.tolist() == list(range(90, 100))
    assert split(100, "contiguous", seed=5).seed is None


def test_drawn_is_the_start_of_the_documented_permutation():
    order = np.random.RandomState(3).permutation(100)
    drawn = split(100, "drawn", seed=3, rows=40, test_fraction=0.25)
    np.testing.assert_array_equal(drawn.train, order[:30])
    np.testing.assert_array_equal(drawn.test, order[30:40])


def test_other_protocols_can_be_had_of_the_first_rows():
    assert split(100, "contiguous", rows=40).test.tolist() == [36, 37, 38, 39]
    assert max(split(100, "random", rows=40).train) < 40


def test_test_fraction_is_rounded_and_never_takes_every_row():
    assert len(split(1000, test_fraction=0.25).test) == 250
    assert len(split(3, test_fraction=0.99).train) == 1


def test_official_comes_from_the_data_set():
    drawn = split(Rows("wilt", 4839, official_train_rows=4339), "official")
    assert (len(drawn.train), len(drawn.test), drawn.test[0]) == (4339, 500, 4339)


def test_official_is_refused_without_an_official_split():
    with pytest.raises(ValueError, match="boston has no official split; use protocol 'random'"):
        split(Rows("boston", 506), "official")
    with pytest.raises(ValueError, match="needs a data set, got a number of rows"):
        split(506, "official")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"data": 1}, "at least 2 rows, got 1"),
        ({"data": 9, "test_fraction": 0.0}, "test_fraction must be between 0 and 1, got 0.0"),
        ({"data": 9, "test_fraction": 1.5}, "got 1.5"),
        (
            {"data": 9, "protocol": "shuffled"},
            "protocol must be one of random, contiguous, drawn, official, got 'shuff",
        ),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        split(**arguments)


def test_protocols_do_not_import_jax():
    check = "import sys; import novidgp.bench.protocols; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
