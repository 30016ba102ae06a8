"""Numbers as text: understood where they can be read in one way only, refused by name otherwise."""

import numpy as np
import pandas as pd
import pytest

from novidgp.tables.encode import TableEncoding, choose_task, split_target, target_values
from novidgp.tables.errors import TableError
from novidgp.tables.read import read_table


def read(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    return read_table(tmp_path / "t.csv")


def learn(frame, target="y", task="auto"):
    inputs, column = split_target(frame, target)
    task = choose_task(column, task)
    return TableEncoding.learn(inputs, target, task), target_values(column, task)


def test_what_pandas_writes_with_decimal_commas_is_read_back(tmp_path):
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(30, 3)), columns=["a", "b", "y"])
    frame = frame.assign(whole=np.arange(30), small=frame["a"] * 1e-7, city="Ghent, Bruges")
    frame.loc[3, "a"] = np.nan
    frame.to_csv(tmp_path / "t.csv", sep=";", decimal=",", index=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.csv"), frame, check_dtype=False)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a;y\n1,5;2\n2;3\n", [1.5, 2]),
        ("a;y\n1,234;2,5\n2,345;3\n", [1.234, 2.345]),
        ("a;y\n0,123;2\n0,345;3\n", [0.123, 0.345]),
        ("a;y\n1.234,5;2\n-7,25;3\n", [1234.5, -7.25]),
        ('a,y\n"1,5",2\n" 2,5",3\n', [1.5, 2.5]),
        ("a\ty\n1,5e3\t2\n,5\t3\n", [1500, 0.5]),
    ],
)
def test_decimal_commas_are_understood_where_nothing_else_is_possible(tmp_path, text, values):
    frame = read(tmp_path, text)
    assert frame["a"].tolist() == values
    assert choose_task(frame["y"]) == "regression"


@pytest.mark.parametrize(
    ("text", "example"),
    [
        ("a;y\n1,234;2\n2,345;3\n", "1,234"),
        ("a;y\n1,5;2.5\n2,5;3.5\n", "1,5"),
        ("a;y\n1,234,567;2\n2,345,678;3\n", "1,234,567"),
        ('a,y\n"1,500.00",2\n950,3\n', "1,500.00"),
        ("a,y\n1 500,2\n950,3\n", "1 500"),
        ("a;y\n1.234;2\n0,5;3\n", "0,5"),
    ],
)
def test_numbers_that_can_be_read_in_two_ways_are_refused_by_name(tmp_path, text, example):
    frame = read(tmp_path, text)
    with pytest.raises(TableError, match=f"column 'a' holds numbers such as '{example}'.*decimal point"):
        learn(frame)
    with pytest.raises(TableError, match=f"column 'a' holds numbers such as '{example}'"):
        learn(frame, target="a")
    assert learn(frame.drop(columns="a").assign(b=[1, 2]))[0].matrix_columns == ("b",)


@pytest.mark.parametrize("kind", ["U", "S"])
def test_arrays_of_text_numbers_are_numbers(tmp_path, kind):
    X, y = np.array([["1.5", "2", "x"], ["2.5", "nan", "y"]], kind), np.array(["0.5", "1"], kind)
    np.savez(tmp_path / "t.npz", X=X, y=y)
    frame = read_table(tmp_path / "t.npz")
    assert frame["x0"].tolist() == [1.5, 2.5]
    assert np.isnan(frame["x1"][1])
    assert frame["x2"].tolist() == ["x", "y"]
    assert frame["y"].tolist() == [0.5, 1]


def test_bytes_that_are_no_text_are_refused(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.array([[b"\xff"]]))
    with pytest.raises(TableError, match=r"t\.npz holds bytes that are no text"):
        read_table(tmp_path / "t.npz")


def test_digits_of_other_scripts_stay_text(tmp_path):
    assert read(tmp_path, "a;y\n٣,٥;1\n٤,٥;2\n")["a"].tolist() == ["٣,٥", "٤,٥"]


def test_fractions_as_text_are_numbers_in_parquet_and_whole_numbers_stay_text(tmp_path):
    pd.DataFrame({"a": ["1.5", "2"], "code": ["01", "02"]}).to_parquet(tmp_path / "t.parquet")
    frame = read_table(tmp_path / "t.parquet")
    assert frame["a"].tolist() == [1.5, 2]
    assert frame["code"].tolist() == ["01", "02"]


@pytest.mark.parametrize(("task", "values"), [("regression", [3.0, 1.0]), ("classification", ["3", "1"])])
def test_whole_numbers_as_text_are_a_target_of_the_kind_that_is_asked_for(tmp_path, task, values):
    np.savez(tmp_path / "t.npz", X=np.zeros((2, 1)), y=np.array(["3", "1"]))
    frame = read_table(tmp_path / "t.npz")
    with pytest.raises(TableError, match=r"'y' holds whole numbers as text such as '3'; say --task"):
        learn(frame)
    assert learn(frame, task=task)[1].tolist() == values


@pytest.mark.parametrize("stray", ["n/a?", "5.0 pts", "$1,500.00", "-"])
@pytest.mark.parametrize("numbers", [["1.5", "2", "3.25", "4"], ["1", "2", "3", "4"]])
def test_one_stray_text_in_a_numeric_target_is_named_with_its_row(tmp_path, stray, numbers):
    rows = [*numbers[:3], f'"{stray}"', numbers[3]]
    frame = read(tmp_path, "a,y\n" + "".join(f"{index},{value}\n" for index, value in enumerate(rows)))
    for task in ("auto", "regression"):
        with pytest.raises(TableError) as error:
            learn(frame, task=task)
        assert f"target 'y' holds numbers, but {stray!r} in data row 4; correct" in str(error.value)
    with pytest.raises(TableError, match="in data row 4"):
        target_values(frame["y"], "regression")  # as `evaluate` does


def test_classes_of_which_most_are_numbers_can_be_asked_for():
    labels = pd.Series(["1", "2", "3", "4+"], name="y")
    with pytest.raises(TableError, match=r"'4\+' in data row 4.*--task classification"):
        choose_task(labels)
    assert choose_task(labels, "classification") == "classification"


def test_a_target_of_numbers_with_units_is_not_taken_for_classes(tmp_path):
    frame = read(tmp_path, "a,y\n" + "".join(f"{index},{index / 7:.3f} m\n" for index in range(40)))
    with pytest.raises(TableError, match=r"'y' holds 40 different texts in 40 rows, such as '0.000 m'"):
        learn(frame)
    assert len(learn(frame, task="classification")[1]) == 40


def test_an_input_of_numbers_with_one_stray_text_is_refused_but_few_codes_are_categories(tmp_path):
    frame = read(tmp_path, "a,y\n1.5,1\n2.5,2\nbad,3\n")
    with pytest.raises(TableError, match=r"column 'a' holds numbers, but 'bad' in data row 3.*--drop a"):
        learn(frame)
    frame = read(tmp_path, "doors,y\n2,1\n3,2\n4,2\n5more,3\n")
    assert learn(frame)[0].matrix_columns == ("doors=2", "doors=3", "doors=4", "doors=5more")
