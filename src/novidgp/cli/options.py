"""Options of the commands: values and `NAME=VALUE` pairs given as text, and the estimator they describe."""

import ast
import json
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

INFERENCE_METHODS = ("novi", "novi-paper", "dsvi", "sghmc", "ipvi", "flow", "iwvi", "iwvi-dreg", "ml")
"""The names in `novidgp.inference.METHODS`, repeated here so that help texts need no JAX."""


def check_files(written: "Mapping[str, str | Path | None]", read: "Mapping[str, str | Path]") -> None:
    """Refuse files to write that are directories or nowhere, that are read too, or that are one file.

    Both map the name of an argument to its path. Called before anything else is done.
    """
    from pathlib import Path

    paths = {name: Path(path) for name, path in written.items() if path is not None}
    for name, path in paths.items():
        if path.is_dir():
            raise ValueError(f"{name} {path}: is a directory; give the path of a file")
        if not path.parent.is_dir():
            raise ValueError(f"{name} {path}: there is no directory {path.parent}; create it first")
    others = {name: Path(path) for name, path in read.items() if Path(path).exists()}
    for name, path in paths.items():
        for other, used in others.items():
            if _same_file(path, used):
                raise ValueError(f"{name} {path}: is the same file as {other} {used}; give it another name")
        others[name] = path


def _same_file(one: "Path", two: "Path") -> bool:
    """Whether two paths lead to one file, by links or otherwise; neither needs to exist."""
    if one.exists() and two.exists():
        return one.samefile(two)
    return one.resolve() == two.resolve()


def make_estimator(task: str, settings: dict[str, Any]) -> Any:
    """The estimator for a task, `regression` or `classification`."""
    import novidgp

    return (novidgp.DGPClassifier if task == "classification" else novidgp.DGPRegressor)(**settings)


def parse_value(text: str) -> Any:
    """A value given as text, read as Python or JSON if it is either, else the text itself."""
    for read in (ast.literal_eval, json.loads):
        try:
            value = read(text)
            json.dumps(value)  # no sets, no bytes: options are written to files
        except (ValueError, SyntaxError, TypeError):
            continue
        return value
    return text


def parse_options(pairs: list[str]) -> dict[str, Any]:
    """`NAME=VALUE` pairs as a dictionary."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{pair!r} is not of the form NAME=VALUE", param_hint="--set")
        options[name] = parse_value(text)
    return options


def parse_layers(text: str) -> dict[str, Any]:
    """`--layers` as parameters of the estimator: a number of dense layers, or the convolutional ones."""
    value = parse_value(text)
    if isinstance(value, str) and value != "conv":
        raise typer.BadParameter(f"{text!r} is neither a number of layers nor 'conv'", param_hint="--layers")
    if not isinstance(value, int):
        return {"layers": value}
    if value < 1:
        raise typer.BadParameter(f"{value} is too small; have one layer or more", param_hint="--layers")
    return {"num_layers": value}
