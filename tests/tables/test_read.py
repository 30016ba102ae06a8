"""Reading and writing tables: what comes back, and what is refused."""

import numpy as np
import pandas as pd
import pytest

from novidgp.tables.errors import TableError
from novidgp.tables.read import read_table, write_table


@pytest.fixture
def frame():
    return pd.DataFrame({"size": [1.5, 2.0, 3.25], "city": ["Ghent", "Bruges", "Liège"], "rooms": [1, 2, 3]})


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
