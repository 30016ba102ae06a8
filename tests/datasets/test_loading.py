"""From a name to checked arrays, and every way that is refused."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from novidgp.datasets import (
    DatasetError,
    DatasetNotFoundError,
    UnknownDatasetError,
    dataset_info,
    dataset_names,
    is_available,
    load_dataset,
    nonstationary_curve,
    town_houses,
    town_prices,
)
from novidgp.datasets.fingerprint import check_fingerprint
from novidgp.datasets.registry import REGISTRY

NAMED = os.environ.get("NOVIDGP_DATA")
BUILTIN = [info.name for info in REGISTRY.values() if info.builtin]
FROM_FILES = [info.name for info in REGISTRY.values() if not info.builtin]


@pytest.fixture
def small(expect):
    """Arrays that the registry is told are `yacht`."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(40, 6)).astype(np.float32)
    y = (5.0 + generator.normal(size=40)).astype(np.float32)
    return expect("yacht", X, y), X, y


@pytest.mark.parametrize("name", BUILTIN)
def test_builtin_sets_load_without_files(name):
    dataset = load_dataset(name)
    assert is_available(name)
    assert dataset.X.shape == (len(dataset), dataset.info.columns)
    assert dataset.official_train_rows is None


@pytest.mark.parametrize("name", FROM_FILES)
def test_the_real_data_match_their_fingerprint(name, monkeypatch):
    if not NAMED:
        pytest.skip("NOVIDGP_DATA names no directory of data sets")
    if not (Path(NAMED) / f"{name}.npz").exists():
        pytest.skip(f"{name}.npz is not in {NAMED}")
    monkeypatch.setenv("NOVIDGP_DATA", NAMED)
    dataset = load_dataset(name)
    assert (len(dataset), dataset.info.columns) == (dataset.info.rows, np.prod(dataset.X.shape[1:]))


@pytest.mark.parametrize("name", dataset_names())
def test_registry_facts_agree_with_each_other(name):
    info = dataset_info(name)
    facts = info.fingerprint
    assert all((info.target, info.licence, info.citation, info.source))
    if info.task == "classification":
        assert facts.class_counts is not None
        assert sum(facts.class_counts) == info.rows
    else:
        assert None not in (facts.target_mean, facts.target_sd)
        assert info.classes is None
    if facts.train_class_counts is not None:
        assert sum(facts.train_class_counts) == info.official_train_rows
    if info.official_train_rows is not None:
        assert 0 < info.official_train_rows < info.rows


def test_published_splits():
    year, cifar = dataset_info("year"), dataset_info("cifar10")
    assert (year.rows, year.columns, year.official_train_rows) == (463_715 + 51_630, 90, 463_715)
    assert (cifar.rows, cifar.columns, cifar.official_train_rows) == (60_000, 3072, 50_000)


def test_unknown_name_offers_the_nearest():
    with pytest.raises(UnknownDatasetError, match="'bostn'; did you mean 'boston'"):
        load_dataset("bostn")
    with pytest.raises(UnknownDatasetError, match="known: steps"):
        load_dataset("zzzzzzzzz")


def test_a_missing_file_says_where_was_searched_and_what_to_do(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("NOVIDGP_DATA", str(tmp_path / "named"))
    with pytest.raises(DatasetNotFoundError) as caught:
        load_dataset("boston")
    message = str(caught.value)
    for part in ("boston", str(cache), str(tmp_path / "named"), "data fetch boston", "data import boston"):
        assert part in message


def test_the_named_directory_comes_before_the_cache(small, cache, tmp_path, monkeypatch):
    _, X, y = small
    named = tmp_path / "named"
    cache.mkdir()
    named.mkdir()
    np.savez(cache / "yacht.npz", X=X, y=y)
    np.testing.assert_array_equal(load_dataset("yacht").X, X)
    monkeypatch.setenv("NOVIDGP_DATA", str(named))
    np.testing.assert_array_equal(load_dataset("yacht").X, X)
    np.savez(named / "yacht.npz", X=X[::-1], y=y[::-1])
    np.testing.assert_array_equal(load_dataset("yacht").X, X[::-1])


def test_a_folder_of_raw_files_does_as_well(small, cache):
    _, X, y = small
    (cache / "yacht").mkdir(parents=True)
    np.savetxt(cache / "yacht" / "yacht_hydrodynamics.data", np.column_stack([X, y]))
    dataset = load_dataset("yacht")
    np.testing.assert_array_equal(dataset.X, X)
    np.testing.assert_array_equal(dataset.y, y)


def test_the_order_of_the_rows_does_not_matter(small):
    info, X, y = small
    check_fingerprint(info, X[::-1], y[::-1])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X, y: (X, X[:, 0]), r"yacht: target mean is .*, expected .*: is this the right column"),
        (lambda X, y: (X, y.mean() + 2 * (y - y.mean())), r"yacht: target sd is"),
        (lambda X, y: (X[:-1], y[:-1]), r"yacht: X has shape \(39, 6\), expected \(40, 6\): .*complete"),
        (lambda X, y: (X[:, 1:], y), r"yacht: X has shape \(40, 5\).*right file"),
        (lambda X, y: (X, y[:-1]), r"yacht: y has shape \(39,\)"),
        (lambda X, y: (X + 1, y), r"yacht: feature mean"),
        (lambda X, y: (X, np.where(y == y[0], np.nan, y)), r"yacht: y has missing"),
        (lambda X, y: (X.astype(str), y), r"yacht: X has dtype"),
    ],
)
def test_wrong_arrays_are_refused(small, cache, spoil, message):
    _, X, y = small
    X, y = spoil(X, y)
    cache.mkdir()
    np.savez(cache / "yacht.npz", X=X, y=y)
    with pytest.raises(DatasetError, match=message) as caught:
        load_dataset("yacht")
    assert str(cache / "yacht.npz") in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 0, 1, 1], r"german: class counts of all rows are \(2, 2\), expected \(3, 1\)"),
        ([0, 0, 0, 2], "german: classes run from 0 to 2, expected 0 to 1"),
        ([0.0, 0.0, 0.0, 1.0], "german: y has dtype float64, expected class indices"),
        ([1, 0, 0, 0], r"german: class counts of the official training rows are \(1, 1\), expected \(2, 0\)"),
    ],
)
def test_wrong_classes_are_refused(expect, labels, message):
    X = np.arange(8.0).reshape(4, 2)
    info = expect("german", X, np.array([0, 0, 0, 1]), train_rows=2)
    facts = dataclasses.replace(info.fingerprint, train_class_counts=(2, 0))
    info = dataclasses.replace(info, fingerprint=facts)
    check_fingerprint(info, X, np.array([0, 0, 0, 1]))
    with pytest.raises(DatasetError, match=message):
        check_fingerprint(info, X, np.array(labels))


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04 cut short"])
def test_an_npz_that_is_none_is_refused(cache, content):
    cache.mkdir()
    (cache / "boston.npz").write_bytes(content)
    with pytest.raises(DatasetError, match=r"boston: .*cannot be read"):
        load_dataset("boston")


def test_a_pickle_is_never_opened(cache):
    cache.mkdir()
    np.savez(cache / "boston.npz", X=np.array([{}], dtype=object), y=np.zeros(1))
    with pytest.raises(DatasetError, match=r"boston: .*cannot be read"):
        load_dataset("boston")


def test_an_npz_without_the_arrays_is_refused(cache):
    cache.mkdir()
    np.savez(cache / "boston.npz", features=np.zeros(1))
    with pytest.raises(DatasetError, match=r"boston: .*plain arrays X and y"):
        load_dataset("boston")


def test_the_curve_jumps_at_zero_and_is_rougher_to_the_right():
    X, y = nonstationary_curve(4000, seed=3)
    left, right = y[X[:, 0] < 0], y[X[:, 0] > 0]
    # Means of 20 points with noise 0.1 on a curve that moves by less than 0.15 over them: 0.3 is ample.
    assert right[:20].mean() - left[-20:].mean() == pytest.approx(2.0, abs=0.3)

    def turns(values: np.ndarray) -> int:
        smooth = np.convolve(values - values.mean(), np.ones(40) / 40, mode="valid")
        return int((np.diff(np.sign(smooth)) != 0).sum())

    assert turns(right) > turns(left)
    again = nonstationary_curve(4000, seed=3)
    np.testing.assert_array_equal(again[1], y)
    assert not np.array_equal(nonstationary_curve(4000, seed=4)[1], y)


def test_the_curve_refuses_no_rows():
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        nonstationary_curve(0)


def test_houses_cost_what_their_town_says_but_for_noise():
    X, y = town_houses(4000, seed=3)
    noise = y - town_prices(X)
    # The standard deviation of 4,000 draws has a standard error of one percent.
    assert np.std(noise) == pytest.approx(0.08, rel=0.05)
    assert np.std(y) > 0.5
    np.testing.assert_array_equal(town_houses(4000, seed=3)[1], y)
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        town_houses(0)
