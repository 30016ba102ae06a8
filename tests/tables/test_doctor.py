"""The doctor: every ailment it knows is found, and a healthy table is left in peace."""

import numpy as np
import pandas as pd
import pytest

from novidgp.tables.doctor import diagnose
from novidgp.tables.encode import TableEncoding, choose_task, split_target, target_values
from novidgp.tables.errors import TableError
from novidgp.tables.read import read_table

ROWS = 200


def healthy():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(ROWS, 3)), columns=["a", "b", "c"])
    return frame.assign(city=generator.choice(["x", "y"], ROWS), y=generator.normal(size=ROWS))


def sick(**columns):
    return healthy().assign(**columns)


NORMAL = np.random.default_rng(1).normal(size=ROWS)
FIRST = np.arange(ROWS) == 0

AILMENTS = {
    "missing": (sick(a=np.where(FIRST, np.nan, NORMAL)), "error", "a", "1 values missing"),
    "missing text": (sick(city=[None, *["x", "y"] * 99, "x"]), "error", "city", "1 values missing"),
    "missing category": (
        sick(city=pd.Categorical([None, *["x", "y"] * 99, "x"])),
        "error",
        "city",
        "1 values missing",
    ),
    "duplicate text": (sick(d=healthy()["city"]), "warning", "d", "the same as 'city'"),
    "empty": (sick(a=np.nan), "error", "a", "no value at all"),
    "infinite": (sick(a=np.where(FIRST, np.inf, NORMAL)), "error", "a", "infinite"),
    "constant": (sick(a=7.0), "warning", "a", "constant"),
    "constant text": (sick(city="x"), "warning", "city", "constant"),
    "duplicate": (sick(d=healthy()["a"]), "warning", "d", "the same as 'a'"),
    "near duplicate": (
        sick(d=-3 * healthy()["a"] + 1e-3 * NORMAL),
        "warning",
        "d",
        "all but the same as 'a'",
    ),
    "outlier": (sick(a=np.where(FIRST, 1e4, NORMAL)), "warning", "a", "robust deviations"),
    "powers of ten": (sick(a=np.exp(5 * NORMAL)), "warning", "a", "powers of ten"),
    "offset": (sick(a=1e12 + NORMAL), "warning", "a", "digits are lost"),
    "wild scales": (sick(a=1e9 * NORMAL), "note", "", "wild scales"),
    "id": (sick(a=np.arange(ROWS) + 1), "warning", "a", "like an id"),
    "names": (sick(city=[f"n{i}" for i in range(ROWS)]), "error", "city", "different text in every row"),
    "many texts": (sick(city=[f"n{i // 2}" for i in range(ROWS)]), "warning", "city", "100 distinct texts"),
    "text numbers": (sick(city=["2", "3", "4", "more"] * 50), "warning", "city", "numbers stored as text"),
    "stray text": (sick(city=["1.5"] * (ROWS - 1) + ["n/a?"]), "error", "city", "'n/a?' in data row 200"),
    "stray target": (sick(y=["1.5"] * (ROWS - 1) + ["5.0 pts"]), "error", "y", "'5.0 pts' in data row 200"),
    "dates": (sick(city=pd.date_range("2024-01-01", periods=ROWS)), "error", "city", "dates"),
    "nested": (sick(city=[[1, 2]] * ROWS), "error", "city", "lists or records"),
    "huge integers": (sick(a=[10**400, *range(ROWS - 1)]), "error", "a", "infinite"),
    "few rows": (healthy().head(20), "warning", "", "20 rows"),
    "one row": (healthy().head(1), "error", "", "1 row"),
    "copies": (pd.concat([healthy()] * 2), "warning", "", "copies"),
    "constant target": (sick(y=1.0), "error", "y", "constant"),
    "target constant but for rounding": (
        sick(y=1e6 + 1e-10 * (np.arange(ROWS) % 2)),
        "error",
        "y",
        "constant",
    ),
    "target constant as float": (sick(y=2**60 + np.arange(ROWS) % 2), "error", "y", "constant"),
    "no feature": (healthy()[["y"]], "error", "", "no feature column"),
    "no target": (sick(y=pd.Categorical([None] * ROWS)), "error", "y", "target missing"),
    "missing target": (sick(y=np.where(FIRST, np.nan, NORMAL)), "error", "y", "target missing"),
    "skewed target": (sick(y=np.exp(2 * NORMAL)), "warning", "y", "skewed"),
    "few values": (sick(y=np.arange(ROWS) % 3), "note", "y", "3 distinct values"),
    "one class": (sick(y="yes"), "error", "y", "one class only"),
    "rare class": (sick(y=np.where(FIRST, "no", "yes")), "warning", "y", "fewer than five"),
}


@pytest.mark.parametrize("ailment", AILMENTS)
def test_ailment_is_found_with_a_cure(ailment):
    frame, severity, column, words = AILMENTS[ailment]
    found = [f for f in diagnose(frame, "y") if words in f.problem]
    assert [(f.severity, f.column) for f in found] == [(severity, column)]
    assert found[0].cure


def test_a_healthy_table_has_no_findings():
    assert diagnose(healthy(), "y") == []
    assert diagnose(healthy()) == []


@pytest.mark.parametrize("name", ["diabetes", "wine", "iris"])
def test_well_known_data_raise_no_error(name):
    assert all(finding.severity != "error" for finding in diagnose(read_table(name), "y"))


def test_one_column_is_no_table_for_a_fit():
    assert [finding.problem for finding in diagnose(healthy()[["a"]])] == ["no feature column"]


@pytest.mark.parametrize("ailment", AILMENTS)
def test_a_table_without_an_error_can_be_encoded_and_one_with_an_error_cannot(ailment):
    """Whether the doctor finds an error is whether a fit refuses the table, as far as tables go."""
    frame = AILMENTS[ailment][0]
    left_to_the_estimator = {"one row", "one class", "constant target", "target constant as float"}
    left_to_the_estimator |= {"target constant but for rounding"}
    refused = ailment in left_to_the_estimator
    try:
        inputs, target = split_target(frame, "y")
        task = choose_task(target)
        TableEncoding.learn(inputs, "y", task).encode(inputs)
        target_values(target, task)
    except TableError:
        refused = True
    assert any(finding.severity == "error" for finding in diagnose(frame, "y")) == refused


def test_gravest_first():
    frame = sick(a=7.0, b=np.where(FIRST, np.nan, NORMAL))
    assert [finding.severity for finding in diagnose(frame, "y")] == ["error", "warning"]


def test_unknown_target_is_refused_with_the_names_there_are():
    with pytest.raises(TableError, match="no column is named 'z'; columns: 'a', 'b', 'c', 'city', 'y'"):
        diagnose(healthy(), "z")
    with pytest.raises(TableError, match="did you mean 'city'"):
        diagnose(healthy(), "citty")
