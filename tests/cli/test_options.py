"""Options given as text, and the names that help texts show."""

import inspect
import re

import pytest
import typer

from novidgp import DGPClassifier, DGPRegressor
from novidgp.cli.fit import fit_command
from novidgp.cli.options import (
    INFERENCE_METHODS,
    check_files,
    make_estimator,
    parse_layers,
    parse_options,
)
from novidgp.inference import METHODS


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


@pytest.mark.parametrize("pair", ["nonsense", "=3", ""])
def test_what_is_no_pair_is_refused(pair):
    with pytest.raises(typer.BadParameter, match="not of the form NAME=VALUE"):
        parse_options([pair])


def test_the_methods_in_help_are_the_methods_there_are():
    assert sorted(INFERENCE_METHODS) == sorted(METHODS), "add the method to novidgp/cli/options.py"


def test_a_task_has_its_estimator():
    assert isinstance(make_estimator("classification", {"num_layers": 3}), DGPClassifier)
    assert make_estimator("regression", {"num_layers": 3}).num_layers == 3


def test_fit_has_the_defaults_of_the_estimators():
    names = {"inducing": "num_inducing", "hidden": "hidden_dim", "steps": "max_steps"}
    parameters = inspect.signature(fit_command).parameters
    ours = {names.get(name, name): parameter.default for name, parameter in parameters.items()}
    theirs = DGPRegressor().get_params()
    ours |= parse_layers(ours.pop("layers"))
    assert ours.pop("local") is None  # neither --local nor --no-local
    assert theirs.pop("local") == "auto"
    shared = ours.keys() & theirs.keys()
    assert {"inference", "preset", "num_layers", "max_steps", "starts", "kernel", "batch_size"} <= shared
    assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}


def test_layers_are_a_number_or_a_kind():
    assert parse_layers("3") == {"num_layers": 3}
    assert parse_layers("conv") == {"layers": "conv"}
    assert parse_layers('[{"kind": "sum"}]') == {"layers": [{"kind": "sum"}]}
    with pytest.raises(typer.BadParameter, match="too small"):
        parse_layers("0")
    with pytest.raises(typer.BadParameter, match="'two' is neither a number of layers nor 'conv'"):
        parse_layers("two")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"--out": "data.csv"}, "--out data.csv: is the same file as DATA data.csv; give it another name"),
        ({"--out": "sub/../data.csv"}, "is the same file as DATA"),
        ({"--out": "link.csv"}, "is the same file as DATA"),
        ({"--out": "hard.csv"}, "is the same file as DATA"),
        ({"--out": "m", "--checkpoint": "data.csv"}, "--checkpoint data.csv: is the same file as DATA"),
        ({"--out": "m", "--checkpoint": "./m"}, "--checkpoint m: is the same file as --out m"),
        ({"--out": "m", "--checkpoint": "dangling"}, "is the same file as --out m"),
        ({"--out": "."}, "--out .: is a directory; give the path of a file"),
        ({"--out": "no/m"}, "--out no/m: there is no directory no; create it first"),
        ({"--out": "m", "--checkpoint": "sub"}, "--checkpoint sub: is a directory"),
    ],
)
def test_files_that_must_not_be_written_are_refused(tmp_path, monkeypatch, written, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("precious")
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.csv").symlink_to("data.csv")
    (tmp_path / "hard.csv").hardlink_to("data.csv")
    (tmp_path / "dangling").symlink_to("m")
    check_files({"--out": "m", "--checkpoint": None}, {"DATA": "data.csv"})
    check_files({"--out": "diabetes"}, {"DATA": "diabetes"})  # a data set of that name is no file
    with pytest.raises(ValueError, match=re.escape(words)):
        check_files(written, {"DATA": "data.csv"})
