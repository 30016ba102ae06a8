"""The examples of README and docs, run as written but with few steps."""

import contextlib
import re
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from sklearn.datasets import load_digits

from novidgp.datasets.parsers import PARSERS
from novidgp.datasets.registry import REGISTRY
from novidgp.inference import METHODS
from novidgp.model.kernels import KERNELS
from novidgp.model.likelihoods import LIKELIHOODS
from support.commands import houses, run

ROOT = Path(__file__).resolve().parents[2]


def blocks(language):
    """Fenced blocks of the README and the documentation, named by their place."""
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        found = re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
        for index, block in enumerate(found):
            yield pytest.param(block, id=f"{path.name}-{index}")


@pytest.mark.parametrize("block", list(blocks("python")))
def test_python_examples_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    block = re.sub(r"\b((?:max_)?steps)=\d[\d_]*", r"\1=20", block)
    with contextlib.ExitStack() as stack:
        for registry in (METHODS, KERNELS, LIKELIHOODS, REGISTRY, PARSERS):  # some examples add to these
            stack.enter_context(mock.patch.dict(registry))
        exec(compile(block, "example.py", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("block", list(blocks("console")))
def test_command_examples_run(block, tmp_path, monkeypatch):
    """Every `$ novidgp ...` line, in order."""
    monkeypatch.chdir(tmp_path)
    houses().to_csv("houses.csv", index=False)
    digits = load_digits()
    np.savez("digits.npz", X=digits.images[:100], y=digits.target[:100])
    for command in re.findall(r"^\$ novidgp (.*)$", block, re.MULTILINE):
        arguments = command.split()
        if arguments[0] in ("fit", "demo"):
            arguments += ["--steps", "10"]
        run(*arguments)
