"""The rows of a fit: the same for every method, in standardised targets."""

import numpy as np
import pytest

from novidgp.bench.problems import load_problem
from novidgp.bench.spec import Fit
from novidgp.datasets import load_dataset

FIT = Fit("diabetes", "random", 3, "exact-gp")


def test_rows_depend_on_the_split_and_not_on_the_method():
    first, second = load_problem(FIT), load_problem(FIT._replace(method="dsvi", layers=2, steps=5))
    np.testing.assert_array_equal(first.X, second.X)
    np.testing.assert_array_equal(first.y_test, second.y_test)
    assert not np.array_equal(first.X, load_problem(FIT._replace(seed=4)).X)


def test_targets_are_standardised_by_the_training_rows_and_can_be_undone():
    problem = load_problem(FIT)
    assert problem.y.mean() == pytest.approx(0.0, abs=1e-12)
    assert problem.y.std() == pytest.approx(1.0)
    original = load_dataset("diabetes").y
    differences = problem.target_sd * np.diff(problem.y_test)
    assert set(np.round(differences).tolist()) <= {float(a - b) for a in original for b in original}
    assert np.ptp(np.concatenate([problem.y, problem.y_test])) * problem.target_sd == pytest.approx(
        np.ptp(original)
    )


def test_classes_are_left_as_they_are():
    problem = load_problem(FIT._replace(dataset="iris"))
    assert problem.task == "classification"
    assert set(problem.y.tolist()) == {0, 1, 2}
    assert problem.target_sd == 1.0


def test_fewer_rows_on_request():
    whole = load_problem(FIT)
    fewer = load_problem(FIT._replace(data={"train_rows": 50}))
    assert len(fewer.X) == 50
    np.testing.assert_array_equal(fewer.X_test, whole.X_test)
    assert {tuple(row) for row in fewer.X} <= {tuple(row) for row in whole.X}
    first = load_problem(FIT._replace(data={"rows": 100, "test_fraction": 0.2}))
    assert (len(first.X), len(first.X_test)) == (80, 20)


def test_an_unknown_data_option_is_refused():
    with pytest.raises(ValueError, match="'row' is unknown; use rows, train_rows, test_fraction"):
        load_problem(FIT._replace(data={"row": 10}))


def test_images_stay_images_and_become_rows_for_other_methods(monkeypatch):
    from novidgp.bench import problems
    from novidgp.datasets import Dataset, dataset_info

    X, y = np.arange(60_010 * 4, dtype=np.uint8).reshape(-1, 2, 2), np.arange(60_010) % 10
    monkeypatch.setattr(problems, "_dataset", lambda name: Dataset(name, X, y, dataset_info(name)))
    problem = load_problem(Fit("mnist", "official", 0, "novi", data={"train_rows": 20}))
    assert problem.X.shape == (20, 2, 2)
    assert problem.X.dtype == np.uint8
    assert problem.flat().X_test.shape == (10, 4)
    assert problem.flat().X.dtype == np.float64
