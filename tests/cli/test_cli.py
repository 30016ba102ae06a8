"""The commands, run in process on small tables; the examples of README and docs, run as written."""

import inspect
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from novidgp import DGPRegressor
from novidgp.cli import app
from novidgp.cli.fit import fit_command, parse_options
from novidgp.inference import METHODS

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--steps", "20", "--inducing", "10", "--seed", "1"]
runner = CliRunner()


def run(*arguments, code=0):
    result = runner.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def refused(*arguments, code=1):
    """The one line a refused command ends with."""
    result = run(*arguments, code=code)
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def houses():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": generator.uniform(20, 200, 60).round(1),
            "city": generator.choice(["Ghent", "Bruges", "Namur"], 60),
            "garden": generator.random(60) > 0.5,
        }
    )
    price = 3 * frame["size"] + frame["city"].map({"Ghent": 50, "Bruges": 20, "Namur": 0})
    frame["price"] = (price + 10 * generator.normal(size=60)).round(1)
    return frame


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A directory with a table of houses, and models of their price and of its class."""
    directory = tmp_path_factory.mktemp("cli")
    frame = houses()
    frame.to_csv(directory / "houses.csv", index=False)
    band = np.where(frame["price"] > frame["price"].median(), "dear", "cheap")
    frame.drop(columns="price").assign(band=band).to_parquet(directory / "bands.parquet")
    fitted = run("fit", directory / "houses.csv", "-t", "price", "-o", directory / "price.novidgp", *SMALL)
    assert "regression of 'price': 60 rows, 3 columns, 5 features" in fitted.output
    run("fit", directory / "bands.parquet", "-t", "band", "-o", directory / "band.novidgp", *SMALL)
    return directory


def test_help_and_start_need_no_heavy_import():
    heavy = "{'jax', 'numpy', 'pandas', 'sklearn', 'scipy', 'matplotlib', 'equinox'}"
    check = f"import sys; from novidgp.cli import app; sys.exit(sorted({heavy} & sys.modules.keys()) or 0)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_help_is_quick():
    command = [sys.executable, "-c", "from novidgp.cli import app; app()", "--help"]
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 1.0


def test_every_command_has_help():
    for command in ([], ["fit"], ["predict"], ["evaluate"], ["doctor"], ["demo"], ["data"], ["version"]):
        assert run(*command, "--help").output


def test_fit_has_the_defaults_of_the_estimators():
    names = {"layers": "num_layers", "inducing": "num_inducing", "hidden": "hidden_dim", "steps": "max_steps"}
    parameters = inspect.signature(fit_command).parameters
    ours = {names.get(name, name): parameter.default for name, parameter in parameters.items()}
    theirs = DGPRegressor().get_params()
    shared = ours.keys() & theirs.keys()
    assert {"inference", "preset", "num_layers", "max_steps", "starts", "kernel", "batch_size"} <= shared
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}


def test_version():
    assert run("--version").output == run("version").output
    assert run("version").output.startswith("novidgp ")


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_predictions_are_written_row_by_row(work, tmp_path, name):
    run("predict", work / "price.novidgp", work / "houses.csv", "--out", tmp_path / name)
    read = pd.read_parquet if name.endswith("parquet") else pd.read_csv
    written = read(tmp_path / name)
    assert list(written.columns) == ["mean", "std", "q0.05", "q0.5", "q0.95"]
    assert len(written) == 60
    assert (written["std"] > 0).all()
    assert (written["q0.05"] < written["q0.5"]).all()
    assert (written["q0.5"] < written["q0.95"]).all()


def test_predictions_are_the_estimators(work, tmp_path):
    import novidgp
    from novidgp.tables.encode import TableEncoding

    run(
        "predict",
        work / "price.novidgp",
        work / "houses.csv",
        "-o",
        tmp_path / "p.parquet",
        "--quantiles",
        "",
    )
    written = pd.read_parquet(tmp_path / "p.parquet")
    model = novidgp.load_model(work / "price.novidgp")
    X = TableEncoding.from_json(model.extra_["table"]).encode(houses())
    np.testing.assert_array_equal(written["mean"], model.predict(X))
    assert list(written.columns) == ["mean", "std"]


def test_class_probabilities_sum_to_one(work):
    printed = run("predict", work / "band.novidgp", work / "bands.parquet", "-o", "-").stdout
    rows = [line.split(",") for line in printed.splitlines()]
    assert rows[0] == ["prediction", "p(cheap)", "p(dear)"]
    for label, cheap, dear in rows[1:]:
        assert float(cheap) + float(dear) == pytest.approx(1.0, abs=1e-6)
        assert label == ("cheap" if float(cheap) > float(dear) else "dear")


def test_inputs_are_kept_on_request(work, tmp_path):
    run("predict", work / "price.novidgp", work / "houses.csv", "-o", tmp_path / "p.csv", "--with-inputs")
    assert list(pd.read_csv(tmp_path / "p.csv").columns)[:5] == ["size", "city", "garden", "price", "mean"]


def test_evaluate_prints_every_score(work):
    regression = run("evaluate", work / "price.novidgp", work / "houses.csv", "--json").stdout
    names = {"rows", "rmse", "nll", "coverage_50", "coverage_90", "coverage_95", "crps"}
    assert json.loads(regression).keys() == names
    classification = run("evaluate", work / "band.novidgp", work / "bands.parquet", "--json").stdout
    assert json.loads(classification).keys() == {"rows", "accuracy", "log_loss", "brier", "ece"}
    assert "coverage of 90 %" in run("evaluate", work / "price.novidgp", work / "houses.csv").stdout


def test_held_out_rows_are_scored(work, tmp_path):
    arguments = ["--test-fraction", "0.2", "-o", tmp_path / "m.novidgp", *SMALL]
    output = run("fit", work / "houses.csv", "-t", "price", *arguments).output
    assert "48 rows" in output
    assert "12 rows held out" in output


def test_doctor_names_the_trouble_and_exits_1(tmp_path):
    frame = houses().assign(useless=1.0)
    frame.loc[3, "size"] = np.nan
    frame.to_csv(tmp_path / "h.csv", index=False)
    output = run("doctor", tmp_path / "h.csv", "--target", "price", code=1).output
    assert "1 values missing" in output
    assert "--drop useless" in output
    houses().to_csv(tmp_path / "ok.csv", index=False)
    assert "nothing that would hurt" in run("doctor", tmp_path / "ok.csv").output


def test_user_errors_are_one_line(work, tmp_path):
    table, model = work / "houses.csv", work / "price.novidgp"
    assert "did you mean 'price'" in refused("fit", table, "-t", "prise")
    assert "no file" in refused("fit", tmp_path / "none.csv", "-t", "y")
    assert "no such column" in refused("fit", table, "-t", "price", "--drop", "nothing")
    assert "create" in refused("fit", table, "-t", "price", "-o", tmp_path / "no" / "m.novidgp")
    assert "Did you mean 'dsvi'" in refused("fit", table, "-t", "price", "--inference", "dsvo")
    assert "Did you mean 'rq'" in refused("fit", table, "-t", "price", "--kernel", "rqq")
    assert "Did you mean 'mlp'" in refused("fit", table, "-t", "price", "--features", "mpl")
    assert "too small" in refused("fit", table, "-t", "price", "--latent-dim", "-1")
    assert "model_rate" in refused("fit", table, "-t", "price", "--set", "modl_rate=0.1")
    assert "must be a number" in refused("fit", table, "-t", "price", "--set", "model_rate=fast")
    assert "not a novidgp file" in refused("evaluate", table, table)
    assert "lacks 'city'" in refused_prediction(model, houses().drop(columns="city"), tmp_path)
    assert "'Mons'" in refused_prediction(model, houses().replace({"city": {"Ghent": "Mons"}}), tmp_path)
    assert ".parquet" in refused("predict", model, table, "-o", tmp_path / "p.xlsx")
    text = houses().assign(price="dear")
    text.to_csv(tmp_path / "one.csv", index=False)
    assert "one class" in refused("fit", tmp_path / "one.csv", "-t", "price")


def refused_prediction(model, frame, directory):
    frame.to_csv(directory / "bad.csv", index=False)
    return refused("predict", model, directory / "bad.csv", "-o", directory / "p.csv")


def test_options_are_read_as_python_or_json_writes_them():
    pairs = ["a=False", "b=true", "c=None", "d=null", "e=1e-3", "f=10", "g=tanh", "h=[1, 2]", "i=(0.1, 5)"]
    assert parse_options(pairs) == {
        "a": False,
        "b": True,
        "c": None,
        "d": None,
        "e": 1e-3,
        "f": 10,
        "g": "tanh",
        "h": [1, 2],
        "i": (0.1, 5),
    }


def test_usage_errors_exit_with_2(work):
    run("fit", work / "houses.csv", code=2)
    run("fit", work / "houses.csv", "-t", "price", "--layers", "0", code=2)
    run("fit", work / "houses.csv", "-t", "price", "--set", "nonsense", code=2)
    run("predict", work / "price.novidgp", work / "houses.csv", "-o", "p.csv", "--quantiles", "5", code=2)
    run("predict", work / "price.novidgp", work / "houses.csv", code=2)


def test_unused_columns_and_reduced_inducing_points_are_warned_of(work, tmp_path):
    houses().assign(note="x").to_csv(tmp_path / "h.csv", index=False)
    result = run("predict", work / "price.novidgp", tmp_path / "h.csv", "-o", tmp_path / "p.csv")
    assert "warning: columns the model does not know are left out: 'note'" in result.stderr
    arguments = ["--inducing", "500", "--steps", "2", "-o", tmp_path / "m.novidgp"]
    result = run("fit", work / "houses.csv", "-t", "price", *arguments)
    assert "warning: num_inducing=500 exceeds" in result.stderr


def test_a_model_saved_from_python_is_explained(tmp_path):
    X = np.linspace(0, 1, 20)[:, None]
    DGPRegressor(num_layers=1, num_inducing=5, max_steps=2).fit(X, X[:, 0]).save(tmp_path / "m.novidgp")
    np.savez(tmp_path / "t.npz", X=X, y=X[:, 0])
    message = refused("evaluate", tmp_path / "m.novidgp", tmp_path / "t.npz")
    assert "saved from Python" in message


def test_demo_goes_the_whole_way(tmp_path):
    output = run("demo", "--out", tmp_path / "demo", "--steps", "20").output
    assert "exact GP" in output
    assert "agree bit for bit" in output.replace("\n", " ")
    names = {path.name for path in (tmp_path / "demo").iterdir()}
    assert names == {"bands.png", "training.png", "posterior.png", "curve.novidgp"}


def _blocks(language):
    """Fenced blocks of the README and the documentation, by where they stand."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        blocks = re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.M | re.S)
        for index, block in enumerate(blocks):
            yield pytest.param(block, id=f"{path.name}-{index}")


@pytest.mark.parametrize("block", list(_blocks("python")))
def test_python_examples_run(block, tmp_path, monkeypatch):
    """As written, but with few steps."""
    monkeypatch.chdir(tmp_path)
    block = re.sub(r"max_steps=\d+", "max_steps=20", block)
    with mock.patch.dict(METHODS):  # one example adds a method
        exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", list(_blocks("console")))
def test_command_examples_run(block, tmp_path, monkeypatch):
    """Every `$ novidgp ...` line, in order, with few steps."""
    monkeypatch.chdir(tmp_path)
    houses().to_csv("houses.csv", index=False)
    commands = re.findall(r"^\$ novidgp (.*)$", block, re.M)
    for command in commands:
        arguments = command.split()
        if arguments[0] in ("fit", "demo"):
            arguments += ["--steps", "10"]
        run(*arguments)
