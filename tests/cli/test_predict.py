"""`novidgp predict`: the table it writes, and the tables it refuses."""

import numpy as np
import pandas as pd
import pytest

import novidgp
from novidgp.tables.encode import TableEncoding
from support.commands import houses, refused, run


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_predictions_are_written_row_by_row(files, tmp_path, name):
    run("predict", files.model, files.table, "--out", tmp_path / name)
    read = pd.read_parquet if name.endswith("parquet") else pd.read_csv
    written = read(tmp_path / name)
    assert list(written.columns) == ["mean", "std", "q0.05", "q0.5", "q0.95"]
    assert len(written) == 60
    assert (written["std"] > 0).all()
    assert (written["q0.05"] < written["q0.5"]).all()
    assert (written["q0.5"] < written["q0.95"]).all()


def test_predictions_are_the_estimators(files, tmp_path):
    run("predict", files.model, files.table, "-o", tmp_path / "p.parquet", "--quantiles", "0.1")
    written = pd.read_parquet(tmp_path / "p.parquet")
    model = novidgp.load_model(files.model)
    X = TableEncoding.from_json(model.extra_["table"]).encode(houses())
    mean, std = model.predict(X, return_std=True)
    np.testing.assert_array_equal(written["mean"], mean)
    np.testing.assert_array_equal(written["std"], std)
    np.testing.assert_array_equal(written["q0.1"], model.predict_quantiles(X, 0.1))


def test_quantiles_can_be_left_out(files):
    printed = run("predict", files.model, files.table, "-o", "-", "--quantiles", "").stdout
    assert printed.splitlines()[0] == "mean,std"


def test_class_probabilities_sum_to_one(files):
    printed = run("predict", files.class_model, files.class_table, "-o", "-").stdout
    rows = [line.split(",") for line in printed.splitlines()]
    assert rows[0] == ["prediction", "p(cheap)", "p(dear)"]
    assert len(rows) == 61
    for label, cheap, dear in rows[1:]:
        assert float(cheap) + float(dear) == pytest.approx(1.0, abs=1e-6)
        assert label == ("cheap" if float(cheap) > float(dear) else "dear")


def test_inputs_are_kept_on_request(files, tmp_path):
    run("predict", files.model, files.table, "-o", tmp_path / "p.csv", "--with-inputs")
    assert list(pd.read_csv(tmp_path / "p.csv").columns)[:5] == ["size", "city", "garden", "price", "mean"]


def test_unused_columns_are_warned_of(files, tmp_path):
    houses().assign(note="x").to_csv(tmp_path / "h.csv", index=False)
    result = run("predict", files.model, tmp_path / "h.csv", "-o", tmp_path / "p.csv")
    assert "warning: columns the model does not know are left out: 'note'" in result.stderr


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (houses().drop(columns="city"), "lacks 'city'"),
        (houses().replace({"city": {"Ghent": "Mons"}}), "'Mons'"),
    ],
    ids=["column", "category"],
)
def test_another_table_is_refused(files, tmp_path, frame, message):
    frame.to_csv(tmp_path / "bad.csv", index=False)
    assert message in refused("predict", files.model, tmp_path / "bad.csv", "-o", tmp_path / "p.csv")
    assert not (tmp_path / "p.csv").exists()


def test_an_unknown_kind_of_output_is_refused(files, tmp_path):
    assert ".parquet" in refused("predict", files.model, files.table, "-o", tmp_path / "p.xlsx")


def test_wrong_usage_exits_with_2(files):
    run("predict", files.model, files.table, "-o", "p.csv", "--quantiles", "5", code=2)
    run("predict", files.model, files.table, code=2)


@pytest.mark.parametrize("read", [0, 1], ids=["MODEL", "DATA"])
def test_no_input_is_overwritten(tmp_path, read):
    paths = [tmp_path / "model.csv", tmp_path / "data.csv"]
    for path in paths:
        path.write_text("precious")
    words = f"is the same file as {['MODEL', 'DATA'][read]}"
    assert words in refused("predict", *paths, "-o", paths[read])
    assert paths[read].read_text() == "precious"
