"""Tables in files that are read in blocks."""

import numpy as np
import pandas as pd
import pytest

from novidgp.tables import files as module
from novidgp.tables.errors import TableError
from novidgp.tables.files import encoded_parts, find_tables, learn_encoding

ROWS = 50


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_ROWS", 8)


def table(rows=ROWS):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": rng.uniform(20, 200, rows),
            "city": np.where(np.arange(rows) < 20, "Ghent", "Namur"),
            "garden": rng.random(rows) > 0.5,
            "price": rng.standard_normal(rows),
        }
    )


def write(frame, path):
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path, index=False)
    return path


def matrix(source, **options):
    files = find_tables(source)
    encoding = learn_encoding(files, "price", **options)
    parts = list(encoded_parts(files, encoding, with_target=True))
    return encoding, np.concatenate([x for _, x, _ in parts]), np.concatenate([y for *_, y in parts])


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_blocks_of_a_file_are_its_rows(tmp_path, ending):
    frame = table()
    encoding, X, y = matrix(write(frame, tmp_path / f"t.{ending}"))
    assert encoding.matrix_columns == ("size", "city=Ghent", "city=Namur", "garden")  # Namur comes late
    np.testing.assert_allclose(X[:, 0], frame["size"], rtol=1e-15)
    np.testing.assert_array_equal(X[:, 1], frame["city"] == "Ghent")
    np.testing.assert_array_equal(X[:, 3], frame["garden"])
    np.testing.assert_allclose(y, frame["price"], rtol=1e-15)


def test_a_directory_is_its_files_in_order_whatever_the_order_of_their_columns(tmp_path):
    frame = table()
    write(frame[:30], tmp_path / "a.parquet")
    write(frame.loc[30:, ["price", "garden", "size", "city"]], tmp_path / "b.parquet")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".hidden").write_text("x")
    for source in (tmp_path, tmp_path / "*.parquet"):
        _, X, y = matrix(source)
        np.testing.assert_allclose(X[:, 0], frame["size"], rtol=1e-15)
        np.testing.assert_allclose(y, frame["price"], rtol=1e-15)


def test_columns_can_be_left_out(tmp_path):
    encoding, X, _ = matrix(write(table(), tmp_path / "t.csv"), drop=["city"])
    assert encoding.matrix_columns == ("size", "garden")
    assert X.shape == (ROWS, 2)


def test_a_file_that_changes_has_another_identity(tmp_path):
    path = write(table(), tmp_path / "t.csv")
    before = find_tables(path).identity()
    assert find_tables(path).identity() == before
    write(table(rows=51), path)
    assert find_tables(path).identity() != before


def refused(source, **options):
    with pytest.raises(TableError) as caught:
        matrix(source, **options)
    return str(caught.value)


def test_a_truncated_file_is_refused_at_once(tmp_path):
    write(table(), tmp_path / "a.parquet")
    path = write(table(), tmp_path / "b.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    assert "b.parquet cannot be read as Parquet" in refused(tmp_path)


def test_a_damaged_page_is_refused_where_the_file_has_checksums(tmp_path):
    path = tmp_path / "a.parquet"
    table().to_parquet(path, index=False, write_page_checksum=True, compression=None, use_dictionary=False)
    content = bytearray(path.read_bytes())
    at = content.find(np.float64(table()["size"].iloc[20]).tobytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert "a.parquet cannot be read as Parquet" in refused(path)


def test_a_foreign_file_in_a_directory_is_named(tmp_path):
    write(table(), tmp_path / "a.parquet")
    (tmp_path / "notes.txt.bak").write_text("x")
    words = refused(tmp_path)
    assert "notes.txt.bak is no .parquet or .csv file; move it out of the directory" in words
    assert f"'{tmp_path}/*.parquet'" in words


@pytest.mark.parametrize(
    ("column", "words"), [("size", "no value of 'size'"), ("price", "no value of 'price'")]
)
def test_a_gap_far_in_is_named_by_its_row(tmp_path, column, words):
    frame = table()
    frame.loc[41, column] = np.nan
    path = write(frame, tmp_path / "t.parquet")
    assert (
        refused(path)
        == f"{path} has {words} in data row 42; drop such rows, fill them, or leave the column out"
    )


def test_a_text_among_numbers_is_named_by_its_block(tmp_path):
    frame = table().astype({"size": object})
    frame.loc[44, "size"] = "wide"
    words = refused(write(frame, tmp_path / "t.csv"))
    assert "t.csv, data rows 41 to 48: column 'size'" in words
    assert "'wide'" in words


def test_files_with_other_columns_are_refused(tmp_path):
    write(table(), tmp_path / "a.parquet")
    write(table().rename(columns={"size": "area"}), tmp_path / "b.parquet")
    assert "b.parquet lacks 'size', unlike" in refused(tmp_path)
    write(table().assign(extra=1), tmp_path / "b.parquet")
    assert "b.parquet has 'extra' as well, unlike" in refused(tmp_path)


def test_a_table_as_parquet_and_as_text_is_not_read_twice(tmp_path):
    write(table(), tmp_path / "a.parquet")
    write(table(), tmp_path / "a.csv")
    for source in (tmp_path, tmp_path / "a.*"):
        words = refused(source)
        assert "a.parquet is a Parquet file and" in words
        assert f"such as '{tmp_path}/*.parquet'" in words


@pytest.mark.parametrize(
    ("name", "words"),
    [("nothing*.parquet", "no file matches that pattern"), ("empty", "holds no .parquet or .csv file")],
)
def test_no_files_are_refused(tmp_path, name, words):
    (tmp_path / "empty").mkdir()
    assert words in refused(tmp_path / name)


def test_an_unknown_target_and_column_are_refused(tmp_path):
    path = write(table(), tmp_path / "t.parquet")
    assert "--drop towns: the table has no such column" in refused(path, drop=["towns"])
    with pytest.raises(TableError, match="no column is named 'prise'; did you mean 'price'"):
        learn_encoding(find_tables(path), "prise")


def test_too_many_texts_are_refused(tmp_path):
    frame = table(rows=150).assign(city=[f"town {number}" for number in range(150)])
    assert "more than 100 distinct texts" in refused(write(frame, tmp_path / "t.parquet"))
