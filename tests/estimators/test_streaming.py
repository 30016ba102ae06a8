"""Fits to rows that stay on disk."""

import numpy as np
import pandas as pd
import pytest

from novidgp import DGPClassifier, DGPRegressor, load_model
from novidgp.estimators import streaming
from novidgp.estimators.sources import ArrayRows, TableRows
from novidgp.tables import files
from novidgp.training import rowfile
from support.small import SMALL

ROWS = 260
OPTIONS: dict = {**SMALL, "inference": "dsvi", "max_steps": 20, "batch_size": 40, "verbose": False}


@pytest.fixture(autouse=True)
def own_directory(tmp_path, monkeypatch):
    monkeypatch.setenv(rowfile.VARIABLE, str(tmp_path / "rows"))
    monkeypatch.setattr(files, "_BLOCK_ROWS", 64)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, 2)) * [1.0, 50.0] + [0.0, 7.0]
    return X, 10.0 + np.sin(X[:, 0]) + 0.1 * rng.standard_normal(ROWS)


@pytest.fixture
def table(rows, tmp_path):
    X, y = rows
    path = tmp_path / "t.parquet"
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}).to_parquet(path, index=False)
    return path


class Lazy:
    """Rows that are made when they are asked for."""

    def __init__(self, values):
        self._values, self.most = values, 0

    def __len__(self):
        return len(self._values)

    def __getitem__(self, numbers):
        self.most = max(self.most, len(numbers))
        return self._values[numbers]


def fitted(*data, estimator=DGPRegressor, target=None, **options):
    settings = OPTIONS | {"local": False} | options
    return estimator(**settings).fit(*data, target=target, chunk=10)


@pytest.fixture
def model(table):
    return fitted(table, target="y")


def test_files_maps_and_objects_give_one_model(rows, table, model, tmp_path):
    X, y = rows
    frame = pd.read_parquet(table)
    frame.to_csv(tmp_path / "t.csv", index=False)
    mapped = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float64, shape=X.shape)
    mapped[:] = X
    others = {
        "csv": fitted(str(tmp_path / "t.csv"), target="y"),
        "map": fitted(mapped, y),
        "object": fitted(Lazy(X), Lazy(y)),
    }
    expected = model.predict(frame[["a", "b"]])
    assert model.num_data_ == ROWS
    assert model.n_features_in_ == 2
    for name, other in others.items():
        given = frame[["a", "b"]] if name == "csv" else X
        np.testing.assert_array_equal(other.predict(given), expected, err_msg=name)


def test_scaling_is_that_of_rows_in_memory(rows, model):
    """Twenty steps say little; the scaled data, the method and the start are what they share."""
    X, y = rows
    memory = fitted(X, y)
    np.testing.assert_allclose(
        model.input_scaling_.shift, memory.input_scaling_.shift, rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(model.target_scaling_.scale, memory.target_scaling_.scale, rtol=1e-12)


def test_a_model_of_a_file_knows_its_columns(model, tmp_path):
    model.save(tmp_path / "m.novidgp")
    stored = load_model(tmp_path / "m.novidgp")
    assert [column["name"] for column in stored.extra_["table"]["columns"]] == ["a", "b"]
    assert stored.feature_names_in_.tolist() == ["a", "b"]


def test_a_resumed_fit_of_a_file_repeats_an_uninterrupted_one(rows, table, model, tmp_path):
    def stop(progress):
        raise StopIteration

    path = tmp_path / "run"
    options = OPTIONS | {"local": False, "checkpoint": path, "checkpoint_every": 0.0}
    with pytest.raises(StopIteration):
        DGPRegressor(**options).fit(table, target="y", chunk=10, callbacks=[stop])
    resumed = fitted(table, target="y", checkpoint=path)
    X = pd.DataFrame(rows[0], columns=["a", "b"])
    np.testing.assert_array_equal(resumed.predict(X), model.predict(X))


def test_a_file_of_one_batch_is_read_whole(rows, table):
    whole = fitted(table, target="y", batch_size=1000)
    assert whole.predict(pd.DataFrame(rows[0], columns=["a", "b"])).shape == (ROWS,)
    assert whole.num_data_ == ROWS


def test_the_local_layer_knows_a_sample_of_a_large_file(rows, table, monkeypatch):
    monkeypatch.setattr(streaming, "_MOST_NEIGHBOURS", 210)
    model = fitted(table, target="y", local={"steps": 2, "neighbours": 4})
    (target,) = model.local_.targets
    assert len(target.conditioned.rows) == 210
    assert np.isfinite(model.predict(pd.DataFrame(rows[0], columns=["a", "b"]))).all()


def test_classes_come_from_all_rows(rows, tmp_path):
    X, y = rows
    labels = np.where(np.arange(ROWS) < 200, np.where(y > 10, "high", "low"), "other")
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": labels}).to_parquet(tmp_path / "t.parquet")
    model = fitted(tmp_path / "t.parquet", estimator=DGPClassifier, target="kind")
    assert model.classes_.tolist() == ["high", "low", "other"]
    assert model.predict_proba(pd.DataFrame(X, columns=["a", "b"])).shape == (ROWS, 3)


def test_objects_are_read_in_blocks(monkeypatch):
    monkeypatch.setattr("novidgp.estimators.sources._BLOCK_ROWS", 50)
    X, y = Lazy(np.zeros((120, 2))), Lazy(np.arange(120.0))
    blocks = list(ArrayRows(X, y).blocks())
    assert [len(block.x) for block in blocks] == [50, 50, 20]
    assert (X.most, y.most) == (50, 50)
    np.testing.assert_array_equal(np.concatenate([block.y for block in blocks])[:, 0], np.arange(120.0))


# --- what is refused ---------------------------------------------------------------------------------


def refused(*data, error=ValueError, **options):
    with pytest.raises(error) as caught:
        fitted(*data, **options)
    return str(caught.value)


def test_a_file_needs_the_name_of_its_target(table, rows):
    assert "fit('big.parquet', target='y')" in refused("big.parquet")
    assert "takes the name of the column to predict" in refused(table, rows[1], target="y")
    assert "target='y' names a column of a file" in refused(*rows, target="y")


def test_what_needs_memory_is_refused(table):
    assert "validation_fraction=0.1 needs rows in memory" in refused(
        table, target="y", validation_fraction=0.1
    )
    with pytest.raises(ValueError, match="sample_weight needs rows in memory"):
        DGPRegressor(**OPTIONS).fit(table, target="y", sample_weight=np.ones(ROWS))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_number_far_in_is_named_by_its_row(rows, bad):
    X, y = rows[0].copy(), rows[1]
    X[222, 1] = bad
    assert f"X holds {bad} in row 222, column 1, counted from 0" in refused(Lazy(X), y)
    y = y.copy()
    y[7] = bad
    assert f"y holds {bad} in row 7" in refused(Lazy(rows[0]), y)


def test_objects_that_give_no_rows_are_refused(rows):
    X, y = rows
    assert "X has 259 rows and y has 260" in refused(Lazy(X[1:]), y)
    assert "gave 0 rows for 260 indices" in refused(
        type("Odd", (Lazy,), {"__getitem__": lambda *_: []})(X), y
    )
    assert "X must give (rows, columns)" in refused(Lazy(X[:, 0]), y)


def test_targets_that_cannot_be_are_refused(rows, table, tmp_path):
    frame = pd.read_parquet(table)
    frame.assign(y=1.0).to_parquet(tmp_path / "constant.parquet")
    assert "is constant" in refused(tmp_path / "constant.parquet", target="y")
    assert "the target in" in refused(table, target="y", likelihood="poisson")


def test_a_source_is_read_with_the_columns_of_its_encoding(table):
    source = TableRows(table, "y", "regression", drop=("b",))
    assert [block.x.shape[1] for block in source.blocks()] == [1] * 5
