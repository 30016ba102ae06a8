"""Tables: what is read, how it is encoded, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest

from novidgp.tables.encode import (
    MAX_CATEGORIES,
    TableEncoding,
    TableError,
    choose_task,
    read_table,
    split_target,
    target_values,
    write_table,
)


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "size": [1.5, 2.0, 3.25, 4.0],
            "city": ["Ghent", "Bruges", "Ghent", "Liège"],
            "garden": [True, False, True, True],
            "rooms": [1, 2, 3, 4],
            "price": [10.0, 20.0, 30.0, 40.0],
        }
    )


def learn(frame):
    features, target = split_target(frame, "price")
    return TableEncoding.learn(features, "price", choose_task(target))


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet"])
def test_a_written_table_is_read_back(frame, tmp_path, name):
    write_table(frame, tmp_path / name)
    pd.testing.assert_frame_equal(read_table(tmp_path / name), frame, check_dtype=False)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_failed_write_leaves_the_old_file(frame, tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_table(frame, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_semicolons_are_understood(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1;2\n3;4\n")
    assert list(read_table(tmp_path / "t.csv").columns) == ["a", "b"]


def test_npz_gives_x_and_y_columns(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.arange(6.0).reshape(3, 2), y=np.arange(3.0)[:, None])
    assert list(read_table(tmp_path / "t.npz").columns) == ["x0", "x1", "y"]


def test_a_data_set_is_read_by_name():
    assert read_table("diabetes").shape == (442, 11)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"a,b\n", "no rows"),
        ("t.csv", b"a,b\n1,2\n1,2,3,4\n", "cannot be read as CSV"),
        ("t.csv", b"\xff\xfe\x00\x81", "cannot be read as CSV"),
        ("t.parquet", b"not parquet", "cannot be read as Parquet"),
        ("t.npz", b"not a zip", "cannot be read as NPZ"),
        ("t.xlsx", b"x", "unknown kind of table"),
    ],
)
def test_unreadable_files_are_named(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=words):
        read_table(tmp_path / name)


def test_npz_with_other_arrays_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", Z=np.zeros((3, 2)))
    np.savez(tmp_path / "b.npz", X=np.zeros((3, 2)), y=np.zeros((3, 2)))
    np.savez(tmp_path / "c.npz", X=np.array([{}], object))
    for name, words in {"a": "no array named 'X'", "b": "one target per row", "c": "cannot be read"}.items():
        with pytest.raises(TableError, match=words):
            read_table(tmp_path / f"{name}.npz")


def test_encoding_is_one_hot_for_text_and_plain_for_numbers(frame):
    encoding = learn(frame)
    assert encoding.features == ("size", "city=Bruges", "city=Ghent", "city=Liège", "garden", "rooms")
    expected = [
        [1.5, 0, 1, 0, 1, 1],
        [2.0, 1, 0, 0, 0, 2],
        [3.25, 0, 1, 0, 1, 3],
        [4.0, 0, 0, 1, 1, 4],
    ]
    np.testing.assert_array_equal(encoding.encode(frame), expected)


def test_encoding_survives_json_and_ignores_column_order(frame):
    encoding = learn(frame)
    again = TableEncoding.from_json(json.loads(json.dumps(encoding.to_json())))
    assert again == encoding
    np.testing.assert_array_equal(again.encode(frame[frame.columns[::-1]]), encoding.encode(frame))


def test_foreign_json_is_refused():
    for stored in ({}, {"columns": 3, "target": "y", "task": "regression"}, None):
        with pytest.raises(TableError, match="model file"):
            TableEncoding.from_json(stored)


def test_unseen_categories_name_column_and_value(frame):
    with pytest.raises(TableError, match=r"'city' holds 'Mons', never seen in training"):
        learn(frame).encode(frame.replace({"city": {"Ghent": "Mons"}}))


def test_missing_and_extra_columns_are_named(frame):
    encoding = learn(frame)
    with pytest.raises(TableError, match=r"lacks 'size', 'city'"):
        encoding.encode(frame.drop(columns=["size", "city"]))
    assert encoding.extra_columns(frame.assign(note="x")) == ["note"]


def test_missing_values_are_counted_per_column(frame):
    broken = frame.assign(size=[np.nan, 2, np.nan, 4], city=["Ghent", None, "Ghent", "Liège"])
    with pytest.raises(TableError, match=r"3 of 4 rows \(by column: 'size' 2, 'city' 1\).*fill"):
        learn(broken).encode(broken)


def test_infinite_and_textual_numbers_are_refused(frame):
    encoding = learn(frame)
    with pytest.raises(TableError, match="'size' is infinite in 1 rows"):
        encoding.encode(frame.assign(size=[np.inf, 1, 2, 3]))
    with pytest.raises(TableError, match="'size' held numbers in training but now 'big'"):
        encoding.encode(frame.assign(size=["1", "2", "big", "3"]))


@pytest.mark.parametrize(
    "dates",
    [
        pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]),
        ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04 10:30"],
        list(pd.to_datetime(["2024-01-01"] * 4).date),
    ],
)
def test_dates_are_refused_with_the_cure(frame, dates):
    with pytest.raises(TableError, match=r"'when' holds dates.*--drop when"):
        learn(frame.assign(when=dates))


def test_too_many_categories_are_refused():
    count = MAX_CATEGORIES + 1
    frame = pd.DataFrame({"name": [f"n{index}" for index in range(count)], "price": np.arange(float(count))})
    with pytest.raises(TableError, match=r"101 distinct texts.*--drop name"):
        learn(frame)


def test_unknown_target_offers_the_nearest(frame):
    with pytest.raises(TableError, match="did you mean 'price'"):
        split_target(frame, "prize")


@pytest.mark.parametrize(
    ("values", "task", "expected"),
    [
        ([1.5, 2.5], "auto", "regression"),
        ([0, 1], "auto", "regression"),
        ([0, 1], "classification", "classification"),
        (["a", "b"], "auto", "classification"),
        ([True, False], "auto", "classification"),
        ([True, False], "regression", "regression"),
    ],
)
def test_task_follows_the_target_unless_told(values, task, expected):
    assert choose_task(pd.Series(values, name="y"), task) == expected


def test_text_cannot_be_regressed_nor_fractions_classified():
    with pytest.raises(TableError, match="use --task classification"):
        choose_task(pd.Series(["a", "b"], name="y"), "regression")
    with pytest.raises(TableError, match="use --task regression"):
        target_values(pd.Series([0.5, 1.0], name="y"), "classification")


def test_integer_labels_stay_integers():
    assert target_values(pd.Series([3.0, 1.0], name="y"), "classification").tolist() == [3, 1]
