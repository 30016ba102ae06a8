"""Options of the commands: values and `NAME=VALUE` pairs given as text, and the estimator they describe."""

import ast
import json
from typing import Any

import typer

INFERENCE_METHODS = ("novi", "novi-paper", "dsvi", "sghmc", "ipvi", "iwvi", "iwvi-dreg", "ml")
"""The names in `novidgp.inference.METHODS`, repeated here so that help texts need no JAX."""


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
