"""How a table is encoded, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest

from novidgp.tables.encode import MAX_CATEGORIES, TableEncoding, choose_task, split_target, target_values
from novidgp.tables.errors import TableError


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
    inputs, target = split_target(frame, "price")
    return TableEncoding.learn(inputs, "price", choose_task(target))


def test_encoding_is_one_hot_for_text_and_plain_for_numbers(frame):
    encoding = learn(frame)
    assert encoding.matrix_columns == ("size", "city=Bruges", "city=Ghent", "city=Liège", "garden", "rooms")
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
        pd.period_range("2024-01", periods=4, freq="M"),
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


def test_a_target_of_dates_is_not_to_be_dropped(frame):
    with pytest.raises(TableError, match=r"'price' holds dates or times.*, or choose another target$"):
        learn(frame.assign(price=pd.date_range("2024-01-01", periods=4)))


@pytest.mark.parametrize("cell", [[1, 2], {"a": 1}, np.ones(2), (1,)])
def test_lists_and_records_in_cells_are_refused_by_name(frame, cell):
    with pytest.raises(TableError, match=r"'nested' holds lists or records in its cells.*--drop nested"):
        learn(frame.assign(nested=pd.Series([cell] * 4)))


def test_other_cells_are_told_in_plain_words(frame):
    with pytest.raises(TableError, match=r"'raw' holds bytes; .*--drop raw"):
        learn(frame.assign(raw=[b"a"] * 4))
    with pytest.raises(TableError, match=r"'raw' mixes numbers and text; "):
        learn(frame.assign(raw=pd.Series([1, 2.5, "a", "b"], dtype=object)))


def test_numbers_too_large_for_a_float_are_infinite(frame):
    huge = pd.Series([1, 2, 10**400, -(10**400)], dtype=object)
    with pytest.raises(TableError, match=r"'size' is infinite in 2 rows \(beyond 1.8e308\)"):
        learn(frame).encode(frame.assign(size=huge))
    with pytest.raises(TableError, match="'y' is infinite in 2 rows"):
        target_values(huge.rename("y"), "regression")
    with pytest.raises(TableError, match=r"'y' holds numbers beyond 2\^63, which are no class labels"):
        target_values(huge.rename("y"), "classification")


def test_none_among_classes_is_named_with_its_row(frame):
    with pytest.raises(TableError, match=r"'city' is missing in 1 of 4 rows, first in data row 3.*None"):
        split_target(frame.assign(city=["Ghent", "Bruges", None, "Ghent"]), "city")
