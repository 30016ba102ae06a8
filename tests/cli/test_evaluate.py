"""`novidgp evaluate`: every score, and what it refuses."""

import json

import numpy as np
import pandas as pd
import pytest

import novidgp
from novidgp.prediction import metrics
from novidgp.tables.encode import TableEncoding
from support.commands import houses, refused, run


def test_scores_of_a_regression_are_those_of_the_estimator(files):
    scores = json.loads(run("evaluate", files.model, files.table, "--json").stdout)
    names = ["rows", "rmse", "nll", "coverage_50", "coverage_90", "coverage_95", "crps"]
    assert list(scores) == names
    frame = houses()
    model = novidgp.load_model(files.model)
    X, y = TableEncoding.from_json(model.extra_["table"]).encode(frame), frame["price"].to_numpy()
    assert scores["rmse"] == pytest.approx(metrics.rmse(y, model.predict(X)))
    assert scores["nll"] == pytest.approx(-np.mean(model.log_density(X, y)))
    lower, upper = model.predict_quantiles(X, [0.05, 0.95]).T
    assert scores["coverage_90"] == pytest.approx(np.mean((y >= lower) & (y <= upper)))


def test_scores_of_a_classification_are_those_of_the_estimator(files):
    scores = json.loads(run("evaluate", files.class_model, files.class_table, "--json").stdout)
    assert list(scores) == ["rows", "accuracy", "log_loss", "brier", "ece"]
    frame = pd.read_parquet(files.class_table)
    model = novidgp.load_model(files.class_model)
    X = TableEncoding.from_json(model.extra_["table"]).encode(frame)
    assert scores["accuracy"] == pytest.approx(np.mean(model.predict(X) == frame["band"]))
    assert scores["log_loss"] == pytest.approx(-np.mean(model.log_density(X, frame["band"].to_numpy(str))))


def test_scores_are_shown_with_their_meaning(files):
    assert "coverage of 90 %" in run("evaluate", files.model, files.table).stdout


def test_a_file_that_is_no_model_is_refused(files):
    assert "not a novidgp file" in refused("evaluate", files.table, files.table)


def test_an_unseen_class_is_refused(files, tmp_path):
    frame = pd.read_parquet(files.class_table)
    frame.assign(band="free").to_parquet(tmp_path / "t.parquet")
    assert "'free', which the model never saw" in refused(
        "evaluate", files.class_model, tmp_path / "t.parquet"
    )


def test_a_model_saved_from_python_is_explained(files, tmp_path):
    novidgp.load_model(files.model).save(tmp_path / "m.novidgp", extra={})
    assert "saved from Python" in refused("evaluate", tmp_path / "m.novidgp", files.table)
