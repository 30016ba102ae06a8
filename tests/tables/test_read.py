"""Reading and writing tables: what comes back, and what is refused."""

import gzip
import io
import time
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
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


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", b"a,y,y\n1,2,2\n"),
        ("t.csv", b'a;" y";y\n1;2;2\n'),
        ("t.csv", b"\xef\xbb\xbf\n\ny\ta\ty\n1\t2\t2\n"),
        ("t.csv.gz", gzip.compress(b"a,y,y\n1,2,2\n")),
    ],
    ids=["commas", "semicolons", "tabs", "gzip"],
)
def test_two_columns_of_one_name_are_refused_before_pandas_renames_one(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=r"two columns named 'y', the \w+ and the 3rd; rename or remove one"):
        read_table(tmp_path / name)


def test_two_columns_of_one_name_are_refused_in_parquet(tmp_path):
    pq.write_table(pa.table([[1], [2], [2]], names=["a", "y", "y"]), tmp_path / "t.parquet")
    with pytest.raises(TableError, match="two columns named 'y', the 2nd and the 3rd"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("a;b, in m;c\n1;2;3\n", ["a", "b, in m", "c"]),
        ('"a;b",c\n1,2\n', ["a;b", "c"]),
        ("a|b\n1|2\n", ["a", "b"]),
        ('"a\nb",c\n1,2\n', ["a\nb", "c"]),
        ("a\n1\n", ["a"]),
    ],
)
def test_the_separator_splits_header_and_first_row_alike(tmp_path, text, columns):
    (tmp_path / "t.csv").write_text(text)
    assert list(read_table(tmp_path / "t.csv").columns) == columns


def test_a_column_without_a_name_does_not_become_labels_of_the_rows(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2,3\n4,5,6\n")
    with pytest.raises(TableError, match="3 values in its first row but 2 names in its header"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize("rows", ["", "1,2\n"])
def test_a_header_of_a_million_names_is_refused_at_once(tmp_path, rows):
    (tmp_path / "t.csv").write_text(",".join(map(str, range(10**6))) + "\n" + rows)
    start = time.perf_counter()
    with pytest.raises(TableError, match=r"1,000,000 columns \(at most 100,000\)" if rows else "no rows"):
        read_table(tmp_path / "t.csv")
    assert time.perf_counter() - start < 20  # pandas needs two minutes


def npz_of_claims(path, shape, held=10):
    """An archive whose array X has a header of one shape and a few numbers."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", header.getvalue() + bytes(8 * held))


@pytest.mark.parametrize("shape", [(10**9, 1000), (10**9, 1), (5, 1), (2**62, 2**62)])
def test_an_array_that_claims_another_size_is_refused_without_asking_for_memory(tmp_path, shape):
    npz_of_claims(tmp_path / "t.npz", shape)
    with pytest.raises(TableError, match=r"t\.npz is damaged: its array 'X' claims the shape .* has 80;"):
        read_table(tmp_path / "t.npz")
    npz_of_claims(tmp_path / "t.npz", (5, 2))
    assert read_table(tmp_path / "t.npz").shape == (5, 2)


def test_damaged_notes_of_pandas_in_parquet_are_refused(frame, tmp_path):
    table = pa.Table.from_pandas(frame)
    notes = table.schema.metadata[b"pandas"].replace(b"numpy_type", b"numpy_typo")
    pq.write_table(table.replace_schema_metadata({b"pandas": notes}), tmp_path / "t.parquet")
    with pytest.raises(TableError, match="cannot be read as Parquet"):
        read_table(tmp_path / "t.parquet")


def test_one_array_named_npz_is_explained(tmp_path):
    with (tmp_path / "t.npz").open("wb") as file:
        np.save(file, np.zeros((3, 2)))
    with pytest.raises(TableError, match=r"t\.npz is one array as np\.save writes it; use np\.savez"):
        read_table(tmp_path / "t.npz")


def test_arrays_of_other_kinds_are_read_or_refused(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.ones((3, 2), ">f8"))
    assert read_table(tmp_path / "t.npz")["x0"].dtype == np.dtype("=f8")
    np.savez(tmp_path / "t.npz", X=np.zeros((3, 2), [("a", "f8")]))
    with pytest.raises(TableError, match="holds a structured array"):
        read_table(tmp_path / "t.npz")


def test_a_table_cannot_be_written_to_a_directory(frame, tmp_path):
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(TableError, match=r"t\.csv is a directory; give the path of a file"):
        write_table(frame, tmp_path / "t.csv")
